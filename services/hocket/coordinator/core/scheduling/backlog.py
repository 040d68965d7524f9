"""How much work is ahead of a task, by node type: what the runs in flight still have to do.

When a run is admitted, it promises the expected work of the steps that its plan surely has; a step
that cannot be seen in the plan (an item, a round, an emitted node) is added when it is dispatched.
Finished work is subtracted, and the rest when the run ends. A task waits behind its own tenant's
work of higher classes, and in its own class behind that of runs whose deadline is not later, but
behind no more than fair shares among tenants put before it. Other tenants' work of higher classes
delays it as long as its class waits for its turns: a fixed number of their steps for each of its
own, each as long as steps of the type have really taken (`priority_queue.py` hands out slots in
this order).

Expected and real durations differ; their ratio is measured per type and tenant (`_Bias`), so that
one tenant's estimates do not make others wait, and nothing is predicted before enough steps have
finished.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from hocket.coordinator.core.scheduling.capacity_demand import WorkLeft
from hocket.coordinator.core.scheduling.priority_queue import CLASSES, TURN_AFTER
from hocket.coordinator.core.scheduling.type_queue import Capacity
from hocket.coordinator.core.time.duration_estimates import DurationForecast, skippable
from hocket.schemas.messages import Priority
from hocket.schemas.pipeline.plan import NodePlan, Plan, ScopePlan
from hocket.schemas.pipeline.spec import pool_of, runs_in_worker

GRAIN_SHARE = 0.02
"""Deadlines within this share of the time left count as the same ..."""
MIN_GRAIN_S = 1
"""... or within this many seconds, so that there are never more than a few hundred deadlines to add
up."""
ENOUGH_FINISHED = 20
"""How many steps of a type must have finished before its work is predicted."""
BIAS_MEMORY = 0.98
ELAPSED_SHARE = 0.5
"""Steps that are out have used up half of their time on average."""
LEAST_MS = 1e-6
NO_WORK = (0.0, 0)
MAX_BIASES = 1_000
"""How many tenants of a type have their ratio remembered."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a plan surely has to do: expected work (ms) by node type, and the keys of the steps
    counted."""

    by_type: Mapping[str, float]
    keys: frozenset[str]


@dataclass(slots=True)
class _Promise:
    partition: int
    priority: Priority
    tenant: str
    grain: int
    keys: frozenset[str]
    left: dict[str, float]


@dataclass(slots=True)
class _Class:
    """The work of one class on one node type."""

    work_ms: float = 0.0
    runs: int = 0
    by_grain: dict[int, list[float]] = field(default_factory=dict)
    """Work and number of runs, by deadline."""
    by_tenant: dict[str, list[float]] = field(default_factory=dict)

    def add(self, promise: _Promise, work_ms: float, runs: int) -> None:
        self.work_ms += work_ms
        if not runs:  # that of the promise is counted already
            self.by_grain[promise.grain][0] += work_ms
            self.by_tenant[promise.tenant][0] += work_ms
            return
        self.runs += runs
        if not self.runs:
            self.work_ms = 0.0
        _count(self.by_grain, promise.grain, work_ms, runs)
        _count(self.by_tenant, promise.tenant, work_ms, runs)

    def until(self, second: int) -> tuple[float, float]:
        """Return the work and the number of runs with deadlines up to this second."""
        work_ms = runs = 0.0
        for deadline, (more_ms, more) in self.by_grain.items():
            if deadline <= second:
                work_ms += more_ms
                runs += more
        return work_ms, runs


@dataclass(slots=True)
class _Bias:
    """How long a tenant's steps took, compared with what was expected of them."""

    finished: int = 0
    expected_ms: float = 0.0
    ran_ms: float = 0.0

    def learn(self, expected_ms: float, ran_ms: float) -> None:
        self.finished += 1
        self.expected_ms += (1 - BIAS_MEMORY) * (expected_ms - self.expected_ms)
        self.ran_ms += (1 - BIAS_MEMORY) * (ran_ms - self.ran_ms)

    @property
    def ratio(self) -> float:
        return self.ran_ms / self.expected_ms if self.finished >= ENOUGH_FINISHED else 1.0


@dataclass(slots=True)
class _Type:
    classes: dict[Priority, _Class] = field(
        default_factory=lambda: {priority: _Class() for priority in CLASSES}
    )
    finished: int = 0
    ran_ms: float = 0.0
    """How long a step takes on average."""
    biases: OrderedDict[str, _Bias] = field(default_factory=OrderedDict)
    """By tenant; the one whose last step finished longest ago is forgotten first."""
    of_all: _Bias = field(default_factory=_Bias)

    def learn(self, tenant: str, expected_ms: float, ran_ms: float) -> None:
        self.finished += 1
        self.ran_ms += max(1 - BIAS_MEMORY, 1 / self.finished) * (ran_ms - self.ran_ms)
        self.of_all.learn(expected_ms, ran_ms)
        bias = self.biases.get(tenant)
        if bias is not None:
            if len(self.biases) > 1:
                self.biases.move_to_end(tenant)
        else:
            bias = self.biases[tenant] = _Bias()
            if len(self.biases) > MAX_BIASES:
                self.biases.popitem(last=False)
        bias.learn(expected_ms, ran_ms)

    def bias(self, tenant: str) -> float:
        known = self.biases.get(tenant)
        return 1.0 if known is None else known.ratio


class Backlog:
    """The work that accepted runs still have before them, by node type and class. `weights` are
    those of tenants; a tenant without one has 1."""

    def __init__(self, weights: Mapping[str, float] | None = None) -> None:
        self._weights = dict(weights or {})
        self._promises: dict[str, _Promise] = {}
        self._types: dict[str, _Type] = {}

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._promises

    def promise(
        self,
        run_id: str,
        *,
        partition: int,
        priority: Priority,
        tenant: str,
        deadline_at_ms: float,
        work: Work,
        now_ms: float,
    ) -> None:
        """Count what an admitted run will do; a run that has already promised is left as it is."""
        if run_id in self._promises:
            return
        grain = _grain(deadline_at_ms, now_ms)
        promise = _Promise(partition, priority, tenant, grain, work.keys, {})
        self._promises[run_id] = promise
        for node_type, work_ms in work.by_type.items():
            self._add(promise, node_type, work_ms)

    def dispatched(self, run_id: str, key: str, node_type: str, expected_ms: float) -> bool:
        """Count a step that could not be seen in its run's plan; tell whether it was such a step."""
        promise = self._promises.get(run_id)
        if promise is None or key in promise.keys:
            return False
        self._add(promise, node_type, expected_ms)
        return True

    def finished(
        self, run_id: str, node_type: str, expected_ms: float, ran_ms: float, *, tenant: str
    ) -> None:
        """Subtract a step, and learn from how long it ran (ms; 0: it did not run)."""
        promise = self._promises.get(run_id)
        if promise is not None:
            self._take(promise, node_type, expected_ms)
        if ran_ms > 0 and expected_ms > 0:
            self._type(node_type).learn(tenant, expected_ms, ran_ms)

    def forget(self, run_id: str) -> None:
        """Subtract everything left of a run that has ended."""
        promise = self._promises.pop(run_id, None)
        if promise is not None:
            for node_type, work_ms in list(promise.left.items()):
                self._take(promise, node_type, work_ms)

    def forget_partition(self, partition: int) -> None:
        """Subtract everything left of a partition's runs: it has another owner."""
        for run_id in [r for r, p in self._promises.items() if p.partition == partition]:
            self.forget(run_id)

    def clear_ms(
        self,
        node_type: str,
        *,
        priority: Priority,
        tenant: str,
        deadline_at_ms: float,
        capacity: Capacity,
    ) -> float:
        """Return how long (ms) it takes until the work ahead of such a task is done; 0 if there are
        slots to spare, or nothing is known of the type."""
        kind = self._types.get(node_type)
        if kind is None or capacity.slots <= 0 or kind.finished < ENOUGH_FINISHED:
            return 0.0
        higher = [kind.classes[one] for one in CLASSES[: CLASSES.index(priority)]]
        runs = sum(one.runs for one in higher)
        own = kind.classes[priority]
        if runs + own.runs < capacity.slots:
            return 0.0
        ahead_ms, ahead = own.until(int(deadline_at_ms // 1_000))
        if runs + ahead < capacity.slots:
            return 0.0
        mine_ms = sum(one.by_tenant.get(tenant, NO_WORK)[0] for one in higher)
        mine_ms += min(ahead_ms, self._fair(own, tenant, 0))
        work_ms = mine_ms * kind.bias(tenant)
        if runs:
            turns = TURN_AFTER[priority] * (1 + min(ahead, self._fair(own, tenant, 1)))
            work_ms += min(_of_others(kind, higher, tenant), turns * kind.ran_ms)
        work_ms -= ELAPSED_SHARE * min(capacity.out_ms, work_ms)
        return max(0.0, work_ms) / capacity.slots

    def runs_with(self, node_type: str) -> int:
        """Return how many runs still have work of a type."""
        kind = self._types.get(node_type)
        return 0 if kind is None else sum(of.runs for of in kind.classes.values())

    def left(self, node_type: str) -> WorkLeft:
        """Return the expected work of a type that is left, by deadline."""
        due_ms: dict[int, float] = {}
        kind = self._types.get(node_type)
        if kind is None:
            return WorkLeft(due_ms)
        for of in kind.classes.values():
            for second, (work_ms, _) in of.by_grain.items():
                due_ms[second] = due_ms.get(second, 0.0) + work_ms
        return WorkLeft(due_ms, kind.of_all.ratio)

    def _fair(self, own: _Class, tenant: str, which: int) -> float:
        """Return what fair shares put before a tenant, as work (0) or runs (1): its own, and as
        much of the others' as may be done in the same time."""
        mine = self._weights.get(tenant, 1.0)
        others = sum(self._weights.get(name, 1.0) for name in own.by_tenant if name != tenant)
        return own.by_tenant.get(tenant, NO_WORK)[which] * (mine + others) / mine

    def _type(self, node_type: str) -> _Type:
        kind = self._types.get(node_type)
        if kind is None:
            kind = self._types[node_type] = _Type()
        return kind

    def _add(self, promise: _Promise, node_type: str, work_ms: float) -> None:
        if work_ms <= LEAST_MS:
            return
        before = promise.left.get(node_type)
        promise.left[node_type] = work_ms + (before or 0.0)
        of = self._type(node_type).classes[promise.priority]
        of.add(promise, work_ms, 1 if before is None else 0)

    def _take(self, promise: _Promise, node_type: str, work_ms: float) -> None:
        left = promise.left.get(node_type)
        if left is None:
            return
        of = self._types[node_type].classes[promise.priority]
        if work_ms >= left - LEAST_MS:
            del promise.left[node_type]
            of.add(promise, -left, -1)
            self._forget_unserved(node_type)
        else:
            promise.left[node_type] = left - work_ms
            of.add(promise, -work_ms, 0)

    def _forget_unserved(self, node_type: str) -> None:
        """Forget a type of which nothing is left and nothing ever ran: anyone can make up its name."""
        kind = self._types[node_type]
        if not kind.finished and not any(of.runs for of in kind.classes.values()):
            del self._types[node_type]


def _of_others(kind: _Type, classes: list[_Class], tenant: str) -> float:
    """Return the work of all other tenants in these classes, corrected by their ratios."""
    return sum(
        work_ms * kind.bias(name)
        for one in classes
        for name, (work_ms, _) in one.by_tenant.items()
        if name != tenant
    )


def work_of(plan: Plan, outlook: DurationForecast) -> Work:
    """Return what a plan surely has to do."""
    by_type: dict[str, float] = {}
    keys: set[str] = set()
    _collect(plan.root, outlook, by_type, keys)
    return Work(by_type, frozenset(keys))


def _collect(
    scope: ScopePlan, outlook: DurationForecast, by_type: dict[str, float], keys: set[str]
) -> None:
    left_out = skippable(scope)
    for name in scope.order:
        if name not in left_out:
            _collect_node(scope.nodes[name], outlook, by_type, keys)


def _collect_node(
    node: NodePlan, outlook: DurationForecast, by_type: dict[str, float], keys: set[str]
) -> None:
    if node.node.map or node.node.loop:
        return  # its number of steps is only known when they are dispatched
    if node.body is not None:
        _collect(node.body, outlook, by_type, keys)
    for branch in node.branches.values():
        _collect_node(branch, outlook, by_type, keys)
    if runs_in_worker(node.node.type):
        expected_ms, pool = outlook[node.path].own.mean_ms, pool_of(node.node)
        by_type[pool] = by_type.get(pool, 0.0) + expected_ms
        keys.add(node.path)


def _grain(deadline_at_ms: float, now_ms: float) -> int:
    """Return the second that a deadline is rounded down to: the later it is, the coarser."""
    left_s = max(0.0, deadline_at_ms - now_ms) / 1_000
    size = MIN_GRAIN_S
    while size < GRAIN_SHARE * left_s:
        size *= 2
    return int(deadline_at_ms / 1_000) // size * size


def _count(by: dict, key: object, work_ms: float, runs: int) -> None:  # type: ignore[type-arg]
    entry = by.get(key)
    if entry is None:
        entry = by[key] = [0.0, 0]
    entry[0] += work_ms
    entry[1] += runs
    if not entry[1]:
        del by[key]
