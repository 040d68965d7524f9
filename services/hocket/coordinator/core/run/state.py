"""What a run is made of: steps, scopes and tallies, all frozen; maps are persistent (HAMT), so that
a new state costs the change and not the size of the run.

Steps, the run's own fields, held results and unread signals are persisted. `scopes`, `tallies`,
`live`, `wakes`, `due`, `waiting` and `pausing` are derived from them (`restore` in `records.py`) and
never written. They are what keeps an event's work independent of the run's size.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from immutables import Map

from hocket.coordinator.core.structures.frozen import maker
from hocket.coordinator.core.structures.heap import Heap
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.messages import AttemptFinished, Priority, RunOrigin, RunParent, Timing
from hocket.schemas.pipeline.node_parts import PlanPolicy
from hocket.schemas.pipeline.plan import NodePlan, ScopePlan

NONE: Map[Any, Any] = Map()
"""The empty map."""


class RunStatus(StrEnum):
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    DEGRADED = "degraded"
    """Ended well, but an optional part failed or a fallback served."""
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    REJECTED = "rejected"


class StepState(StrEnum):
    LOOKING_UP = "looking_up"
    """Waits for the cache's answer: somebody's output, or its own turn to compute."""
    DISPATCHED = "dispatched"
    BACKOFF = "backoff"
    OPEN = "open"
    """A container (or sub-run) whose children run."""
    WAITING = "waiting"
    """Waits for a signal from outside."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"


TERMINAL = frozenset(
    {StepState.SUCCEEDED, StepState.FAILED, StepState.SKIPPED, StepState.CANCELLED}
)


class Role(StrEnum):
    """What a step does: a worker runs a `leaf`; the coordinator runs the others itself."""

    LEAF = "leaf"
    WAIT = "wait"
    SUBRUN = "subrun"
    GRAPH = "graph"
    MAP = "map"
    LOOP = "loop"
    RACE = "race"


class ParentRelation(StrEnum):
    """What a step is to its parent."""

    NODE = "node"
    ITEM = "item"
    ROUND = "round"
    BRANCH = "branch"
    FALLBACK = "fallback"


@dataclass(frozen=True, slots=True)
class Source:
    """Where the output of a step comes from that was not computed by its own run, and what it cost
    there."""

    kind: Literal["cache", "run"]
    run_id: str
    step: str
    saved_usd: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True)
class PastAttempt:
    """An attempt that was tried again: when it went out and came back, and what its worker said of the
    time between (see the fields of the step)."""

    dispatched_at_ms: float
    finished_at_ms: float
    queued_at_ms: float | None = None
    started_at_ms: float | None = None
    took_ms: float | None = None
    timing: Timing | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """A node inside a run. `key` is its path in the run: `research[3]/read`, `refine#2`,
    `answer~fast`, `answer!1`. `home` is the key of the planning step that emitted its node ("" for
    the nodes of the spec). Times are the log's, except `started_at_ms` (the worker's)."""

    key: str
    path: str
    type: str
    role: Role
    link: ParentRelation
    parent: str
    ready_at_ms: float
    state: StepState
    home: str = ""
    index: int = 0
    """Item index, loop round (from 1) or fallback number (from 1; the fast variant has 0)."""
    attempt: int = 0
    input: Any = None
    output: Any = None
    error: ErrorInfo | None = None
    dispatched_at_ms: float | None = None
    started_at_ms: float | None = None
    finished_at_ms: float | None = None
    deadline_at_ms: float | None = None
    slack_ms: float | None = None
    wake_at_ms: float | None = None
    give_up_at_ms: float | None = None
    """When the run can wait for this node no longer (`on_infeasible`)."""
    worker: str = ""
    degraded: bool = False
    emitted: Any = None
    """The sub-graph a planner returned, while and after it runs under this step."""
    winner: str = ""
    """The key of the branch that won a race."""
    cache_key: str | None = None
    """While the step looks its output up or computes it for the cache: the entry's key."""
    source: Source | None = None
    counted: tuple[tuple[int, int, Decimal], ...] = ()
    """What is in the run's `spent_usd` for this step: (attempt, delivery, cost)."""
    queued_at_ms: float | None = None
    """Since when the present attempt waited for a worker, by the clock of the log."""
    took_ms: float | None = None
    """How long the worker had it, by the worker's clock."""
    timing: Timing | None = None
    tries: tuple[PastAttempt, ...] = ()
    """The attempts before the present one."""
    capable: bool = False
    """Whether the present attempt was dispatched with a capability: no result counts without it."""


new_step = maker(Step)


def wake_of(step: Step) -> float | None:
    """Return when something must be done about a step, if nothing happens before."""
    if step.give_up_at_ms is None or step.wake_at_ms is None:
        return step.wake_at_ms if step.give_up_at_ms is None else step.give_up_at_ms
    return min(step.wake_at_ms, step.give_up_at_ms)


@dataclass(frozen=True, slots=True)
class Scope:
    """Progress of one scope: unmet needs by node, nodes not yet done."""

    pending: Map[str, int]
    left: int


@dataclass(frozen=True, slots=True)
class ChildProgress:
    """Progress of a map, loop, race or fallback chain: `started` children, `running` ones."""

    started: int = 0
    running: int = 0


@dataclass(frozen=True, slots=True)
class Emitted:
    """A planner's sub-graph, compiled."""

    scope: ScopePlan
    by_path: dict[str, NodePlan] = field(hash=False)
    outlook: Mapping[str, Any] = field(hash=False)
    """What to expect of its nodes, up to the end of the scope."""
    policy: PlanPolicy = field(hash=False)
    begun: int = 0
    """Steps under the planner so far that do work: items, rounds and those of planners inside it too."""
    spent_usd: Decimal = Decimal(0)
    """What they spent."""


class Segment(NamedTuple):
    """A piece of a run's critical path: from where the piece before it ends, `us` microseconds were
    spent at `step` in one way (see `critical_path.py`). `folded` tells how many pieces it stands for."""

    step: str
    node: str
    attempt: int
    kind: str
    us: int
    folded: int = 1


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal that came before its step waits for it."""

    signal_id: str
    name: str
    payload: Any
    by: str


@dataclass(frozen=True, slots=True)
class Run:
    """One execution of a pipeline version. The root scope has the key ""."""

    run_id: str
    tenant: str
    pipeline: str
    version: int
    partition: int
    priority: Priority
    input: dict[str, Any]
    accepted_at_ms: float
    deadline_at_ms: float
    status: RunStatus = RunStatus.RUNNING
    output: Any = None
    error: ErrorInfo | None = None
    finished_at_ms: float | None = None
    budget_usd: Decimal | None = None
    spent_usd: Decimal = Decimal(0)
    degraded: bool = False
    idempotency_key: str | None = None
    reply_to: str | None = None
    progress: bool = False
    traceparent: str | None = None
    parent: RunParent | None = None
    origin: RunOrigin | None = None
    labels: dict[str, str] | None = None
    """Inherited by its sub-runs and calls, for chargeback."""
    probe: bool = False
    """Whether this run measures a pipeline whose runs are given up: it is not given up itself."""
    paused_at_ms: float | None = None
    """Since when the deadline stands still for a person."""
    signals: tuple[Signal, ...] = ()
    seen_signals: tuple[str, ...] = ()
    early: Map[tuple[str, int], AttemptFinished] = NONE
    """Results of attempts that this state has not dispatched yet: a log that lost its tail."""
    critical_path: tuple[Segment, ...] = ()
    """Of a run that has ended, from its acceptance on."""
    steps: Map[str, Step] = NONE
    # derived:
    scopes: Map[str, Scope] = NONE
    tallies: Map[str, ChildProgress] = NONE
    live: Map[str, None] = NONE
    wakes: Map[str, float] = NONE
    due: Heap = field(default=None, compare=False)
    """The entries (time, key) of `wakes`, earliest first, and stale ones."""
    waiting: Map[str, Heap] = field(default=NONE, compare=False)
    """By the name of a signal: the keys of the steps that wait for it, and stale ones."""
    pausing: int = 0
    """Waits for which the deadline stands still."""
    emitted: Map[str, Emitted] = NONE
    operations: int = 0
    """What its expressions have taken (`run_size.py`)."""
    reuse: Any = field(default=None, compare=False)
    """What a repeated run takes over (`reuse.Reuse`), read from the origin, which never changes."""
    armed_at_ms: float | None = None
    size_bytes: int = field(default=0, compare=False)
    """How large its values are (`run_size.py`)."""

    @property
    def ended(self) -> bool:
        return self.status is not RunStatus.RUNNING

    @property
    def depth(self) -> int:
        """Runs above this one."""
        return 0 if self.parent is None else self.parent.depth
