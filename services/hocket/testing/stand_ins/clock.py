"""The time of a play: an event loop that never waits. When nothing is left to do before the next timer,
the clock jumps to it. Functions that would run in a thread run at once, so that the order of everything
is fixed."""

import asyncio
import contextvars
import os
import selectors
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from pathlib import Path
from time import monotonic, process_time, thread_time
from typing import Any, TypeVar

from hocket.kit.process import clock
from hocket.kit.process.task_stop import LEFT_BEHIND_S, stop_tasks
from hocket.workers.runtime.execution.step_threads import Outcome, StepThreads, outcome_of

T = TypeVar("T")

START_S = 1_767_225_600.0
"""2026-01-01 00:00 UTC: when every play begins."""
IDLE_S = 2.0
"""How long, in real time, to wait for something from outside when no timer is left."""
THREAD_S = 0.02
"""How long, in real time, to wait for a library's own threads before the clock moves. Those that
are at work are waited for longer, up to BUSY_S: how fast they are depends on the machine."""
AT_WORK_S = 0.0005
BUSY_S = 20.0
THREADS = Path("/proc/self/task")


class PlayLoop(asyncio.SelectorEventLoop):
    """An event loop with its own clock. `idle` is called when nothing is left that could happen."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self.idle: Callable[[], None] = self.stop
        super().__init__(_Selector(self))

    def time(self) -> float:
        """Return the seconds since the play began."""
        return self._now_s

    def wall_s(self) -> float:
        """Return the epoch time of the play."""
        return START_S + self._now_s

    def now_ms(self) -> float:
        """Return the epoch time of the play, to the microsecond."""
        return round(self.wall_s() * 1000, 3)

    def passes(self, seconds: float) -> None:
        """Move the clock forward."""
        self._now_s += seconds

    def run_in_executor(  # type: ignore[override]
        self,
        executor: Any,  # noqa: ARG002 - of the loop's interface
        func: Callable[..., Any],
        *args: Any,
    ) -> "asyncio.Future[Any]":
        """Call a function immediately, instead of in a thread."""
        future = self.create_future()
        try:
            with _as_in_a_thread():
                value = func(*args)
            future.set_result(value)
        except Exception as error:
            future.set_exception(error)
        return future


class _Selector(selectors.DefaultSelector):
    """Polls for events, and moves the clock instead of waiting for them."""

    def __init__(self, loop: PlayLoop) -> None:
        super().__init__()
        self._loop = loop
        self._threads = threading.active_count()

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            found = super().select(IDLE_S)
            if not found:
                self._loop.call_soon(self._loop.idle)
            return found
        has_threads = threading.active_count() > self._threads  # those of a library
        found = self._with_threads(min(timeout, THREAD_S)) if has_threads else super().select(0)
        if not found:
            self._loop.passes(timeout)
        return found

    def _with_threads(self, timeout_s: float) -> Any:
        """Wait for events, and for as long as other threads are at work."""
        until_s = monotonic() + BUSY_S
        while True:
            used_s = _used_by_others_s()
            found = super().select(timeout_s)
            at_work = _used_by_others_s() - used_s >= AT_WORK_S or _another_runs()
            if found or not at_work or monotonic() >= until_s:
                return found


def _used_by_others_s() -> float:
    """Return how much of the processor other threads of this process have used."""
    return process_time() - thread_time()


def _another_runs() -> bool:
    """Tell whether another thread of this process waits for nothing but a processor."""
    own = str(threading.get_native_id())
    return any(name != own and _state(name) in ("R", "D") for name in _native_ids())


def _native_ids() -> list[str]:
    try:
        return os.listdir(THREADS)
    except OSError:  # not Linux
        return []


def _state(native_id: str) -> str:
    """Return the state of a thread as Linux tells it: after the name, which stands in brackets."""
    try:
        return (THREADS / native_id / "stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):  # it has ended
        return ""


def run_in_play_time(main: Callable[[PlayLoop], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine on its own event loop, whose clock is the time there. It runs in this thread, or
    in another one if an event loop is already running here (as in an async test)."""

    def run() -> T:
        with (
            closing(PlayLoop()) as loop,
            clock.source(loop.wall_s, loop.time),
            asyncio.Runner(loop_factory=lambda: loop) as runner,
        ):
            return runner.run(_with_all_tasks(main(loop)))

    if not _is_in_a_loop():
        return run()
    future: Future[T] = Future()

    def beside() -> None:
        try:
            future.set_result(run())
        except BaseException as error:
            future.set_exception(error)

    thread = threading.Thread(target=contextvars.copy_context().run, args=(beside,))
    thread.start()
    thread.join()
    return future.result()


async def _with_all_tasks(main: Coroutine[Any, Any, T]) -> T:
    """Await a play, then end what it left running. A task that ignores its cancellation is given up:
    asyncio would wait for it forever."""
    try:
        return await main
    finally:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        await stop_tasks(left, LEFT_BEHIND_S)
        for task in left:
            if not task.done():
                asyncio._unregister_task(task)
                task._log_destroy_pending = False  # type: ignore[attr-defined]


def _is_in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class NoThreads(StepThreads):
    """Runs functions that are not async in the calling thread."""

    def __init__(self) -> None:
        super().__init__(limit=0)

    @property
    def beside(self) -> "StepThreads":
        """The same, for functions that handlers call."""
        return self

    def start(self, call: Callable[[], Any], **_owner: Any) -> "Future[Outcome]":
        """Call a function, and return how it ended."""
        future: Future[Outcome] = Future()
        with _as_in_a_thread():
            outcome = outcome_of(call)
        future.set_result(outcome)
        return future


@contextmanager
def _as_in_a_thread() -> Iterator[None]:
    """Hide the play's event loop from a function that runs in a thread on a worker: none runs there, so
    that the function can run one of its own."""
    loop = asyncio.get_running_loop()
    swap = getattr(asyncio.tasks, "_swap_current_task", None)  # from Python 3.12 on
    task = swap(loop, None) if swap is not None else None
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(loop)
        if swap is not None:
            swap(loop, task)
