"""When the next run will come that needs a model, told from the gaps between those that came.

Runs that come one after the other make one episode; what is learned is the time from the begin of one
episode to the begin of the next. Where the gaps are alike (the nineteen of twenty in the middle span no
more than ALIKE of their median) the next episode is expected between the 5th and the 95th percentile of
them after the last; where they are not, nothing is said, and the model goes cold when it is idle. After
the hybrid histogram policy of Shahrad et al., "Serverless in the Wild" (USENIX ATC 2020), without its
model of time series.
"""

from collections import deque
from dataclasses import dataclass

MIN_GAPS = 3
"""Gaps from which a forecast is made."""
MAX_GAPS = 64
ALIKE = 0.5
LOW, HIGH = 0.05, 0.95
SLACK_SHARE = 0.02
"""How much of the gap a forecast begins earlier and ends later than what was seen."""


@dataclass(frozen=True, slots=True)
class Window:
    """From when until when a run is expected."""

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
        """Note that a run came that needs the model."""
        if self._began_ms is None:
            self._began_ms = at_ms
        elif at_ms - self._last_ms > self._quiet_ms:
            self._gaps.append(at_ms - self._began_ms)
            self._began_ms = at_ms
        self._last_ms = max(self._last_ms, at_ms)

    def window(self) -> Window | None:
        """Return when the next run is expected; None where the past does not tell."""
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
