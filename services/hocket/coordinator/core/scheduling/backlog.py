"""How much work is ahead of a task, by node type: what the runs in flight still have to do.

When a run is admitted, it promises the expected work of the steps that its plan surely has, up to
where its deadline is surely paused (`planned_work.py`). What is behind a pause is added when the
first step there is dispatched, a step that cannot be seen in the plan (an item, a round, an emitted
node) when it is dispatched itself. Finished work is subtracted, and the rest when the run ends.

A task waits behind its own tenant's work of higher classes, and in its own class behind that of
runs whose deadline is not later, but behind no more than fair shares among tenants put before it.
Other tenants' work of higher classes delays it as long as its class waits for its turns: a fixed
number of their steps for each of its own, each as long as steps of the type have really taken
(`priority_queue.py` hands out slots in this order).

Expected and real durations differ; their ratio is measured per type and tenant (`_Bias`), so that
one tenant's estimates do not make others wait, and nothing is predicted before enough steps have
finished.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from hocket.coordinator.core.scheduling.capacity_demand import WorkLeft
from hocket.coordinator.core.scheduling.planned_work import Work
from hocket.coordinator.core.scheduling.priority_queue import CLASSES, TURN_AFTER
from hocket.coordinator.core.scheduling.type_queue import Capacity
from hocket.schemas.messages import Priority

GRAIN_SHARE = 0.02
"""Deadlines within this share of the time left count as the same ..."""
MIN_GRAIN_S = 1
"""... or within this many seconds, so that there are never more than a few hundred deadlines to add
up."""
MOVED_MS = 1_000.0
"""A deadline that is later by less than this counts as it did before."""
ENOUGH_FINISHED = 20
"""How many steps of a type must have finished before its work is predicted."""
BIAS_MEMORY = 0.98
ELAPSED_SHARE = 0.5
"""Steps that are out have used up half of their time on average."""
LEAST_MS = 1e-6
NO_WORK = (0.0, 0)
NOTHING_COUNTED: Mapping[str, float] = {}
MAX_BIASES = 1_000
"""How many tenants of a type have their ratio remembered."""


@dataclass(slots=True)
class _Promise:
    partition: int
    priority: Priority
    tenant: str
    deadline_at_ms: float
    grain: int
    keys: frozenset[str]
    behind: Mapping[str, Work]
    left: dict[str, float]
    reached: set[int] | None = None
    """The identities of what is counted of `behind`."""

    def counts(self, key: str) -> bool:
        """Tell whether a step is counted with what the run's plan tells of it."""
        if key in self.keys:
            return True
        work = self.behind.get(key)
        return work is not None and key in work.keys and self._has_reached(work)

    def reach(self, path: str) -> Work | None:
        """Note that a node has begun; return what is behind the same pauses, if that was not known."""
        work = self.behind.get(path)
        if work is None or self._has_reached(work):
            return None
        if self.reached is None:
            self.reached = set()
        self.reached.add(id(work))
        return work

    def _has_reached(self, work: Work) -> bool:
        return self.reached is not None and id(work) in self.reached


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
        promise = self._promises[run_id] = _Promise(
            partition, priority, tenant, deadline_at_ms, grain, work.keys, work.behind, {}
        )
        for node_type, work_ms in work.by_type.items():
            self._add(promise, node_type, work_ms)

    def dispatched(
        self,
        run_id: str,
        key: str,
        node_type: str,
        expected_ms: float,
        *,
        path: str,
        deadline_at_ms: float,
        now_ms: float,
    ) -> Mapping[str, float]:
        """Count a step of the node with this path that was not counted with its run's plan, and with
        the first behind a pause of the deadline all that is behind it; return what is counted now,
        by type. The run's deadline may have moved."""
        promise = self._promises.get(run_id)
        if promise is None:
            return NOTHING_COUNTED
        if deadline_at_ms >= promise.deadline_at_ms + MOVED_MS:
            self._move(promise, deadline_at_ms, now_ms)
        if key in promise.keys:
            return NOTHING_COUNTED
        work = self.reached(run_id, path) if promise.behind else None
        counted = NOTHING_COUNTED if work is None else work.by_type
        if promise.counts(key):
            return counted
        self._add(promise, node_type, expected_ms)
        return {**counted, node_type: counted.get(node_type, 0.0) + expected_ms}

    def reached(self, run_id: str, path: str) -> Work | None:
        """Count what is behind the same pauses as a node that has begun, because these are over;
        return it, unless it is counted already or there is nothing."""
        promise = self._promises[run_id]
        work = promise.reach(path)
        if work is not None:
            for node_type, work_ms in work.by_type.items():
                self._add(promise, node_type, work_ms)
        return work

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

    def _move(self, promise: _Promise, deadline_at_ms: float, now_ms: float) -> None:
        """Count what is left of a run for a later deadline."""
        kinds = [
            (self._types[node_type].classes[promise.priority], work_ms)
            for node_type, work_ms in promise.left.items()
        ]
        for of, work_ms in kinds:
            of.add(promise, -work_ms, -1)
        promise.deadline_at_ms = deadline_at_ms
        promise.grain = _grain(deadline_at_ms, now_ms)
        for of, work_ms in kinds:
            of.add(promise, work_ms, 1)

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
