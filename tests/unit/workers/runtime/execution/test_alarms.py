"""Alarms ring once, in order and not before their time; those that are void hold nothing."""

import asyncio
import gc
import weakref
from types import SimpleNamespace
from typing import Any

from hocket.workers.runtime.execution.alarms import MAX_VOID, Alarms

WAIT_S = 10.0


def attempt(name: str) -> Any:
    return SimpleNamespace(id=name, alarm=0)


class Bell:
    def __init__(self) -> None:
        self.rung: list[tuple[str, float]] = []
        self._changed = asyncio.Event()

    def ring(self, one: Any) -> None:
        self.rung.append((one.id, asyncio.get_running_loop().time()))
        self._changed.set()

    async def until(self, count: int) -> list[str]:
        async with asyncio.timeout(WAIT_S):
            while len(self.rung) < count:
                self._changed.clear()
                await self._changed.wait()
        return [name for name, _ in self.rung]


async def test_alarms_ring_in_the_order_of_their_times_and_not_before() -> None:
    alarms, bell = Alarms(), Bell()
    began_s = asyncio.get_running_loop().time()
    in_s = {"third": 0.03, "first": 0.0, "second": 0.015}
    for name, after_s in in_s.items():
        alarms.set(attempt(name), after_s, bell.ring)
    assert await bell.until(3) == ["first", "second", "third"]
    assert all(at_s - began_s >= in_s[name] - 0.002 for name, at_s in bell.rung)


async def test_of_an_attempts_alarms_the_last_one_rings_and_a_void_one_does_not() -> None:
    alarms, bell = Alarms(), Bell()
    changed, ended = attempt("changed"), attempt("ended")
    alarms.set(changed, 0.0, lambda one: bell.ring(attempt("earlier")))
    alarms.set(changed, 0.01, bell.ring)
    alarms.set(ended, 0.0, bell.ring)
    alarms.void(ended)
    alarms.set(attempt("other"), 0.02, bell.ring)
    assert await bell.until(2) == ["changed", "other"]


async def test_an_alarm_may_set_the_next_one_and_one_that_fails_stops_no_other() -> None:
    alarms, bell, one = Alarms(), Bell(), attempt("again")

    def fail(_attempt: Any) -> None:
        raise RuntimeError

    alarms.set(attempt("fails"), 0.0, fail)
    alarms.set(one, 0.0, lambda same: alarms.set(same, 0.001, bell.ring))
    assert await bell.until(1) == ["again"]


async def test_attempts_that_have_ended_are_not_kept_until_their_time() -> None:
    class Ended:
        def __init__(self) -> None:
            self.id, self.alarm = "", 0

    alarms, bell = Alarms(), Bell()
    alarms.set(attempt("runs"), 3_600, bell.ring)
    left = []
    for _ in range(10 * MAX_VOID):
        one: Any = Ended()
        alarms.set(one, 3_600, bell.ring)
        alarms.void(one)
        left.append(weakref.ref(one))
    del one
    gc.collect()
    assert sum(ref() is not None for ref in left) <= MAX_VOID + 1
