"""Which traces are exported: a share of all, chosen at the head by the trace's id or by the caller, and
at the tail every run that failed, was late, slow or expensive. A trace is exported as a whole, once the
run at its top has ended. Pure."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from hocket.schemas.tracing.context import read_context
from hocket.schemas.tracing.spans import context_of_run

Reason = Literal["sampled", "error", "late", "slow", "expensive"]
_MAX = 1 << 56
_DIGITS = 14
"""The rightmost 56 bits of a trace's id are random, as the W3C specifies."""
FAILED = frozenset({"failed", "expired", "rejected"})
"""The statuses of ended runs that are errors; a run below with one of them is a reason, too."""


@dataclass(frozen=True, slots=True)
class EndedRun:
    """The facts about an ended run that the choice depends on."""

    run_id: str
    traceparent: str | None
    is_sub_run: bool
    status: str
    duration_ms: float
    is_late: bool
    spent_usd: Decimal


@dataclass(frozen=True, slots=True)
class SamplingRule:
    """The share of traces that are exported whatever the outcome of the run (0 to 1), and the bounds
    from which a run counts as slow or expensive; 0 means never."""

    ratio: float
    slow_ms: float
    expensive_usd: Decimal

    def reason(self, run: EndedRun) -> Reason | None:
        """Return why a run's trace is exported, or None if it is not for the run's own sake. A sub-run
        is never a reason by itself: it is exported with the run at the top."""
        if run.is_sub_run:
            return None
        if self.samples(run.run_id, run.traceparent):
            return "sampled"
        if run.status in FAILED:
            return "error"
        if run.is_late and run.status != "cancelled":
            return "late"
        if 0 < self.slow_ms < run.duration_ms:
            return "slow"
        if 0 < self.expensive_usd <= run.spent_usd:
            return "expensive"
        return None

    def samples(self, run_id: str, traceparent: str | None) -> bool:
        """Tell whether a trace is chosen at its head: by its caller if that keeps it, and otherwise by
        its id, so that every process decides the same."""
        caller = read_context(traceparent)
        if caller is not None and caller.is_sampled:
            return True
        trace_id = context_of_run(run_id, traceparent).trace_id
        return int(trace_id[-_DIGITS:], 16) < self.ratio * _MAX
