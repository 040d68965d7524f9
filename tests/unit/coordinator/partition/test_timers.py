"""Timers go by the wall clock, which may be set while they wait."""

import asyncio
import time
from itertools import pairwise

import pytest

from hocket.coordinator.partition import timers
from hocket.kit.process import clock

HOUR_S = 3_600.0
BOUND_S = 30.0


async def test_a_clock_that_is_set_forward_keeps_no_timer_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timers, "LOOK_S", 0.01)
    behind_s = HOUR_S
    fired: asyncio.Future[tuple[str, float]] = asyncio.get_running_loop().create_future()
    with clock.source(lambda: time.time() - behind_s, time.monotonic):
        due_ms = (time.time() + 0.01) * 1000
        one = timers.Timers(
            lambda run_id, at_ms: fired.set_result((run_id, at_ms)), is_wanted=lambda _: True
        )
        one.arm("r1", due_ms)
        behind_s = 0.0
        async with asyncio.timeout(BOUND_S):
            assert await fired == ("r1", due_ms)
        one.clear()


async def test_timers_that_are_due_together_leave_turns_to_everything_else() -> None:
    count = 3 * timers.FIRED_AT_ONCE
    fired: list[str] = []
    between: list[int] = []
    done = asyncio.Event()

    def fire(run_id: str, at_ms: float) -> None:
        fired.append(run_id)
        if len(fired) == count:
            done.set()

    async def beat() -> None:
        while True:
            between.append(len(fired))
            await asyncio.sleep(0)

    one = timers.Timers(fire, is_wanted=lambda run_id: run_id != "unwanted")
    for n in range(count):
        one.arm("unwanted", float(n))
        one.arm(f"r{n}", float(n))
    beating = asyncio.create_task(beat())
    async with asyncio.timeout(BOUND_S):
        await done.wait()
    beating.cancel()
    assert fired == [f"r{n}" for n in range(count)]
    assert max(after - before for before, after in pairwise(between)) <= timers.FIRED_AT_ONCE
    one.clear()
