"""The outcome of a play: the run, its steps, its model calls, and the trace of everything."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from hocket.coordinator.core.run.state.run import Run, Step
from hocket.schemas.errors import ErrorInfo
from hocket.testing.trace import PlayedCall, Trace


@dataclass(frozen=True, slots=True)
class PlayedStep:
    """A step in its final state. Times are milliseconds since the run was accepted."""

    key: str
    node: str
    state: str
    attempts: int
    input: Any
    output: Any
    error: ErrorInfo | None
    began_ms: float
    ended_ms: float | None
    deadline_ms: float | None
    """Its latest useful finish, as the coordinator computed it."""
    degraded: bool


@dataclass(frozen=True, slots=True)
class Played:
    """A run that was played. `trace` has a line for each thing that happened, in order, and is the same
    for two plays of the same test."""

    status: str
    output: Any
    error: ErrorInfo | None
    took_ms: float
    deadline_ms: float
    """When the run had to finish; it moves while an approval pauses the deadline."""
    cost_usd: Decimal
    steps: dict[str, PlayedStep]
    calls: tuple[PlayedCall, ...]
    trace: tuple[str, ...]

    @property
    def missed_deadline(self) -> bool:
        """Whether the run had not finished by its deadline."""
        return self.status == "expired" or self.took_ms > self.deadline_ms

    def __str__(self) -> str:
        return "\n".join(self.trace)


def come_to(run: Run, trace: Trace) -> Played:
    """Return the outcome of a run that has ended."""
    assert run.finished_at_ms is not None
    return Played(
        status=run.status,
        output=run.output.value,
        error=run.error,
        took_ms=round(run.finished_at_ms - run.accepted_at_ms, 3),
        deadline_ms=round(run.deadline_at_ms - run.accepted_at_ms, 3),
        cost_usd=run.spent_usd,
        steps={key: _step(run, step) for key, step in run.steps.items()},
        calls=tuple(trace.calls),
        trace=tuple(trace.lines),
    )


def _step(run: Run, step: Step) -> PlayedStep:
    began_ms = step.dispatched_at_ms if step.dispatched_at_ms is not None else step.ready_at_ms
    return PlayedStep(
        key=step.key,
        node=step.node.path,
        state=step.state,
        attempts=step.attempt,
        input=step.input.value,
        output=step.output.value,
        error=step.error,
        began_ms=round(began_ms - run.accepted_at_ms, 3),
        ended_ms=_since(run, step.finished_at_ms),
        deadline_ms=_since(run, step.deadline_at_ms),
        degraded=step.degraded,
    )


def _since(run: Run, at_ms: float | None) -> float | None:
    return None if at_ms is None else round(at_ms - run.accepted_at_ms, 3)
