"""Alarms for the attempts of this worker, with one heap and one event loop timer.

Nearly every alarm is voided before its time because its attempt has ended, so voiding one only changes a
number. The heap is rebuilt when half of it is void, so that it does not keep ended attempts alive.
"""

import asyncio
from collections.abc import Callable
from heapq import heapify, heappop, heappush

import structlog

from hocket.workers.runtime.execution.attempt import Attempt

EARLY_S = 0.0005
"""Alarms due within this time count as due, because the loop's timers have millisecond resolution."""
MAX_VOID = 64
"""The number of void alarms that are always tolerated."""

log = structlog.get_logger()

Act = Callable[[Attempt], None]


class Alarms:
    """At most one alarm per attempt."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._heap: list[tuple[float, int, Attempt, Act]] = []
        self._count = 0
        self._void = 0
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = float("inf")

    def set(self, attempt: Attempt, in_s: float, act: Act) -> None:
        """Call `act` with an attempt after `in_s`, unless another alarm is set for it before then."""
        if attempt.alarm:
            self._void += 1
        self._count += 1
        attempt.alarm = self._count
        due_s = self._loop.time() + in_s
        heappush(self._heap, (due_s, self._count, attempt, act))
        if due_s < self._due_s:
            self._wait_until(due_s)

    def void(self, attempt: Attempt) -> None:
        """Cancel an attempt's alarm."""
        if attempt.alarm:
            attempt.alarm = 0
            self._void += 1
            if self._void > MAX_VOID and 2 * self._void > len(self._heap):
                self._heap = [entry for entry in self._heap if entry[2].alarm == entry[1]]
                heapify(self._heap)
                self._void = 0

    def _wait_until(self, due_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due_s = due_s
        self._timer = self._loop.call_at(due_s, self._ring)

    def _ring(self) -> None:
        self._timer, self._due_s = None, float("inf")
        now_s = self._loop.time() + EARLY_S
        while self._heap:
            due_s, number, attempt, act = self._heap[0]
            if attempt.alarm != number:
                heappop(self._heap)
                self._void -= 1
            elif due_s <= now_s:
                heappop(self._heap)
                attempt.alarm = 0
                try:
                    act(attempt)
                except Exception:  # other alarms are due, too
                    log.exception("alarm_failed", attempt_id=attempt.id)
            else:
                self._wait_until(due_s)
                return
