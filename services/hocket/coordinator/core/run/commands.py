"""What the core asks of the shell. Commands are carried out at once, without waiting for the
database, except those that say after the commit. `Dispatch` and `EndRun`, which are made by the
thousand, stand in `run/state/messages.py`."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from hocket.schemas.errors import ErrorInfo
from hocket.schemas.messages import (
    PromptExpected,
    RunAccepted,
    StepChanged,
)


@dataclass(frozen=True, slots=True)
class CancelAttempt:
    """Tell the worker that holds the attempt to stop."""

    run_id: str
    step: str
    attempt: int
    reason: str
    dispatched: tuple[str, float | None] | None = None
    """Tenant and moment of a dispatch that had a capability."""


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
class FlowPlace:
    """Where a run waits before it starts: the kind of limit, the run's key there, and the limit."""

    kind: str
    key: str
    rule: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class WaitForFlow:
    """Keep these places with the run's own row; `FlowDecided` comes to its log when it may start."""

    places: tuple[FlowPlace, ...]


@dataclass(frozen=True, slots=True)
class Announce:
    """Publish progress of a run to its caller."""

    change: StepChanged
    reply_to: str


@dataclass(frozen=True, slots=True)
class ExpectPrompt:
    """Tell the gateways how the prompt of a node begins that is next."""

    expected: PromptExpected


@dataclass(frozen=True, slots=True)
class LookUpCache:
    """Ask the cache for a step's output; CacheAnswered comes to the run's log, now or when whoever
    computes it is done. `claim_until_ms`: how long this step may keep others waiting at most."""

    key: str
    tenant: str
    run_id: str
    step: str
    ttl_ms: float
    claim_until_ms: float


@dataclass(frozen=True, slots=True)
class FillCache:
    """Keep what a step computed, and answer those who wait for it."""

    key: str
    tenant: str
    run_id: str
    step: str
    ttl_ms: float
    output: Any
    cost_usd: Decimal


@dataclass(frozen=True, slots=True)
class ReleaseCache:
    """A step that asked the cache, or that computes for it, ended without an output: it waits no
    more, and who waits for it is told to compute."""

    key: str
    run_id: str
    step: str
