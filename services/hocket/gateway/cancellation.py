"""The way to stop one call: while it waits, or at its backend. What it used is booked all the same."""

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from hocket.gateway.core.errors import CallStopped

T = TypeVar("T")


class Cancellation:
    """Asked by whoever made the call; seen by whatever the call waits for."""

    def __init__(self) -> None:
        self.reason = ""
        self._waiting: asyncio.Future[Any] | None = None
        self._running: asyncio.Task[Any] | None = None
        self._interrupted = False

    @property
    def asked(self) -> bool:
        """Whether somebody asked to stop."""
        return bool(self.reason)

    def check(self) -> None:
        """Raise CallStopped where somebody asked to stop."""
        if self.reason:
            raise CallStopped(reason=self.reason)

    def cancel(self, reason: str) -> None:
        """Stop the call while it waits or is at a backend; booking goes on."""
        self.reason = self.reason or reason
        if self._waiting is not None:
            self._waiting.cancel()
        if self._running is not None and not self._interrupted:
            self._interrupted = self._running.cancel()

    async def guard(self, waiting: asyncio.Future[T]) -> T:
        """Await what may be stopped; raise CallStopped where it was cancelled through here."""
        task = asyncio.current_task()
        assert task is not None, "only tasks await"
        before = task.cancelling()
        self._waiting = waiting
        try:
            return await waiting
        except asyncio.CancelledError:
            if not waiting.cancelled() or task.cancelling() > before:
                waiting.cancel()
                raise  # whoever waits is stopped, not only what it waits for
            raise CallStopped(reason=self.reason or "the backend gave up") from None
        finally:
            self._waiting = None

    async def run(self, work: Awaitable[T]) -> T:
        """Do what may be stopped, in the task that asks; raise CallStopped where it was stopped through
        here. Costs a task less than `guard`."""
        task = asyncio.current_task()
        assert task is not None, "only tasks await"
        before = task.cancelling()
        self._running, self._interrupted = task, False
        try:
            return await work
        except asyncio.CancelledError:
            if task.cancelling() > before + self._interrupted:
                raise  # whoever works is stopped, not only the work
            raise CallStopped(reason=self.reason or "the backend gave up") from None
        finally:
            self._running = None
            if self._interrupted:
                task.uncancel()
