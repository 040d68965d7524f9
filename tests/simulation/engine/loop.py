"""An event loop without a selector, threads or its own clock: one per simulated process.

The world runs its handles one by one, in the order in which they became ready, and fires its timers in
virtual time. A loop that has died accepts nothing any more.
"""

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulation.engine.world import Process


THREAD_S = 0.05
"""How long a thread takes for what it is given."""


class SimulatedTask(asyncio.Task):  # type: ignore[type-arg]
    """A task whose hash is its number, so that a set of tasks has the same order in every play."""

    number = 0

    def __hash__(self) -> int:
        return self.number


class SimulatedFuture(asyncio.Future):  # type: ignore[type-arg]
    number = 0

    def __hash__(self) -> int:
        return self.number


class SimulatedHandle:
    """A scheduled callback: like asyncio's handles, without their expensive parts."""

    __slots__ = ("arguments", "callback", "context", "is_cancelled", "when_s")

    def __init__(
        self, callback: Any, arguments: tuple[Any, ...], context: Any, when_s: float
    ) -> None:
        self.callback = callback
        self.arguments = arguments
        self.context = context if context is not None else contextvars.copy_context()
        self.when_s = when_s
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True
        self.callback, self.arguments = None, ()

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self.when_s


class ProcessLoop(asyncio.AbstractEventLoop):
    """An event loop in simulated time."""

    def __init__(self, process: "Process") -> None:
        self.process = process
        self.ready: deque[SimulatedHandle] = deque()
        self._world = process.world
        self._dead = False

    def die(self) -> None:
        """Drop all callbacks, and accept no more."""
        self._dead = True
        self.ready.clear()

    # ---- what asyncio asks of a loop --------------------------------------------------------

    def time(self) -> float:
        return self._world.now_s

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> SimulatedHandle:
        handle = SimulatedHandle(callback, args, context, 0.0)
        if not self._dead:
            self.ready.append(handle)
            process = self.process
            if not process.in_round:
                process.wake()
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> SimulatedHandle:
        return self.call_at(self._world.now_s + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> SimulatedHandle:
        timer = SimulatedHandle(callback, args, context, when)
        if not self._dead:
            self._world.at(when, self._ring, timer)
        return timer

    def _ring(self, timer: SimulatedHandle) -> None:
        if not timer.is_cancelled and not self._dead:
            self.ready.append(timer)
            self.process.wake()

    def create_future(self) -> "asyncio.Future[Any]":
        future = SimulatedFuture(loop=self)
        future.number = self._world.next_hash()
        return future

    def create_task(  # type: ignore[override]
        self, coro: Any, *, name: str | None = None, context: Any = None
    ) -> "asyncio.Task[Any]":
        number = self._world.next_hash()
        SimulatedTask.number = number  # asyncio registers a task by its hash while it is created
        task = SimulatedTask(coro, loop=self, name=name or f"t{number}", context=context)
        task.number = number
        return task

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        """Call it a while later, and tell the result after that: others have their turns meanwhile."""
        future = self.create_future()
        self.call_later(THREAD_S, _compute, future, func, args)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._dead:
            return
        error = context.get("exception")
        self._world.note(self.process.name, f"unhandled: {context.get('message')} {error!r}")

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self._dead


def _compute(
    future: "asyncio.Future[Any]", func: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    if future.cancelled():
        return
    try:
        future.set_result(func(*args))
    except Exception as error:
        future.set_exception(error)
