"""What a run is made of. Everything here is changed in place, by one event at a time.

Steps, the run's own fields, held results and unread signals are persisted (`rows.py`). Fields under
"derived" are computed from them when a run is read back (`restore.py`), and keep the work of an
event independent of the run's size.
"""

from dataclasses import dataclass
from decimal import Decimal
from math import inf
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
from hocket.coordinator.core.time.timestamps import nearest
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
from hocket.schemas.pipeline.node_parts import MAX_WAIT_MS, PlanPolicy

KEY_MARKS: Final = "/[#~!"
"""The characters that separate a step's key from the rest in the keys of the steps under it."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a step's output comes from if its own run did not compute it, and what it cost there."""

    kind: Literal["cache", "run"]
    run_id: str
    step: str
    saved_usd: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal that arrived before any step waited for it."""

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
"""How many ids of signals that a run has read are remembered, to detect repeats. Those of unread
signals always are."""
Segment = tuple[str, str, int, str, int, int]
"""A piece of a critical path: step, node, attempt, kind, microseconds, and how many pieces are
folded into it."""


class Owner:
    """A partition owned by one coordinator, as its messages name it."""

    __slots__ = ("capabilities", "epoch", "latest_head", "partition")

    def __init__(self, partition: int, epoch: int, capabilities: Capabilities | None) -> None:
        self.partition = partition
        self.epoch = epoch
        self.capabilities = capabilities
        self.latest_head: tuple[tuple[str, float, float], str] | None = None
        """Which run's step was dispatched last (its id, when it was accepted, its deadline), and how the
        messages of its steps begin (`messages.py`)."""


class PastAttempt:
    """An attempt that was followed by another: when it went out and came back, and what its worker
    reported of the time between. `is_suspended`: it ended because its handler waited."""

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
    """A scope in a run: its steps by place, how many needs of each node are unmet, and how many
    nodes are not done. `owner` is the step that holds it (None for the run itself), `home` the
    planning step that emitted its nodes (None for those of the spec)."""

    __slots__ = ("begun", "home", "is_open", "left", "owner", "pending", "plan", "prefix", "steps")

    def __init__(self, plan: Scope, owner: "Step | None", home: "Step | None") -> None:
        self.plan = plan
        self.owner = owner
        self.home = home
        self.prefix = "" if owner is None else owner.key + "/"
        self.steps: list[Step | None] = [None] * len(plan.nodes)
        self.pending: list[int] = plan.pending[:]
        self.left = len(plan.nodes)
        self.is_open = True
        self.begun: dict[int, int] | None = None
        """Of nodes whose prompts are announced: how many of their needs, in order, are known to have
        begun (`prompts.py`)."""


class Children:
    """The items of a map, the rounds of a loop, the branches of a race or the calls of a handler:
    how many were started, how many are running (not kept for calls), and their steps in order; for
    an agent's rounds, also what they spent, tools included; for a map's items, how many tell what an
    item charges, and what those charged (`containers/item_prices.py`)."""

    __slots__ = ("charged_usd", "priced", "running", "spent_usd", "started", "steps")

    def __init__(self, started: int, running: int) -> None:
        self.started = started
        self.running = running
        self.spent_usd = Decimal(0)
        self.charged_usd = Decimal(0)
        self.priced: int | None = None
        """None until it is counted."""
        self.steps: list[Step] = []


class Emitted:
    """A planner's compiled sub-graph, with how many working steps under the planner have begun, and
    what they spent."""

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
    """Base of objects with rare fields: those are stored in `__dict__`, which is created when one
    is set."""

    __slots__ = ()

    def set_seldom(self, **fields: Any) -> None:
        """Set such fields, as far as their values have changed."""
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

    # rare fields: they take memory only in steps that set one, because `__dict__` is created then
    home: "Step | None" = None
    """The planning step that emitted its node."""
    error: ErrorInfo | None = None
    wake_at_ms: float | None = None
    give_up_at_ms: float | None = None
    """When the run can no longer wait for this node (`on_infeasible`)."""
    degraded: bool = False
    emitted: Emitted | None = None
    winner: str = ""
    """The key of the branch that won a race."""
    cache_key: str | None = None
    """The cache entry's key, while the step looks its output up or computes it for the cache."""
    source: Source | None = None
    """Where its output comes from, if its own run did not compute it."""
    counted: tuple[tuple[int, int, Decimal], ...] = ()
    """What the run's spending contains for this step: (attempt, delivery, cost). The earliest of many
    are one entry."""
    charged_usd: Decimal = NOTHING_SPENT
    """The part of that which was not spent on model calls."""
    timing: Timing | None = None
    tries: tuple[PastAttempt, ...] = ()
    suspensions: int = 0
    """How often its handler was suspended: that many of its attempts are not retries."""
    untried: int = 0
    """How many attempts a worker gave back without running them, or had another input from a lost
    part of the log: that many more are not retries."""
    waits: tuple[HandlerWait, ...] = ()
    """What its handler waits for, or waited for when it was suspended last."""
    ended: tuple[WaitEnded, ...] = ()
    """The outcomes of those waits; kept until the step's journal has them."""
    # derived:
    scope: ScopeProgress | None = None
    children: Children | None = None
    fallbacks: "list[Step] | None" = None
    """The fallbacks that were begun in its place, in order, including the fast variant."""
    due_at_ms: float | None = None
    """When it wants to be woken, as entered in the run's `due`."""
    is_repeated: bool = False
    """Whether this owner handed out again an attempt that was already in flight."""
    is_pausing: bool = False
    """Whether it is one of the waits that pause the deadline."""

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
        """Return what is kept of the present attempt when another one follows."""
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
        """Drop what the step's row, which has been made, holds and nobody reads again
        (`KEPT_COLUMNS` of an ended step with nothing under it), and values that can be parsed from
        their texts."""
        self.output.forget_value()
        if self.role == LEAF and self.fallbacks is None and self.state in TERMINAL:
            self.input = self.input.left_to_row()
            self.deadline_at_ms = self.slack_ms = None
        else:
            self.input.forget_value()


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

    # rare fields: they take memory only in runs that set one
    degraded: bool = False
    traceparent: str | None = None
    parent: RunParent | None = None
    origin: RunOrigin | None = None
    labels: dict[str, str] | None = None
    """Inherited by its sub-runs and calls, for chargeback."""
    probe: bool = False
    """Whether it measures a pipeline whose runs are given up: a probe is not given up itself."""
    paused_at_ms: float | None = None
    """Since when the deadline has been paused for a person (epoch ms)."""
    signals: tuple[Signal, ...] = ()
    """Signals that arrived before any step waited for them."""
    seen_signals: tuple[str, ...] = ()
    """Ids of the signals that were read last."""
    early: dict[tuple[str, int], AttemptFinished] | None = None
    """Results of attempts that were not dispatched yet, because the log lost its tail."""
    charges: dict[str, Decimal] | None = None
    """The costs of calls that no step of this run reports (`charges.py`), by source; the one heard
    from longest ago first."""
    untold: dict[str, Decimal] | None = None
    """Likewise of calls whose costs are in `spent_usd` although no step reports them."""
    # derived:
    due: list[tuple[float, str]] | None = None
    """A heap of when steps want to be woken, with stale entries (see `Step.due_at_ms`)."""
    waiting: dict[str, list[str]] | None = None
    """For each signal name, a heap of the keys of steps that wait for it, with stale entries."""
    pausing: int = 0
    """How many waits pause the deadline."""
    reuse: Any = None
    """What it takes over from the run that it repeats (`reuse.Reuse`)."""
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
        """The operations that its expressions have taken."""
        self.critical_path: tuple[Segment, ...] = ()
        # derived:
        self.steps: dict[str, Step] = {}
        self.scope: ScopeProgress | None = None
        self.armed_at_ms: float | None = None
        self.revision = 0
        """How often it was changed since it has been in memory."""
        self.size_bytes = 0
        self.counted_bytes: int | None = None
        """The bytes of its values, and below of the events that it was made of, that are counted
        for the runs in memory."""
        self.events_bytes = 0

    @property
    def has_ended(self) -> bool:
        """Whether it is over: only what it has spent may still grow."""
        return self.status != RUNNING

    @property
    def outside_usd(self) -> Decimal:
        """The cost of calls that no step reports."""
        return NOTHING_SPENT if self.charges is None else sum(self.charges.values(), NOTHING_SPENT)

    @property
    def cost_usd(self) -> Decimal:
        """All that was spent: what steps report (`spent_usd`), and what they do not."""
        return self.spent_usd if self.charges is None else self.spent_usd + self.outside_usd

    @property
    def depth(self) -> int:
        """The number of runs above this one."""
        return 0 if self.parent is None else self.parent.depth

    @property
    def latest_deadline_at_ms(self) -> float:
        """The latest that the deadline can be after the wait that pauses it."""
        at_ms = self.deadline_at_ms
        if self.paused_at_ms is None:
            return at_ms
        return min(at_ms + MAX_WAIT_MS, self._times_out_at_ms)

    @property
    def expires_at_ms(self) -> float:
        """When the run expires unless the wait that pauses its deadline is over before (epoch ms)."""
        return self.deadline_at_ms if self.paused_at_ms is None else self._times_out_at_ms

    @property
    def _times_out_at_ms(self) -> float:
        """When the `timeout_ms` of the step above is over, which no wait pauses (epoch ms)."""
        at_ms = None if self.parent is None else self.parent.times_out_at_ms
        return inf if at_ms is None else at_ms

    def deadline_seen_at_ms(self, now_ms: float) -> float:
        """Return the deadline; while it is paused, what it would be if the wait were over now."""
        if self.paused_at_ms is None:
            return self.deadline_at_ms
        at_ms = nearest(self.deadline_at_ms + (now_ms - self.paused_at_ms))
        return min(at_ms, self._times_out_at_ms)

    def live(self) -> "list[Step]":
        """Return the steps that have not ended, by key."""
        found = [step for step in self.steps.values() if step.state not in TERMINAL]
        return sorted(found, key=lambda step: step.key)

    def is_live(self, step: Step) -> bool:
        """Tell whether a step belongs to the run and has not ended."""
        return step.state not in TERMINAL and step.key in self.steps

    def wanted_due(self) -> list[tuple[float, str]]:
        """Return the heap of wake-up times, creating it if needed."""
        if self.due is None:
            self.due = []
        return self.due

    def remember(self, signal_id: str) -> None:
        """Remember the id of a signal that is being read, to detect repeats."""
        self.seen_signals = (*self.seen_signals, signal_id)[-MAX_READ_IDS:]

    def waiting_for(self, name: str) -> list[str]:
        """Return the heap of the steps that wait for a signal, creating it if needed."""
        if self.waiting is None:
            self.waiting = {}
        return self.waiting.setdefault(name, [])

    def untie(self) -> None:
        """Cut the references between its steps and scopes, so that it is freed as soon as the last
        reference to it is dropped. Nothing can be applied to it any more, but its rows can still be
        made."""
        for step in self.steps.values():
            step.within.steps = []
            step.set_seldom(scope=None, children=None, fallbacks=None)
        self.scope = None


def takes_part(container: Step, child: Step) -> bool:
    """Tell whether a container still waits for an item, round, branch or fallback of it. Once it has
    failed, an open one waits for its fallbacks only: an item that ends in the same event, or was
    about to begin, is too late."""
    if container.state != OPEN:
        return False
    return container.error is None or child.link == FALLBACK


def signals_awaited(step: Step) -> tuple[str, ...]:
    """Return the names of the signals that a waiting step waits for."""
    if step.role != LEAF:
        return answers_to(step.node, step.key)
    return tuple(wait.signal for wait in step.waits if wait.signal is not None)


def calls_awaited(step: Step) -> tuple[str, ...]:
    """Return the keys of the steps that a suspended step's handler called and waits for."""
    return tuple(call_key(step, wait.call) for wait in step.waits if wait.call is not None)


def call_key(step: Step, call: NodeCall) -> str:
    """Return the key of the step that executes a call."""
    return f"{step.key}/{call.name}-{call.number}"


def is_suspended(step: Step) -> bool:
    """Tell whether a step waits on behalf of its handler; a step in backoff after a failure has an
    error."""
    if step.role != LEAF or not step.waits:
        return False
    return step.state == WAITING or (step.state == BACKOFF and step.error is None)


def waits_until_ms(step: Step) -> float | None:
    """Return until when a waiting step waits (epoch ms); None if it has no time limit."""
    if step.role != LEAF:
        return step.wake_at_ms
    return min((one.until_ms for one in step.waits if one.until_ms is not None), default=None)
