"""What a run is made of. Everything here is changed in place, by one event at a time.

Steps, the run's own fields, held results and unread signals are persisted (`rows.py`). What stands
under "derived" is worked out of them when a run is read back (`restore.py`), and keeps an event's
work independent of the run's size.
"""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Literal

from hocket.coordinator.core.run.plan.nodes import (
    LEAF,
    CompiledPlan,
    Node,
    PipelinePlan,
    Scope,
    answers_to,
)
from hocket.coordinator.core.run.plan.step_deadlines import PlanForecast
from hocket.coordinator.core.run.state.values import NULL, Json
from hocket.schemas.capabilities import Capabilities
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.messages import (
    AttemptFinished,
    HandlerWait,
    NodeCall,
    Priority,
    RunOrigin,
    RunParent,
    Timing,
    WaitEnded,
)
from hocket.schemas.pipeline.node_parts import PlanPolicy


@dataclass(frozen=True, slots=True)
class Source:
    """Where the output of a step comes from that was not computed by its own run, and what it cost
    there."""

    kind: Literal["cache", "run"]
    run_id: str
    step: str
    saved_usd: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal that came before its step waits for it."""

    signal_id: str
    name: str
    payload: Any
    by: str


# ---- states of a run ------------------------------------------------------------------------

RUNNING: Final = "running"
RUN_SUCCEEDED: Final = "succeeded"
RUN_DEGRADED: Final = "degraded"
RUN_FAILED: Final = "failed"
RUN_CANCELLED: Final = "cancelled"
RUN_EXPIRED: Final = "expired"
RUN_REJECTED: Final = "rejected"

# ---- states of a step -----------------------------------------------------------------------

LOOKING_UP: Final = "looking_up"
DISPATCHED: Final = "dispatched"
BACKOFF: Final = "backoff"
OPEN: Final = "open"
WAITING: Final = "waiting"
SUCCEEDED: Final = "succeeded"
FAILED: Final = "failed"
SKIPPED: Final = "skipped"
CANCELLED: Final = "cancelled"
TERMINAL: Final = frozenset({SUCCEEDED, FAILED, SKIPPED, CANCELLED})

# ---- what a step is to its parent -----------------------------------------------------------

NODE: Final = "node"
ITEM: Final = "item"
ROUND: Final = "round"
BRANCH: Final = "branch"
FALLBACK: Final = "fallback"
CALL: Final = "call"

NOTHING_SPENT: Final = Decimal(0)
MAX_READ_IDS = 1_000
"""Ids of signals that a run read last, known as repeats. Those of unread ones always are."""
Segment = tuple[str, str, int, str, int, int]
"""A piece of a critical path: step, node, attempt, kind, microseconds, how many pieces it stands
for."""


class Owner:
    """A partition in the hands of one coordinator: what its messages say of it."""

    __slots__ = ("capabilities", "epoch", "partition")

    def __init__(self, partition: int, epoch: int, capabilities: Capabilities | None) -> None:
        self.partition = partition
        self.epoch = epoch
        self.capabilities = capabilities


class PastAttempt:
    """An attempt that another one followed: when it went out and came back, and what its worker said of
    the time between. `is_suspended`: its handler waited then."""

    __slots__ = (
        "dispatched_at_ms",
        "finished_at_ms",
        "is_suspended",
        "queued_at_ms",
        "started_at_ms",
        "timing",
        "took_ms",
    )

    def __init__(
        self,
        dispatched_at_ms: float,
        finished_at_ms: float,
        queued_at_ms: float | None,
        started_at_ms: float | None,
        took_ms: float | None,
        timing: Timing | None,
        *,
        is_suspended: bool = False,
    ) -> None:
        self.dispatched_at_ms = dispatched_at_ms
        self.finished_at_ms = finished_at_ms
        self.is_suspended = is_suspended
        self.queued_at_ms = queued_at_ms
        self.started_at_ms = started_at_ms
        self.took_ms = took_ms
        self.timing = timing


class ScopeProgress:
    """A scope in a run: its steps by place, how many needs of each node are unmet, how many nodes
    are not done. `owner` is the step that holds it (None for the run itself), `home` the planning
    step whose nodes these are (None for the spec's)."""

    __slots__ = ("home", "is_open", "left", "owner", "pending", "plan", "prefix", "steps", "view")

    def __init__(self, plan: Scope, owner: "Step | None", home: "Step | None") -> None:
        self.plan = plan
        self.owner = owner
        self.home = home
        self.prefix = "" if owner is None else owner.key + "/"
        self.steps: list[Step | None] = [None] * len(plan.nodes)
        self.pending: list[int] = plan.pending[:]
        self.left = len(plan.nodes)
        self.is_open = True
        self.view: Any = None
        """What expressions see as `nodes` (`names.py`)."""


class Children:
    """The items of a map, the rounds of a loop, the branches of a race or the calls of a handler: how
    many were started, how many run (but of calls), and their steps in that order; what an agent's
    rounds spent, tools included."""

    __slots__ = ("running", "spent_usd", "started", "steps")

    def __init__(self, started: int, running: int) -> None:
        self.started = started
        self.running = running
        self.spent_usd = Decimal(0)
        self.steps: list[Step] = []


class Emitted:
    """A planner's sub-graph, compiled; how many steps under the planner do work, and what they
    spent."""

    __slots__ = ("begun", "forecast", "plan", "policy", "spent_usd", "value")

    def __init__(
        self, value: Json, plan: CompiledPlan, forecast: PlanForecast, policy: PlanPolicy
    ) -> None:
        self.value = value
        self.plan = plan
        self.forecast = forecast
        self.policy = policy
        self.begun = 0
        self.spent_usd = Decimal(0)


class Seldom:
    """What has fields that few have: they stand in its `__dict__`, which is made when one is set."""

    __slots__ = ()

    def set_seldom(self, **fields: Any) -> None:
        """Set such fields, as far as it is news."""
        for name, value in fields.items():
            if getattr(self, name) != value:
                setattr(self, name, value)


class Step(Seldom):
    """A node inside a run. `key` is its path in the run: `research[3]/read`, `refine#2`,
    `answer~fast`, `answer!1`. `index` is the number of an item, a round (from 1) or a fallback (the
    fast variant has 0). Times are the log's (epoch ms), except `started_at_ms` and `took_ms` (the
    worker's)."""

    __slots__ = (
        "__dict__",
        "attempt",
        "capable",
        "deadline_at_ms",
        "dispatched_at_ms",
        "finished_at_ms",
        "index",
        "input",
        "is_changed",
        "key",
        "link",
        "node",
        "output",
        "parent",
        "queued_at_ms",
        "ready_at_ms",
        "role",
        "size_bytes",
        "slack_ms",
        "started_at_ms",
        "state",
        "took_ms",
        "within",
        "worker",
    )

    # what few steps have: it takes memory where it is set, so that a step's `__dict__` is made then
    home: "Step | None" = None
    """The planning step that emitted its node."""
    error: ErrorInfo | None = None
    wake_at_ms: float | None = None
    give_up_at_ms: float | None = None
    """When the run can wait for this node no longer (`on_infeasible`)."""
    degraded: bool = False
    emitted: Emitted | None = None
    winner: str = ""
    """The key of the branch that won a race."""
    cache_key: str | None = None
    """While the step looks its output up or computes it for the cache: the entry's key."""
    source: Source | None = None
    """Where its output comes from, if its own run did not compute it."""
    counted: tuple[tuple[int, int, Decimal], ...] = ()
    """What is in the run's `spent_usd` for this step: (attempt, delivery, cost)."""
    charged_usd: Decimal = NOTHING_SPENT
    """What of that is of no model's call."""
    timing: Timing | None = None
    tries: tuple[PastAttempt, ...] = ()
    suspensions: int = 0
    """How often its handler was suspended: so many of its attempts are no retries."""
    waits: tuple[HandlerWait, ...] = ()
    """What its handler waits for, or waited for when it was suspended last."""
    ended: tuple[WaitEnded, ...] = ()
    """What came of it; kept until the step's journal has it."""
    # derived:
    scope: ScopeProgress | None = None
    children: Children | None = None
    fallbacks: "list[Step] | None" = None
    """Those that were begun in its place, in their order; the fast variant is one."""
    due_at_ms: float | None = None
    """When it wants to be woken, as it stands in the run's `due`."""
    is_repeated: bool = False
    """Whether this owner handed out again an attempt that it found under way."""
    is_pausing: bool = False
    """Whether it is one of the waits for which the deadline stands still."""

    def __init__(
        self,
        key: str,
        node: Node,
        role: str,
        link: str,
        parent: "Step | None",
        within: ScopeProgress,
        index: int,
        ready_at_ms: float,
    ) -> None:
        self.key = key
        self.node = node
        self.role = role
        self.link = link
        self.parent = parent
        self.within = within
        """The scope whose names its expressions see."""
        if within.home is not None:
            self.home = within.home
        self.index = index
        self.ready_at_ms = ready_at_ms
        self.state: str = OPEN
        self.attempt = 0
        self.input: Json = NULL
        self.output: Json = NULL
        self.dispatched_at_ms: float | None = None
        self.started_at_ms: float | None = None
        self.finished_at_ms: float | None = None
        self.deadline_at_ms: float | None = None
        self.slack_ms: float | None = None
        self.worker = ""
        self.queued_at_ms: float | None = None
        self.took_ms: float | None = None
        self.capable = False
        """Whether the present attempt was dispatched with a capability."""
        # derived:
        self.size_bytes = 0
        self.is_changed = False
        """Whether its row must be written."""

    def past(self, finished_at_ms: float, *, is_suspended: bool = False) -> PastAttempt:
        """Return what is kept of the present attempt, which another one follows."""
        assert self.dispatched_at_ms is not None, self.key
        return PastAttempt(
            self.dispatched_at_ms,
            finished_at_ms,
            self.queued_at_ms,
            self.started_at_ms,
            self.took_ms,
            self.timing,
            is_suspended=is_suspended,
        )

    def let_go(self) -> None:
        """Drop what its row has, now that it is made, and nobody reads again (`KEPT_COLUMNS` of an ended
        step that has nothing under it), and values that can be read from their texts."""
        self.output.forget_value()
        if self.role == LEAF and self.fallbacks is None and self.state in TERMINAL:
            self.input = self.input.left_to_row()
            self.deadline_at_ms = self.slack_ms = None


class Run(Seldom):
    """One execution of a pipeline version."""

    __slots__ = (
        "__dict__",
        "accepted_at_ms",
        "armed_at_ms",
        "budget_usd",
        "counted_bytes",
        "critical_path",
        "deadline_at_ms",
        "error",
        "events_bytes",
        "finished_at_ms",
        "idempotency_key",
        "input",
        "message_head",
        "operations",
        "output",
        "owner",
        "pipeline",
        "plan",
        "priority",
        "progress",
        "reply_to",
        "revision",
        "run_id",
        "scope",
        "size_bytes",
        "spent_usd",
        "status",
        "steps",
        "tenant",
        "version",
    )

    # what few runs have: it takes memory where it is set
    degraded: bool = False
    traceparent: str | None = None
    parent: RunParent | None = None
    origin: RunOrigin | None = None
    labels: dict[str, str] | None = None
    """Inherited by its sub-runs and calls, for chargeback."""
    probe: bool = False
    """Whether it measures a pipeline whose runs are given up: it is not given up itself."""
    paused_at_ms: float | None = None
    """Since when the deadline stands still for a person."""
    signals: tuple[Signal, ...] = ()
    """Those that came before a step waits for them."""
    seen_signals: tuple[str, ...] = ()
    """Ids of those that were read last."""
    early: dict[tuple[str, int], AttemptFinished] | None = None
    """Results of attempts that were not dispatched yet: a log that lost its tail."""
    charges: dict[str, Decimal] | None = None
    """What calls cost of which no step of this run tells (`charges.py`), by source; that of the longest
    known source first."""
    # derived:
    due: list[tuple[float, str]] | None = None
    """A heap of when steps want to be woken, with stale entries (see `Step.due_at_ms`)."""
    waiting: dict[str, list[str]] | None = None
    """By the name of a signal: a heap of the keys of steps that wait for it, and stale ones."""
    pausing: int = 0
    """Waits for which the deadline stands still."""
    reuse: Any = None
    """What a repeated run takes over (`reuse.Reuse`)."""
    names: dict[str, Any] | None = None
    """What expressions see as `run` (`names.py`)."""

    def __init__(
        self,
        owner: Owner,
        plan: PipelinePlan | None,
        *,
        run_id: str,
        tenant: str,
        pipeline: str,
        version: int,
        priority: Priority,
        given: Json,
        accepted_at_ms: float,
        deadline_at_ms: float,
    ) -> None:
        self.owner = owner
        self.plan = plan
        """None only for a run that never began, or that ended before it was read."""
        self.run_id = run_id
        self.tenant = tenant
        self.pipeline = pipeline
        self.version = version
        self.priority = priority
        self.input = given
        self.accepted_at_ms = accepted_at_ms
        self.deadline_at_ms = deadline_at_ms
        self.status: str = RUNNING
        self.output: Json = NULL
        self.error: ErrorInfo | None = None
        self.finished_at_ms: float | None = None
        self.budget_usd: Decimal | None = None
        self.spent_usd = NOTHING_SPENT
        self.idempotency_key: str | None = None
        self.reply_to: str | None = None
        self.progress = False
        self.operations = 0
        """What its expressions have taken."""
        self.critical_path: tuple[Segment, ...] = ()
        # derived:
        self.steps: dict[str, Step] = {}
        self.scope: ScopeProgress | None = None
        self.armed_at_ms: float | None = None
        self.revision = 0
        """How often something was done to it since it is in memory."""
        self.message_head: tuple[float, str] | None = None
        """How the messages of its steps begin while it has this deadline (`messages.py`)."""
        self.size_bytes = 0
        self.counted_bytes: int | None = None
        """What its values count among the runs in memory, and the events that it was made of."""
        self.events_bytes = 0

    @property
    def has_ended(self) -> bool:
        """Whether nothing happens to it any more."""
        return self.status != RUNNING

    @property
    def outside_usd(self) -> Decimal:
        """What calls cost of which no step tells."""
        return NOTHING_SPENT if self.charges is None else sum(self.charges.values(), NOTHING_SPENT)

    @property
    def cost_usd(self) -> Decimal:
        """What was spent in all: what steps tell (`spent_usd`), and what they do not."""
        return self.spent_usd if self.charges is None else self.spent_usd + self.outside_usd

    @property
    def depth(self) -> int:
        """Runs above this one."""
        return 0 if self.parent is None else self.parent.depth

    def live(self) -> "list[Step]":
        """Return the steps that have not ended, by key."""
        found = [step for step in self.steps.values() if step.state not in TERMINAL]
        return sorted(found, key=lambda step: step.key)

    def is_live(self, step: Step) -> bool:
        """Tell whether a step was taken into the run, and has not ended."""
        return step.state not in TERMINAL and step.key in self.steps

    def wanted_due(self) -> list[tuple[float, str]]:
        """Return the heap of when steps want to be woken, to add to it."""
        if self.due is None:
            self.due = []
        return self.due

    def remember(self, signal_id: str) -> None:
        """Know a signal as a repeat, that is read now."""
        self.seen_signals = (*self.seen_signals, signal_id)[-MAX_READ_IDS:]

    def waiting_for(self, name: str) -> list[str]:
        """Return the heap of the steps that wait for a signal, to add to it."""
        if self.waiting is None:
            self.waiting = {}
        return self.waiting.setdefault(name, [])

    def untie(self) -> None:
        """Cut what its steps and scopes know of each other, so that whoever drops it last frees it
        at once: nothing can be done to it any more. Its rows can be made still."""
        for step in self.steps.values():
            step.within.steps = []
            step.within.view = None
            step.set_seldom(scope=None, children=None, fallbacks=None)
        self.scope = None


def signals_awaited(step: Step) -> tuple[str, ...]:
    """Return the names of the signals that a waiting step waits for."""
    if step.role != LEAF:
        return answers_to(step.node, step.key)
    return tuple(wait.signal for wait in step.waits if wait.signal is not None)


def calls_awaited(step: Step) -> tuple[str, ...]:
    """Return the keys of the steps that a suspended step's handler called and waits for."""
    return tuple(call_key(step, wait.call) for wait in step.waits if wait.call is not None)


def call_key(step: Step, call: NodeCall) -> str:
    """Return the key of the step that carries a call out."""
    return f"{step.key}/{call.name}-{call.number}"


def is_suspended(step: Step) -> bool:
    """Tell whether a step waits for what its handler waits for; after a failure it has an error."""
    if step.role != LEAF or not step.waits:
        return False
    return step.state == WAITING or (step.state == BACKOFF and step.error is None)


def waits_until_ms(step: Step) -> float | None:
    """Return until when a waiting step waits, None where no such moment was said."""
    if step.role != LEAF:
        return step.wake_at_ms
    return min((one.until_ms for one in step.waits if one.until_ms is not None), default=None)
