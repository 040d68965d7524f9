"""What the core asks of the shell. Commands are carried out at once, without waiting for the
database, except those that say after the commit."""

from dataclasses import dataclass

from hocket.schemas.errors import ErrorInfo
from hocket.schemas.messages import RunAccepted, RunFinished, StepChanged, StepRequested


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Publish a step to its workers; after the commit where `effects_external`."""

    request: StepRequested
    lane: str
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class CancelAttempt:
    """Tell the worker that holds the attempt to stop."""

    run_id: str
    step: str
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class StartSubRun:
    """Publish the acceptance of a child run to its partition's log."""

    accepted: RunAccepted


@dataclass(frozen=True, slots=True)
class CancelSubRun:
    run_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Wake:
    """Publish TimerFired for the run to its log when the time has come."""

    run_id: str
    at_ms: float


@dataclass(frozen=True, slots=True)
class RecordAttempt:
    """Keep an attempt that did not give its step the result."""

    key: str
    attempt: int
    outcome: str
    error: ErrorInfo | None
    dispatched_at_ms: float | None
    started_at_ms: float | None
    finished_at_ms: float
    worker: str


@dataclass(frozen=True, slots=True)
class Announce:
    """Publish progress of a run to its caller."""

    change: StepChanged
    reply_to: str


@dataclass(frozen=True, slots=True)
class EndRun:
    """After the commit: publish the fact, answer the caller, tell the parent run."""

    finished: RunFinished


Command = (
    Dispatch | CancelAttempt | StartSubRun | CancelSubRun | Wake | RecordAttempt | Announce | EndRun
)
