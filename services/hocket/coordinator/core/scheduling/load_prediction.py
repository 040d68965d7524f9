"""Whether a task that arrives now begins now, waits, or is refused: by its predicted completion.

The prediction walks the plan: a node starts when what it needs has ended and when the work of its
type that is ahead of this task is done (`backlog.py`). The result is a distribution. If the path
alone keeps the deadline with its tail, it must do so with the wait as well; otherwise its mean
must. A pause of the deadline moves it by the time waited for somebody, so that steps behind it take
their time from the same budget. But nobody can tell how busy the workers will be by then, so these
steps are not made to wait for workers: no task is refused because of load on the steps behind a
pause. A deadline that is out of reach even without load is no matter for admission: the pipeline's
`on_infeasible` decides what becomes of such a run.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import lru_cache
from math import inf

from hocket.coordinator.core.scheduling.planned_work import pausing
from hocket.coordinator.core.time.duration_estimates import (
    NOTHING,
    DurationForecast,
    Estimate,
    skippable,
)
from hocket.schemas.errors import ErrorClass, HocketError
from hocket.schemas.messages import Priority
from hocket.schemas.pipeline.plan import NodePlan, Plan, ScopePlan
from hocket.schemas.pipeline.spec import pool_of, runs_in_worker

LEAST_RETRY_MS = 100.0
NO_WAITS: Mapping[str, float] = {}
ON_OVERLOAD: Mapping[Priority, str] = {
    Priority.INTERACTIVE: "reject",
    Priority.STANDARD: "queue",
    Priority.BATCH: "queue",
}
"""The default `on_overload` of a pipeline, by the class of the task."""


class DeadlineUnreachable(HocketError):
    """The task cannot make its deadline: it has {deadline_ms} ms and is expected to take
    {predicted_ms} ms, because `{limited_by}` steps now wait {wait_ms} ms for workers. Try again in
    {retry_after_ms} ms, give it more time, or add workers."""

    code = "deadline_unreachable"
    error_class = ErrorClass.RATE_LIMITED
    retryable = True


class TooManyTasksWait(HocketError):
    """{waiting} tasks are already waiting for workers of `{limited_by}` steps, which is the limit.
    Try again in {retry_after_ms} ms, or add workers."""

    code = "too_many_tasks_wait"
    error_class = ErrorClass.RATE_LIMITED
    retryable = True


class Verdict(StrEnum):
    ADMIT = "admit"
    QUEUE = "queue"
    REJECT = "reject"


class Prediction:
    """How long a task that begins now would take: `path` without and `loaded` with the present
    load, in which the longest wait is for `limited_by`."""

    __slots__ = ("_load", "_loaded", "limited_by", "most_ms", "path")

    def __init__(
        self,
        path: Estimate,
        load: Callable[[], Estimate],
        limited_by: str = "",
        most_ms: float = inf,
    ) -> None:
        self.path = path
        self.limited_by = limited_by
        self.most_ms = most_ms
        """A limit on the tail of `loaded`."""
        self._load = load
        self._loaded: Estimate | None = None

    @property
    def loaded(self) -> Estimate:
        """With the load: computed when it is asked for, because most tasks are admitted by its limit."""
        if self._loaded is None:
            self._loaded = self._load()
        return self._loaded

    @property
    def wait_ms(self) -> float:
        """How much the load adds (ms)."""
        return self.loaded.mean_ms - self.path.mean_ms


UNLOADED = Prediction(NOTHING, lambda: NOTHING, most_ms=0.0)
"""The prediction if nothing is ahead of a task, whatever its path takes."""

ClearMs = Callable[[str], float]
"""When the work of a node type that is ahead of the task is done (ms from now)."""


def predict(plan: "PlanPath", clear_ms: ClearMs) -> Prediction:
    """Return when a task that begins now would end (UNLOADED if no load is in its way)."""
    waits = {node_type: clear_ms(node_type) for node_type in plan.types}
    if not any(waits.values()):
        return UNLOADED
    limited_by = max(waits, key=waits.__getitem__)
    # no step starts later behind when it would start without load than by the longest wait
    most_ms = waits[limited_by] + plan.longest_tail_ms
    return Prediction(plan.unloaded, lambda: plan.root.end(waits, NOTHING), limited_by, most_ms)


def judge(prediction: Prediction, left_ms: float, on_overload: str) -> Verdict:
    """Return what becomes of a task that has this much time left."""
    if on_overload == "admit" or prediction.most_ms <= left_ms:
        return Verdict.ADMIT
    path, loaded = prediction.path, prediction.loaded
    if prediction.wait_ms <= 0 or path.mean_ms > left_ms:
        return Verdict.ADMIT
    sure = path.tail_ms() <= left_ms
    if (loaded.tail_ms() if sure else loaded.mean_ms) <= left_ms:
        return Verdict.ADMIT
    return Verdict.QUEUE if on_overload == "queue" else Verdict.REJECT


def is_lost(prediction: Prediction, left_ms: float) -> bool:
    """Tell whether a task that has waited could not make its deadline even if there were no load."""
    return prediction.path.mean_ms > left_ms


def unreachable(prediction: Prediction, left_ms: float) -> DeadlineUnreachable:
    """Return the error of a task whose deadline the load puts out of reach."""
    predicted_ms = prediction.loaded.tail_ms()
    return DeadlineUnreachable(
        deadline_ms=max(0, round(left_ms)),
        predicted_ms=round(predicted_ms),
        wait_ms=round(prediction.wait_ms),
        limited_by=prediction.limited_by,
        retry_after_ms=retry_after_ms(prediction, left_ms),
    )


def retry_after_ms(prediction: Prediction, left_ms: float) -> int:
    """Return when (ms from now) enough of the work ahead will be done, if nothing else arrives."""
    excess_ms = prediction.loaded.tail_ms() - left_ms
    return round(max(LEAST_RETRY_MS, min(excess_ms, prediction.wait_ms)))


@lru_cache(maxsize=1_024)
def types_of(plan: Plan) -> tuple[str, ...]:
    """Return the pools that a plan's steps run in, sorted: the types that workers run, with their
    queues."""
    nodes = [node.node for node in plan.by_path.values()]
    return tuple(sorted({pool_of(node) for node in nodes if runs_in_worker(node.type)}))


class PlanPath:
    """The path through a plan from its beginning, with what is expected of its nodes; at its
    shortest if the pipeline degrades. `types` are those that it waits for, before its deadline is
    paused; `unloaded` is its duration without load. `longest_tail_ms`, the most that the tails of
    consecutive nodes add up to, is at least the tail of their sum."""

    __slots__ = ("longest_tail_ms", "root", "types", "unloaded")

    def __init__(self, plan: Plan, outlook: DurationForecast) -> None:
        degrades = plan.pipeline.on_infeasible == "degrade"
        self.root = _ScopePath(plan.root, outlook, degrades, pausing(plan))
        self.types = types_of(plan)
        if self.root.pauses:
            before = self.root.pools()
            self.types = tuple(pool for pool in self.types if pool in before)
        self.unloaded = self.root.end({}, NOTHING)
        self.longest_tail_ms = self.root.tails_ms(0.0)


class _ScopePath:
    """The path through a scope, with its nodes in the order in which they start. `pauses`: whether
    the deadline is surely paused in it (`paused`: the paths of the nodes that do so)."""

    __slots__ = ("_nodes", "pauses")

    def __init__(
        self,
        scope: ScopePlan,
        outlook: DurationForecast,
        degrades: bool,
        paused: frozenset[str],
    ) -> None:
        left_out = skippable(scope)
        places = {name: place for place, name in enumerate(scope.order)}
        late: set[str] = set()
        self._nodes: list[_NodePath] = []
        for name in scope.order:
            node = scope.nodes[name]
            may_go = name in left_out or (degrades and node.node.optional)
            needs = [places[need] for need in node.needs]
            path = _NodePath(node, needs, may_go, outlook, degrades, paused)
            path.is_behind = bool(late) and not late.isdisjoint(node.needs)
            self._nodes.append(path)
            if path.is_behind or path.pauses:
                late.add(name)
        self.pauses: bool = bool(late)

    def end(self, waits: Mapping[str, float], start: Estimate) -> Estimate:
        """Return when a scope that begins at `start` ends; `waits` (ms) are by type."""
        ends: list[Estimate] = []
        for node in self._nodes:
            begins = _latest(start, [ends[need] for need in node.needs]) if node.needs else start
            if not node.may_go:
                begins = node.end(NO_WAITS if node.is_behind else waits, begins)
            ends.append(begins)
        return _latest(start, ends)

    def tails_ms(self, start_ms: float) -> float:
        """Return the most that the tails of consecutive nodes add up to, from `start_ms` on."""
        ends: list[float] = []
        for node in self._nodes:
            begins = max([start_ms, *(ends[need] for need in node.needs)])
            ends.append(begins if node.may_go else node.tails_ms(begins))
        return max([start_ms, *ends])

    def pools(self) -> set[str]:
        """Return the pools of its nodes before a pause."""
        return {pool for node in self._nodes if not node.is_behind for pool in node.pools()}


class _NodePath:
    """The path through a node; `needs` are places in its scope, `may_go` whether it may be left out,
    `pauses` whether the deadline is surely paused in it: the wait itself takes nothing, and a map or
    loop around it what its first item or round takes. `is_behind`: whether it begins only after its
    scope has paused the deadline."""

    __slots__ = ("_body", "_own", "_pools", "is_behind", "may_go", "needs", "pauses")

    def __init__(
        self,
        node: NodePlan,
        needs: list[int],
        may_go: bool,
        outlook: DurationForecast,
        degrades: bool,
        paused: frozenset[str],
    ) -> None:
        self.needs = needs
        self.may_go = may_go
        self.is_behind: bool = False
        self.pauses: bool = node.path in paused
        if degrades and node.fast is not None:
            node = node.fast
        repeats = bool(node.node.map or node.node.loop)
        self._body: _ScopePath | None = None
        if node.body is not None and (paused or not repeats):
            body = _ScopePath(node.body, outlook, degrades, paused)
            if body.pauses or not repeats:
                self._body = body
        is_other = self._body is not None or self.pauses
        self._pools = () if is_other else tuple(_pools_in(node))
        self._own = NOTHING if may_go or is_other else outlook[node.path].own

    def end(self, waits: Mapping[str, float], start: Estimate) -> Estimate:
        if self._body is not None:
            return self._body.end(waits, start)
        clear_ms = 0.0
        for pool in self._pools:
            wait_ms = waits.get(pool, 0.0)
            if wait_ms > clear_ms:
                clear_ms = wait_ms
        if clear_ms > start.mean_ms:
            start = Estimate(clear_ms, start.variance)
        return start.then(self._own)

    def tails_ms(self, start_ms: float) -> float:
        if self._body is not None:
            return self._body.tails_ms(start_ms)
        return start_ms + self._own.tail_ms()

    def pools(self) -> Iterable[str]:
        """Return the pools that it waits for."""
        return self._pools if self._body is None else self._body.pools()


def _pools_in(node: NodePlan) -> Iterable[str]:
    yield pool_of(node.node)
    for branch in node.branches.values():
        yield from _pools_in(branch)
    if node.body is not None:
        for inner in node.body.nodes.values():
            yield from _pools_in(inner)


def _latest(start: Estimate, ends: Iterable[Estimate]) -> Estimate:
    latest, latest_ms = start, start.tail_ms()
    for end in ends:
        end_ms = end.tail_ms()
        if end_ms > latest_ms or (end_ms == latest_ms and end.mean_ms > latest.mean_ms):
            latest, latest_ms = end, end_ms
    return latest
