"""Commands: what the core asks the shell to do. They are carried out at once, without waiting for
the database, except those that are documented to wait for the commit. `Dispatch` and `EndRun`,
which are created by the thousand, are defined in `run/state/messages.py`."""

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
    """Record an attempt that did not produce its step's result."""

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
    """A limit that a run waits on before it starts: the kind of limit, the run's key under it, and
    its rule."""

    kind: str
    key: str
    rule: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class WaitForFlow:
    """Store these places with the run's own row; `FlowDecided` is posted to its log once it may
    start."""

    places: tuple[FlowPlace, ...]


@dataclass(frozen=True, slots=True)
class Announce:
    """Publish a run's progress to its caller."""

    change: StepChanged
    reply_to: str


@dataclass(frozen=True, slots=True)
class ExpectPrompt:
    """Tell the gateways how the prompt of an upcoming node begins."""

    expected: PromptExpected


@dataclass(frozen=True, slots=True)
class LookUpCache:
    """Ask the cache for a step's output; `CacheAnswered` is posted to the run's log, now or once
    the step that computes the same output is done. `claim_until_ms` (epoch ms) bounds how long this
    step may keep others waiting."""

    key: str
    tenant: str
    run_id: str
    step: str
    ttl_ms: float
    claim_until_ms: float


@dataclass(frozen=True, slots=True)
class FillCache:
    """Store what a step computed, and answer the steps that wait for it."""

    key: str
    tenant: str
    run_id: str
    step: str
    ttl_ms: float
    output: Any
    cost_usd: Decimal


@dataclass(frozen=True, slots=True)
class ReleaseCache:
    """A step that asked the cache, or that computes for it, ended without an output: it no longer
    waits, and the first step that waits for its output is told to compute."""

    key: str
    run_id: str
    step: str
