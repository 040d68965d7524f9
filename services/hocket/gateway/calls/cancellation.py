"""The way to stop one call: while it waits, or at its backend. What it used is booked all the same.

At a backend that charges although nobody listens any more (`reads_on_ms`), the caller is let go at once
and the work goes on for so long, so that the backend can still say what it used. `hurry` ends that too.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from hocket.gateway.core.errors import CallStopped
from hocket.schemas.errors import HocketError

T = TypeVar("T")

LetGo = Callable[[HocketError], None]


class Cancellation:
    """Asked by whoever made the call; seen by whatever the call waits for. `let_go` is told the error
    when the caller need not wait for the rest."""

    def __init__(self, let_go: LetGo | None = None) -> None:
        self.reason = ""
        self._let_go = let_go
        self._error: HocketError | None = None
        self._waiting: asyncio.Future[Any] | None = None
        self._stopped: asyncio.Future[Any] | None = None
        """What was waited for when somebody asked to stop."""
        self._running: asyncio.Task[Any] | None = None
        self._interrupted = False
        self._reads_on_ms = 0.0
        self._interruption: asyncio.TimerHandle | None = None
        self._followers: tuple[Cancellation, ...] = ()

    @property
    def asked(self) -> bool:
        """Whether somebody asked to stop."""
        return bool(self.reason)

    @property
    def reads_on(self) -> bool:
        """Whether somebody asked to stop and the work goes on, for what it used to be known."""
        return self._running is not None and self._interruption is not None

    @property
    def error(self) -> HocketError:
        """The error of a call that somebody asked to stop."""
        return self._error or CallStopped(reason=self.reason or "the backend gave up")

    def check(self) -> None:
        """Raise the error where somebody asked to stop."""
        if self.reason:
            raise self.error

    def cancel(self, reason: str, error: HocketError | None = None) -> None:
        """Stop the call while it waits or is at a backend; booking goes on. `error` is what the caller
        gets, where it is not CallStopped."""
        if not self.reason:
            self.reason, self._error = reason, error
        if self._waiting is not None and self._waiting is not self._stopped:
            self._stopped = self._waiting  # once: what ends in order would break off at the second
            self._waiting.cancel()
        if self._running is not None and not self._interrupted:
            if not self._reads_on_ms:
                self._interrupted = self._running.cancel()
            elif self._interruption is None:
                loop = asyncio.get_running_loop()
                self._interruption = loop.call_later(self._reads_on_ms / 1000, self._interrupt)
        if self._reads_on_ms and self._let_go is not None:
            self._let_go(self.error)

    def hurry(self) -> None:
        """End at once what goes on although somebody asked to stop."""
        if self.reads_on:
            self._interrupt()
        for follower in self._followers:
            follower.hurry()

    async def guard(
        self,
        waiting: asyncio.Future[T],
        *,
        reads_on_ms: float = 0.0,
        followers: "tuple[Cancellation, ...]" = (),
    ) -> T:
        """Await what may be stopped; raise the error where it was cancelled through here. What
        `followers` stop may go on for `reads_on_ms`."""
        task = asyncio.current_task()
        assert task is not None, "only tasks await"
        before = task.cancelling()
        self._waiting, self._reads_on_ms, self._followers = waiting, reads_on_ms, followers
        try:
            return await waiting
        except asyncio.CancelledError:
            if not waiting.cancelled() or task.cancelling() > before:
                waiting.cancel()
                raise  # whoever waits is stopped, not only what it waits for
            raise self.error from None
        finally:
            self._waiting, self._reads_on_ms, self._followers = None, 0.0, ()

    async def run(self, work: Awaitable[T], *, reads_on_ms: float = 0.0) -> T:
        """Do what may be stopped, in the task that asks; raise the error where it was stopped through
        here. Costs a task less than `guard`."""
        task = asyncio.current_task()
        assert task is not None, "only tasks await"
        before = task.cancelling()
        self._running, self._interrupted, self._reads_on_ms = task, False, reads_on_ms
        try:
            return await work
        except asyncio.CancelledError:
            if task.cancelling() > before + self._interrupted:
                raise  # whoever works is stopped, not only the work
            raise self.error from None
        finally:
            self._running, self._reads_on_ms = None, 0.0
            if self._interruption is not None:
                self._interruption.cancel()
                self._interruption = None
            if self._interrupted:
                task.uncancel()

    def _interrupt(self) -> None:
        if self._running is not None and not self._interrupted:
            self._interrupted = self._running.cancel()
