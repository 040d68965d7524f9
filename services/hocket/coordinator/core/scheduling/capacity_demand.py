"""How many slots each node type needs, so that runs meet their deadlines and no slot is idle.

The length of a queue is not enough: a thousand steps that have an hour do not call for a worker,
three that have a second do. So three figures are computed, in slots:

- what cannot wait: the expected work, per unit of time, of new runs with less than TIGHT horizons to
  their deadlines. No worker can be started for these in time, so there must be room for uneven arrivals:
  SPREAD times the square root of the slots that they keep busy (the square-root rule of staffing);
- what can wait: the same for the other new runs;
- what waits: the work that runs in flight have left (including steps that are not ready yet, but not
  those behind a pause of the deadline that is not over), which must be done a horizon before their
  deadlines: the steepest of `work due by then / time until then`, where no time is shorter than the
  horizon.

What can wait needs no slots while what waits can still be done later, and what waits needs those
that new runs would get. So a type needs what cannot wait, plus the larger of what can wait and what
waits; and at least what cannot wait with its room. The horizon is the time until a worker that is
requested now takes steps; the rate of arrivals is measured over about one horizon.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

TIGHT = 2.0
SPREAD = 1.0
"""A fifth of the steps then waits, for a fraction of a step's time on average."""
LEAST_MEMORY = 0.5
"""The first arrivals are not taken for a rate until this many horizons have passed."""
FORGOTTEN = 1e-6
"""A type that needs fewer slots than this is not remembered: anyone can make up its name."""


@dataclass(frozen=True, slots=True)
class WorkLeft:
    """The expected work of one type that is left: ms by the second of the deadline, and the ratio
    of its steps' real to expected durations."""

    due_ms: Mapping[int, float]
    bias: float = 1.0


@dataclass(slots=True)
class _Arrivals:
    """Work that arrived since the last tick, and the slots that arrivals kept busy lately."""

    all_ms: float = 0.0
    tight_ms: float = 0.0
    all: float = 0.0
    tight: float = 0.0
    age_ms: float = 0.0


class CapacityDemand:
    """Measures what arrives, by node type. `horizon_ms`: the time until a further worker would serve."""

    def __init__(self, horizon_ms: float) -> None:
        self._horizon_ms = horizon_ms
        self._types: dict[str, _Arrivals] = {}
        self._ticked_at_ms: float | None = None

    def arrived(self, work: Mapping[str, float], left_ms: float) -> None:
        """Count the work of a run, or of a further step, that has `left_ms` until its deadline."""
        for node_type, work_ms in work.items():
            kind = self._types.setdefault(node_type, _Arrivals())
            kind.all_ms += work_ms
            if left_ms < TIGHT * self._horizon_ms:
                kind.tight_ms += work_ms

    def tick(self, at_ms: float) -> None:
        """Bring the rates up to date; `at_ms` is from a clock that never goes back."""
        before_ms, self._ticked_at_ms = self._ticked_at_ms, at_ms
        passed_ms = at_ms - (at_ms if before_ms is None else before_ms)
        if passed_ms <= 0:
            return
        new = 1 - math.exp(-passed_ms / self._horizon_ms)
        for name, kind in list(self._types.items()):
            kind.age_ms += passed_ms
            kind.all += new * (kind.all_ms / passed_ms - kind.all)
            kind.tight += new * (kind.tight_ms / passed_ms - kind.tight)
            kind.all_ms = kind.tight_ms = 0.0
            if kind.all < FORGOTTEN:
                del self._types[name]

    def slots(self, node_type: str, left: WorkLeft, *, now_ms: float, out_ms: float) -> float:
        """Return how many slots a type needs; `out_ms` is the work of its steps that workers have."""
        coming = tight = 0.0
        if (kind := self._types.get(node_type)) is not None:
            horizons = max(LEAST_MEMORY, kind.age_ms / self._horizon_ms)
            known = left.bias / (1 - math.exp(-horizons))
            coming, tight = known * kind.all, known * kind.tight
        patient = max(coming - tight, self._waiting(left, now_ms, out_ms))
        return tight + max(patient, SPREAD * math.sqrt(tight))

    def _waiting(self, left: WorkLeft, now_ms: float, out_ms: float) -> float:
        due_ms, steepest = -out_ms * left.bias, 0.0
        for second in sorted(left.due_ms):
            due_ms += left.due_ms[second] * left.bias
            time_ms = max(1_000 * second - now_ms - self._horizon_ms, self._horizon_ms)
            steepest = max(steepest, due_ms / time_ms)
        return steepest
