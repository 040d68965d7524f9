"""Cancellation of one call, whether it is waiting or at its backend. What it used is recorded
either way.

Some backends charge even when nobody is listening any more. There the caller is released at once,
and the reply is read for up to `reads_on_ms` more so that the backend can still report usage.
`hurry` cuts that short too.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from hocket.gateway.core.errors import CallStopped
from hocket.schemas.errors import HocketError

T = TypeVar("T")

LetGo = Callable[[HocketError], None]


class Cancellation:
    """The stop signal of one call, set by its owner and observed by everything the call waits for.

    `let_go` is called with the error when the caller need not wait for the rest of the reply.
    """

    def __init__(self, let_go: LetGo | None = None) -> None:
        self.reason = ""
        self._let_go = let_go
        self._error: HocketError | None = None
        self._waiting: asyncio.Future[Any] | None = None
        self._stopped: asyncio.Future[Any] | None = None
        """The future that was being awaited when the stop was requested."""
        self._running: asyncio.Task[Any] | None = None
        self._interrupted = False
        self._reads_on_ms = 0.0
        self._interruption: asyncio.TimerHandle | None = None
        self._followers: tuple[Cancellation, ...] = ()

    @property
    def asked(self) -> bool:
        """Whether a stop was requested."""
        return bool(self.reason)

    @property
    def reads_on(self) -> bool:
        """Whether a stop was requested but the reply is still being read, to learn its usage."""
        return self._running is not None and self._interruption is not None

    @property
    def error(self) -> HocketError:
        """The error that a stopped call ends with."""
        return self._error or CallStopped(reason=self.reason or "the backend gave up")

    def check(self) -> None:
        """Raise the error if a stop was requested."""
        if self.reason:
            raise self.error

    def cancel(self, reason: str, error: HocketError | None = None) -> None:
        """Stop the call, whether it is waiting or at a backend; its usage is still recorded.

        `error` is what the caller gets; the default is CallStopped.
        """
        if not self.reason:
            self.reason, self._error = reason, error
        if self._waiting is not None and self._waiting is not self._stopped:
            self._stopped = self._waiting  # only once: a second cancel would cut its clean-up short
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
        """End at once any work that continues after a stop was requested."""
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
        """Await a future that `cancel` may stop; raise the error if it was stopped that way.

        Work stopped through `followers` may continue for `reads_on_ms`.
        """
        task = asyncio.current_task()
        assert task is not None, "only tasks await"
        before = task.cancelling()
        self._waiting, self._reads_on_ms, self._followers = waiting, reads_on_ms, followers
        try:
            return await waiting
        except asyncio.CancelledError:
            if not waiting.cancelled() or task.cancelling() > before:
                waiting.cancel()
                raise  # the waiting task itself is cancelled, not only what it awaits
            raise self.error from None
        finally:
            self._waiting, self._reads_on_ms, self._followers = None, 0.0, ()

    async def run(self, work: Awaitable[T], *, reads_on_ms: float = 0.0) -> T:
        """Run work that `cancel` may stop, in the calling task; raise the error if it was stopped
        that way.

        Needs one task less than `guard`.
        """
        task = asyncio.current_task()
        assert task is not None, "only tasks await"
        before = task.cancelling()
        self._running, self._interrupted, self._reads_on_ms = task, False, reads_on_ms
        try:
            return await work
        except asyncio.CancelledError:
            if task.cancelling() > before + self._interrupted:
                raise  # the task itself is cancelled, not only this work
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
