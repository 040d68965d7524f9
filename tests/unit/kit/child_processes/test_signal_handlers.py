"""Handlers of signals, in a process of its own that forks."""

import asyncio
import multiprocessing
import os
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing.connection import Connection

import pytest
import uvloop

from hocket.kit.child_processes.signal_handlers import on_signal

FORKING = multiprocessing.get_context("fork")
LONG_S = 60.0
WENT_ON = 7
Runs = Callable[..., object]


def sleeping(begun: int) -> None:
    os.write(begun, b"1")
    for _ in range(6_000):  # a signal just before one of them does not interrupt it
        time.sleep(0.01)


def goes_on(begun: int) -> str:
    """Say so, and again once it was interrupted."""
    os.write(begun, b"1")
    while signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        time.sleep(0.01)
    os.write(begun, b"1")
    return "finished"


def waiting(begun: int, let_end: int) -> None:
    goes_on(begun)
    os.read(let_end, 1)
    os._exit(WENT_ON)


def told_to_stop(number: int) -> int | None:
    """Return how a forked child ends that is told to, once it runs."""
    begun, begins = os.pipe()
    child = FORKING.Process(target=sleeping, args=(begins,))
    child.start()
    os.read(begun, 1)
    os.close(begun)
    os.close(begins)
    assert child.pid is not None
    os.kill(child.pid, number)
    return how_it_ended(child)


def interrupted(times: int, number: int) -> int | None:
    """Return how a forked child ends that is interrupted so often, once it runs."""
    begun, begins = os.pipe()
    let_end, ends = os.pipe()
    child = FORKING.Process(target=waiting, args=(begins, let_end))
    child.start()
    assert child.pid is not None
    for _ in range(times):
        os.read(begun, 1)
        os.kill(child.pid, number)
    if times == 1:
        os.read(begun, 1)
        os.write(ends, b"1")
    for descriptor in (begun, begins, let_end, ends):
        os.close(descriptor)
    return how_it_ended(child)


def told_at_once(number: int) -> int | None:
    """Return how a forked child ends that is told to while it begins."""
    child = FORKING.Process(target=time.sleep, args=(LONG_S,))
    child.start()
    assert child.pid is not None
    os.kill(child.pid, number)
    return how_it_ended(child)


def how_it_ended(child: multiprocessing.process.BaseProcess) -> int | None:
    child.join(10)
    code = child.exitcode
    child.kill()
    child.join()
    return code


def squared(number: int) -> int:
    return number**2


def in_a_pool(_number: int) -> int:
    with FORKING.Pool(2) as pool:  # which ends its children with SIGTERM
        assert pool.map(squared, range(4)) == [0, 1, 4, 9]
        pool.terminate()
        pool.join()
    return -signal.SIGTERM


async def plays(child: Callable[[int], int | None], number: int, results: "list[object]") -> None:
    heard: list[int] = []
    stopping = asyncio.Event()

    def hear(one: int) -> None:
        heard.append(one)
        stopping.set()

    for one in (signal.SIGTERM, signal.SIGINT):
        on_signal(one, hear, one)
    with ThreadPoolExecutor(1) as threads:
        loop = asyncio.get_running_loop()
        for _ in range(5):
            results.append(await loop.run_in_executor(threads, child, number))
    results.append(child(number))
    await asyncio.sleep(0.05)  # what a child did to the loop would be heard by now
    results.append(tuple(heard))
    os.kill(os.getpid(), number)
    await asyncio.wait_for(stopping.wait(), LONG_S)
    results.append(tuple(heard))


def in_a_process(runs: Runs, child: Callable[[int], int | None], number: int) -> list[object]:
    """Play it in a process that forks and has no other handlers."""
    said, says = FORKING.Pipe(duplex=False)

    def body() -> None:
        results: list[object] = []
        for _ in range(2):  # two loops, one after the other
            runs(plays(child, number, results))
        says.send(results)

    process = FORKING.Process(target=body)
    process.start()
    try:
        assert said.poll(LONG_S), "the process ended, or hangs"
        results: list[object] = said.recv()
        return results
    finally:
        process.join(10)
        process.kill()


@pytest.mark.parametrize("runs", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize(
    ("child", "number"),
    [
        (told_to_stop, signal.SIGTERM),
        (told_at_once, signal.SIGTERM),
        (in_a_pool, signal.SIGTERM),
    ],
    ids=["runs", "begins", "pool"],
)
def test_a_forked_child_that_is_told_to_stop_stops_and_its_parent_does_not(
    runs: Runs, child: Callable[[int], int | None], number: int
) -> None:
    results = in_a_process(runs, child, number)
    once = [-number] * 6 + [(), (number,)]
    assert results == once + once


@pytest.mark.parametrize("runs", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize(("times", "code"), [(1, WENT_ON), (2, 1)])
def test_a_forked_child_goes_on_when_it_is_interrupted_but_not_when_it_is_again(
    runs: Runs, times: int, code: int
) -> None:
    results = in_a_process(runs, partial(interrupted, times), signal.SIGINT)
    once = [code] * 6 + [(), (signal.SIGINT,)]  # 1: that of a KeyboardInterrupt
    assert results == once + once


async def interrupts_all(says: Connection) -> None:
    """Interrupt this process and its pool, as Ctrl-C does."""
    stopping = asyncio.Event()
    on_signal(signal.SIGINT, stopping.set)
    begun, begins = os.pipe()
    with ProcessPoolExecutor(1, mp_context=FORKING) as pool:
        task = asyncio.get_running_loop().run_in_executor(pool, goes_on, begins)
        await asyncio.to_thread(os.read, begun, 1)
        os.killpg(0, signal.SIGINT)
        await asyncio.wait_for(stopping.wait(), LONG_S)
        says.send(await asyncio.wait_for(task, LONG_S))


async def runs_a_program(says: Connection) -> None:
    """Tell whether a program ignores SIGINT that is started by way of a forked child."""
    on_signal(signal.SIGINT, lambda: None)
    shown = ["sed", "-n", "s/^SigIgn:\\t//p", "/proc/self/status"]
    runs = partial(subprocess.run, shown, preexec_fn=os.getpid, capture_output=True, check=True)
    done = await asyncio.to_thread(runs)
    says.send(bool(int(done.stdout, 16) & 1 << (signal.SIGINT - 1)))


async def replaces_its_handlers(says: Connection) -> None:
    """Tell how often the loop wakes that a child of a program with handlers of its own is told to."""
    heard: list[int] = []
    on_signal(signal.SIGTERM, heard.append, 1)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(9))
    code = told_to_stop(signal.SIGTERM)
    await asyncio.sleep(0.05)  # what a child did to the loop would be heard by now
    says.send((code, heard))


@pytest.mark.parametrize("runs", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize(
    ("play", "result"),
    [
        (interrupts_all, "finished"),
        (runs_a_program, False),
        (replaces_its_handlers, (9, [])),
    ],
    ids=["pool", "program", "replaced"],
)
def test_what_is_forked_neither_ends_its_parents_work_nor_wakes_it(
    runs: Runs, play: Callable[[Connection], Awaitable[None]], result: object
) -> None:
    said, says = FORKING.Pipe(duplex=False)

    def body() -> None:
        os.setsid()
        runs(play(says))

    process = FORKING.Process(target=body)
    process.start()
    try:
        assert said.poll(LONG_S), "the process ended, or hangs"
        assert said.recv() == result
    finally:
        process.join(10)
        process.kill()
