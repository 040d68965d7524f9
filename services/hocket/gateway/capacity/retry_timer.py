"""A timer that fires at the earliest of the requested times."""

import asyncio
from collections.abc import Callable
from math import inf

LOOK_S = 1.0
"""How often the clock is checked: it may be adjusted meanwhile,
which the event loop's timers do not notice."""


class RetryTimer:
    """Calls `retry` once, at the earliest time scheduled since the last call."""

    def __init__(self, now_ms: Callable[[], float], retry: Callable[[], None]) -> None:
        self._now_ms = now_ms
        self._retry = retry
        self._timer: asyncio.TimerHandle | None = None
        self._at_ms = inf

    def schedule(self, at_ms: float | None) -> None:
        """Call back at `at_ms` or earlier; None is ignored."""
        if at_ms is None:
            return
        if self._timer is not None:
            if self._at_ms <= at_ms:
                return
            self._timer.cancel()
        self._at_ms = at_ms
        self._wait(self._left_s())

    def _left_s(self) -> float:
        return max(self._at_ms - self._now_ms(), 0.0) / 1000

    def _wait(self, left_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(min(left_s, LOOK_S), self._fire, left_s <= LOOK_S)

    def _fire(self, is_due: bool) -> None:
        if not is_due and (left_s := self._left_s()):
            self._wait(left_s)
            return
        self._timer = None
        self._retry()
