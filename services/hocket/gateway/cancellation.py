"""The way to stop one call: while it waits, or at its backend. What it used is booked all the same."""

import asyncio
from typing import Any, TypeVar

from hocket.gateway.core.errors import CallStopped

T = TypeVar("T")


class Cancellation:
    """Asked by whoever made the call; seen by whatever the call waits for."""

    def __init__(self) -> None:
        self.reason = ""
        self._waiting: asyncio.Future[Any] | None = None

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
