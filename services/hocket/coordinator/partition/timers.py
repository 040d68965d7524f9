"""When runs are to be woken: a heap of (time, run), and one loop timer for the earliest, or for the
next check of the clock.

A timer that fires is published to the partition's log and acts only when it is read from there, so
that the log alone explains the state.
"""

import asyncio
import heapq
from collections.abc import Callable
from math import isnan

from hocket.kit.process.clock import now_ms

LOOK_S = 1.0
"""How often the clock is checked while times are pending: it may be set, and the loop's timers
would not notice."""
FIRED_AT_ONCE = 50
"""How many timers of a partition fire before everything else has its turn: any number of runs may wait
for the same moment."""
COMPACT_AT = 10_000
"""Number of entries from which stale ones (runs that have ended) are swept out each time the heap
doubles."""


class Timers:
    """Calls `fire(run_id, due_at_ms)` when a time has come."""

    def __init__(
        self, fire: Callable[[str, float], None], *, is_wanted: Callable[[str], bool]
    ) -> None:
        self._fire = fire
        self._is_wanted = is_wanted
        self._heap: list[tuple[float, str]] = []
        self._handle: asyncio.TimerHandle | None = None
        self._sweep_at = COMPACT_AT

    def arm(self, run_id: str, at_ms: float) -> None:
        """Fire for a run at a time (epoch ms); earlier requests stay."""
        if isnan(at_ms):
            return  # it would never come due, but be checked for ever
        earliest = self._heap[0][0] if self._heap else float("inf")
        heapq.heappush(self._heap, (at_ms, run_id))
        if len(self._heap) > self._sweep_at:
            self._sweep()
        if at_ms < earliest:
            self._schedule()

    def clear(self) -> None:
        """Forget everything."""
        self._heap.clear()
        if self._handle is not None:
            self._handle.cancel()

    def _sweep(self) -> None:
        self._heap = [entry for entry in self._heap if self._is_wanted(entry[1])]
        heapq.heapify(self._heap)
        self._sweep_at = max(COMPACT_AT, 2 * len(self._heap))

    def _schedule(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._heap:
            delay_s = min(max(0.0, (self._heap[0][0] - now_ms()) / 1000), LOOK_S)
            self._handle = asyncio.get_running_loop().call_later(delay_s, self._due)

    def _due(self) -> None:
        now = now_ms()
        left = FIRED_AT_ONCE
        while left and self._heap and self._heap[0][0] <= now:
            at_ms, run_id = heapq.heappop(self._heap)
            if self._is_wanted(run_id):
                left -= 1
                self._fire(run_id, at_ms)
        self._handle = None
        self._schedule()
