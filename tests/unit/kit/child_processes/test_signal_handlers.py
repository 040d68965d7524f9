"""Handlers of signals, in a process of its own that forks."""

import asyncio
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import uvloop

from hocket.kit.child_processes.signal_handlers import on_signal

FORKING = multiprocessing.get_context("fork")
LONG_S = 60.0
Runs = Callable[..., object]


def sleeping(begun: int) -> None:
    os.write(begun, b"1")
    for _ in range(6_000):  # a signal just before one of them does not interrupt it
        time.sleep(0.01)


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
def test_a_forked_child_is_interrupted_as_python_is(runs: Runs) -> None:
    results = in_a_process(runs, told_to_stop, signal.SIGINT)
    once = [1] * 6 + [(), (signal.SIGINT,)]  # that of a KeyboardInterrupt
    assert results == once + once
