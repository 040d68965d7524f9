"""How many slots each node type needs, so that runs meet their deadlines and no slot is idle.

A queue's length does not tell: a thousand steps that have an hour are no reason for a worker, three that
have a second are. So three figures are looked at, in slots:

- what cannot wait: the expected work, per time, of new runs that have less than TIGHT horizons to their
  deadlines. No worker can be started for these in time, so there must be room for how unevenly they
  come: SPREAD times the square root of the slots that they keep busy (the square-root rule of staffing);
- what can wait: the same of the other new runs;
- what waits: the work that runs in flight have left (steps that are not ready yet, too), which must be
  done a horizon before their deadlines: the steepest of `work due by then / time until then`, where no
  time is shorter than the horizon.

What can wait needs no slots while what waits can still be done later, and what waits needs those that
new runs would get. So a type needs what cannot wait, and what can wait or what waits, whichever is more;
and at least what cannot wait with its room. The horizon is the time until a worker that is asked for now
takes steps; what comes is known from about the last one.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

TIGHT = 2.0
SPREAD = 1.0
"""A fifth of the steps then waits, on average for a part of a step's time."""
LEAST_MEMORY = 0.5
"""The first arrivals are not taken for a rate before so many horizons have passed."""
FORGOTTEN = 1e-6
"""Slots that nobody needs: a type with fewer is not remembered, for its name may be anybody's."""


@dataclass(frozen=True, slots=True)
class WorkLeft:
    """The expected work of one type that is left: ms by the second of the deadline, and how much longer
    than expected its steps really take."""

    due_ms: Mapping[int, float]
    bias: float = 1.0


@dataclass(slots=True)
class _Arrivals:
    """Work that came since the last tick, and slots that it kept busy lately."""

    all_ms: float = 0.0
    tight_ms: float = 0.0
    all: float = 0.0
    tight: float = 0.0
    age_ms: float = 0.0


class CapacityDemand:
    """What comes, by node type. `horizon_ms`: until a further worker would serve."""

    def __init__(self, horizon_ms: float) -> None:
        self._horizon_ms = horizon_ms
        self._types: dict[str, _Arrivals] = {}
        self._ticked_at_ms: float | None = None

    def arrived(self, work: Mapping[str, float], left_ms: float) -> None:
        """Count the work of a run, or of a further step, that has so long until its deadline."""
        for node_type, work_ms in work.items():
            kind = self._types.setdefault(node_type, _Arrivals())
            kind.all_ms += work_ms
            if left_ms < TIGHT * self._horizon_ms:
                kind.tight_ms += work_ms

    def tick(self, at_ms: float) -> None:
        """Bring the rates up to date; `at_ms` is of a clock that never goes back."""
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
        """Return the slots that a type needs; `out_ms`: the work of its steps that workers have."""
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
