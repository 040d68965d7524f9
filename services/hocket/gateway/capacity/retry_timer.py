"""A timer that calls back at the earliest of the times that it was asked for."""

import asyncio
from collections.abc import Callable
from math import inf


class RetryTimer:
    """Calls `retry` once at the earliest time that was scheduled since it did so last."""

    def __init__(self, now_ms: Callable[[], float], retry: Callable[[], None]) -> None:
        self._now_ms = now_ms
        self._retry = retry
        self._timer: asyncio.TimerHandle | None = None
        self._at_ms = inf

    def schedule(self, at_ms: float | None) -> None:
        """Call back at a time, or earlier; None is no time."""
        if at_ms is None:
            return
        if self._timer is not None:
            if self._at_ms <= at_ms:
                return
            self._timer.cancel()
        self._at_ms = at_ms
        left_ms = max(at_ms - self._now_ms(), 0.0)
        self._timer = asyncio.get_running_loop().call_later(left_ms / 1000, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._retry()
