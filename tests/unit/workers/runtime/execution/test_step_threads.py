"""Threads for functions that are not async: bounded, reused, and no reason for a process to stay."""

import asyncio
import subprocess
import sys
import threading
from functools import partial
from typing import Any

import pytest

from hocket.workers.runtime.execution.slots import Slots
from hocket.workers.runtime.execution.step_threads import (
    IDLE_KEPT,
    Outcome,
    Owner,
    StepThreads,
    ThreadsBusy,
)

WAIT_S = 20


def test_a_function_gives_its_value_or_its_exception_as_data() -> None:
    threads = StepThreads(2)
    assert threads.start(lambda: 7).result(WAIT_S) == Outcome(value=7)

    def fail(error: BaseException) -> Any:
        raise error

    for error in (ValueError("x"), SystemExit(3), KeyboardInterrupt(), StopIteration(1),
                  GeneratorExit(), asyncio.CancelledError()):  # fmt: skip
        outcome = threads.start(lambda error=error: fail(error)).result(WAIT_S)
        assert outcome.error is error
    threads.close()


@pytest.mark.parametrize("owner", [None, Owner("acme")])
def test_a_thread_that_the_system_refuses_is_not_counted(
    monkeypatch: pytest.MonkeyPatch, owner: Owner | None
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    threads = StepThreads(1)
    with monkeypatch.context() as short:
        short.setattr(threading.Thread, "start", refuse)
        with pytest.raises(ThreadsBusy):
            threads.start(lambda: 1, owner=owner)
    assert threads.start(lambda: 1, owner=owner).result(WAIT_S) == Outcome(value=1)
    threads.close()


def test_threads_are_reused_and_never_more_than_the_limit() -> None:
    threads = StepThreads(3)
    release = threading.Event()
    held = [threads.start(lambda: release.wait(WAIT_S)) for _ in range(3)]
    with pytest.raises(ThreadsBusy):
        threads.start(lambda: None)
    assert threads.count == 3
    release.set()
    for work in held:
        work.result(WAIT_S)
    for _ in range(100):
        threads.start(lambda: None).result(WAIT_S)
    assert threads.count <= 3
    threads.close()


def test_functions_beside_wait_for_their_turn_and_take_no_thread_from_others() -> None:
    threads, release, owner = StepThreads(2), threading.Event(), Owner("acme")
    held = [threads.beside.start(lambda: release.wait(WAIT_S), owner=owner) for _ in range(2)]
    waiting = [threads.beside.start(lambda n=n: n, owner=owner) for n in range(10)]
    given_up = threads.beside.start(lambda: None, owner=owner)
    assert threads.beside.waiting == 11
    assert given_up.cancel()
    assert threads.beside.waiting == 10
    assert threads.start(lambda: 7).result(WAIT_S).value == 7
    assert not any(work.done() for work in (*held, *waiting))
    release.set()
    assert [work.result(WAIT_S).value for work in waiting] == list(range(10))
    assert threads.beside.count <= 2
    threads.close()


def test_one_attempt_holds_at_most_a_quarter_of_the_threads_and_one_tenant_half() -> None:
    threads, release = StepThreads(8), threading.Event()
    crowds = [Owner("acme") for _ in range(3)]
    begun: list[Owner] = []

    def crowd(owner: Owner) -> None:
        begun.append(owner)
        release.wait(WAIT_S)

    works = [
        threads.start(partial(crowd, owner), owner=owner) for owner in crowds for _ in range(20)
    ]
    assert threads.start(lambda: 7, owner=Owner("globex")).result(WAIT_S).value == 7
    assert sorted(map(crowds.index, begun)) == [0, 0, 1, 1]
    assert threads.waiting == 56
    release.set()
    for work in works:
        work.result(WAIT_S)
    assert [begun.count(owner) for owner in crowds] == [20, 20, 20]
    assert threads.waiting == 0
    threads.close()


def test_attempts_that_wait_for_threads_are_served_in_turn() -> None:
    threads, release = StepThreads(1), threading.Event()
    served: list[str] = []
    many, few = Owner("acme"), Owner("globex")
    held = threads.start(lambda: release.wait(WAIT_S), owner=Owner("initech"))
    works = [
        threads.start(partial(served.append, f"many {number}"), owner=many) for number in range(100)
    ]
    works += [
        threads.start(partial(served.append, f"few {number}"), owner=few) for number in range(2)
    ]
    for work in works[2:100]:
        assert work.cancel()
    assert threads.waiting == 4
    release.set()
    for work in (held, *works[:2], *works[100:]):
        work.result(WAIT_S)
    assert served == ["many 0", "few 0", "many 1", "few 1"]
    threads.close()


def test_a_lone_attempt_may_use_as_many_threads_beside_as_there_are_slots() -> None:
    threads, all_begun, owner = StepThreads(8), threading.Barrier(8), Owner("acme")
    works = [threads.beside.start(lambda: all_begun.wait(WAIT_S), owner=owner) for _ in range(8)]
    assert sorted(work.result(WAIT_S).value for work in works) == list(range(8))
    threads.close()


def test_idle_threads_are_few() -> None:
    threads = StepThreads(50)
    release = threading.Event()
    held = [threads.start(lambda: release.wait(WAIT_S)) for _ in range(50)]
    release.set()
    for work in held:
        work.result(WAIT_S)
    assert threads.count <= IDLE_KEPT
    threads.close()


async def test_a_waiting_task_that_is_cancelled_leaves_the_thread_behind() -> None:
    threads, release = StepThreads(1), threading.Event()
    work = threads.start(lambda: release.wait(WAIT_S))
    waiting = asyncio.ensure_future(asyncio.wrap_future(work))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not work.done()
    with pytest.raises(ThreadsBusy):
        threads.start(lambda: None)
    release.set()
    assert work.result(WAIT_S).value is True
    assert threads.start(lambda: 1).result(WAIT_S).value == 1


async def test_held_slots_say_when_they_are_more_than_half() -> None:
    changes: list[int] = []
    ended: list[int] = []
    changed = asyncio.Event()

    def note() -> None:
        changes.append(slots.held)
        changed.set()

    slots = Slots("python", 2, note)
    loop = asyncio.get_running_loop()
    left = [loop.create_task(asyncio.sleep(WAIT_S)) for _ in range(2)]
    for number, task in enumerate(left):
        assert slots.overrun_s() == 0.0
        slots.begin()
        slots.end(task, lambda number=number: ended.append(number))  # type: ignore[misc]
        assert (slots.running, slots.taken) == (0, number + 1)
    assert slots.overrun_s() > 0.0
    assert not ended
    for task in left:
        task.cancel()
    async with asyncio.timeout(WAIT_S):
        while slots.held:
            changed.clear()
            await changed.wait()
    assert slots.overrun_s() == 0.0
    assert changes == [1, 2, 1, 0]
    assert sorted(ended) == [0, 1]


BUSY = """
import time
from hocket.workers.runtime.execution.step_threads import StepThreads
StepThreads(1).start(lambda: time.sleep(600))
print("end")
"""


def test_a_thread_that_does_not_end_does_not_keep_its_process() -> None:
    done = subprocess.run([sys.executable, "-c", BUSY], capture_output=True, timeout=60, check=True)
    assert done.stdout == b"end\n"


BLOCKED = """
import asyncio
from hocket.workers.runtime.execution.watchdog import LoopWatchdog

async def block():
    LoopWatchdog(BLOCKED_S).start()
    WORK

asyncio.run(block())
print("end")
"""


def blocked(work: str, blocked_s: float) -> "subprocess.CompletedProcess[bytes]":
    code = BLOCKED.replace("WORK", work).replace("BLOCKED_S", str(blocked_s))
    return subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)


def test_a_process_whose_loop_stands_still_ends_and_says_where() -> None:
    for work in ("while True: pass", "9 ** 9 ** 9"):  # the second never gives the interpreter back
        done = blocked(work, 0.5)
        assert done.returncode != 0
        assert b"in block" in done.stderr
        assert b"end" not in done.stdout


def test_a_process_whose_loop_runs_goes_on() -> None:
    done = blocked("[await asyncio.sleep(0.05) for _ in range(80)]", 3.0)
    assert (done.returncode, done.stdout) == (0, b"end\n")
    assert blocked("import time; time.sleep(0.4)", 0).returncode == 0
