"""Predicts when the next run that needs a model will come, from the gaps between past runs.

Runs in quick succession form one episode; what is learnt is the time from the start of one episode
to the start of the next. If the gaps are similar (their 5th to 95th percentile spans at most ALIKE
of the median), the next episode is expected between those percentiles after the start of the last
one. Otherwise no forecast is made, and the model goes cold when idle. This follows the hybrid
histogram policy of Shahrad et al., "Serverless in the Wild" (USENIX ATC 2020), without its time
series model.
"""

from collections import deque
from dataclasses import dataclass

MIN_GAPS = 3
"""The number of gaps needed for a forecast."""
MAX_GAPS = 64
ALIKE = 0.5
LOW, HIGH = 0.05, 0.95
SLACK_SHARE = 0.02
"""The share of the median gap by which a forecast starts earlier and ends later
than the observed gaps."""


@dataclass(frozen=True, slots=True)
class Window:
    """The time window in which a run is expected (ms)."""

    from_ms: float
    until_ms: float


class Forecast:
    """The gaps of one model; `quiet_ms` without a run ends an episode."""

    def __init__(self, quiet_ms: float) -> None:
        self._quiet_ms = quiet_ms
        self._gaps: deque[float] = deque(maxlen=MAX_GAPS)
        self._began_ms: float | None = None
        self._last_ms = 0.0

    def record_arrival(self, at_ms: float) -> None:
        """Record a run that needs the model."""
        if self._began_ms is None:
            self._began_ms = at_ms
        elif at_ms - self._last_ms > self._quiet_ms:
            self._gaps.append(at_ms - self._began_ms)
            self._began_ms = at_ms
        self._last_ms = max(self._last_ms, at_ms)

    def window(self) -> Window | None:
        """Return when the next run is expected; None if the past gives no clear answer."""
        if self._began_ms is None or len(self._gaps) < MIN_GAPS:
            return None
        gaps = sorted(self._gaps)
        low, high = _quantile(gaps, LOW), _quantile(gaps, HIGH)
        middle = _quantile(gaps, 0.5)
        if high - low > ALIKE * middle:
            return None
        slack_ms = SLACK_SHARE * middle
        return Window(self._began_ms + low - slack_ms, self._began_ms + high + slack_ms)


def _quantile(ordered: list[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
