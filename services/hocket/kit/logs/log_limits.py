"""Limits how often the same problem is logged: anybody may send a million messages that cause one."""

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

REPORT_S = 10.0
"""The time in which the same problem is logged once, or `at_once` times."""
MAX_TROUBLES = 64


@dataclass(slots=True)
class _Trouble:
    since_s: float
    said: int = 0
    unsaid: int = 0


class Reporting:
    """Counts problems by name, and decides when one is to be logged: `at_once` times in `every_s`."""

    def __init__(
        self,
        *,
        every_s: float = REPORT_S,
        at_once: int = 1,
        clock_s: Callable[[], float] = monotonic,
    ) -> None:
        self._every_s = every_s
        self._at_once = at_once
        self._clock_s = clock_s
        self._troubles: dict[str, _Trouble] = {}

    def due(self, trouble: str) -> int:
        """Count a problem. If it should be logged now, return how often it has occurred since it was
        last logged, otherwise 0."""
        now_s = self._clock_s()
        known = self._troubles.get(trouble)
        if known is None:
            if len(self._troubles) >= MAX_TROUBLES:
                self._troubles.clear()
            known = self._troubles[trouble] = _Trouble(now_s)
        elif now_s - known.since_s >= self._every_s:
            known.since_s, known.said = now_s, 0
        if known.said >= self._at_once:
            known.unsaid += 1
            return 0
        count, known.unsaid = known.unsaid + 1, 0
        known.said += 1
        return count
