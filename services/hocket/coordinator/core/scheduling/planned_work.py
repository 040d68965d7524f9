"""What a plan surely has to do, by node type, apart by the pauses that come before it.

While an approval or a signal pauses the deadline, nothing behind it can run until somebody has
acted, and nobody knows when that is. So a run promises at first only what comes before its pauses,
and what is behind one once the first step there is dispatched (`backlog.py`).

Only what surely pauses the deadline counts as a pause (`pausing`). Where the deadline may go on (a
signal without `pause_deadline`, a node with `when`, what a handler calls), nothing is put off.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from hocket.coordinator.core.time.duration_estimates import DurationForecast, skippable
from hocket.schemas.pipeline.plan import NodePlan, Plan, ScopePlan
from hocket.schemas.pipeline.spec import (
    ApprovalNode,
    RaceNode,
    SignalNode,
    pool_of,
    runs_in_worker,
)

NO_PAUSES = 0
NONE_PAUSE: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Work:
    """Expected work (ms) by node type, and the keys of the steps counted. `behind` is the work that
    is put off until the deadline is no longer paused, by the paths of the nodes there: all nodes
    behind the same pauses have the same."""

    by_type: Mapping[str, float]
    keys: frozenset[str]
    behind: Mapping[str, "Work"] = field(default_factory=dict)


@lru_cache(maxsize=1_024)
def pausing(plan: Plan) -> frozenset[str]:
    """Return the paths of the nodes in which the deadline is surely paused whenever the scope around
    them runs: approvals and signals with `pause_deadline`, what contains one, and races that begin
    with one whichever branch wins. A map counts as one with items."""
    if not any(_pauses_at_once(node) for node in plan.by_path.values()):
        return NONE_PAUSE
    found: set[str] = set()
    _find(plan.root, plan.pipeline.on_infeasible == "degrade", found)
    return frozenset(found)


def work_of(plan: Plan, outlook: DurationForecast) -> Work:
    """Return what a plan surely has to do."""
    collected = _Collected(outlook, pausing(plan))
    collected.scope(plan.root, NO_PAUSES, counts=True)
    return collected.work()


def _find(scope: ScopePlan, degrades: bool, found: set[str]) -> bool:
    """Find the nodes of a scope that surely pause the deadline; tell whether there are any."""
    left_out = skippable(scope)
    pauses = False
    for name in scope.order:
        node = scope.nodes[name]
        may_go = name in left_out or (degrades and node.node.optional)
        if _find_in(node, degrades, found) and not may_go:
            found.add(node.path)
            pauses = True
    return pauses


def _find_in(node: NodePlan, degrades: bool, found: set[str]) -> bool:
    """Find such nodes inside a node; tell whether the node itself is one, unless it is left out."""
    pauses = _pauses_at_once(node)
    if node.body is not None:
        pauses = _find(node.body, degrades, found)
    if degrades and node.fast is not None:
        fast_pauses = _find_in(node.fast, degrades, found)
        pauses = pauses and fast_pauses
    return pauses


def _pauses_at_once(node: NodePlan) -> bool:
    """Tell whether a node pauses the deadline as soon as it begins. A race whose first valid branch
    wins does if each branch does: otherwise one may win before anybody was asked."""
    if isinstance(node.node, ApprovalNode | SignalNode):
        return node.node.pause_deadline
    if not isinstance(node.node, RaceNode):
        return False
    branches = [_pauses_at_once(branch) for branch in node.branches.values()]
    return all(branches) if node.node.pick == "first_valid" else any(branches)


class _Collected:
    """The work found in a plan, by the pauses before it: a bit for each."""

    def __init__(self, outlook: DurationForecast, pausing: frozenset[str]) -> None:
        self._outlook = outlook
        self._pausing = pausing
        self._pauses = 0
        """How many were found."""
        self._by_pauses: dict[int, tuple[dict[str, float], set[str]]] = {NO_PAUSES: ({}, set())}
        self._uncounted: list[tuple[str, int]] = []
        """The other nodes behind pauses, by path: where one begins, these are over too."""

    def work(self) -> Work:
        groups = {
            pauses: Work(by_type, frozenset(keys))
            for pauses, (by_type, keys) in self._by_pauses.items()
        }
        first = groups.pop(NO_PAUSES)
        behind = {key: group for group in groups.values() for key in group.keys}
        for path, pauses in self._uncounted:
            group = groups.get(pauses)
            if group is not None:
                behind[path] = group
        return Work(first.by_type, first.keys, behind)

    def scope(self, scope: ScopePlan, pauses: int, *, counts: bool) -> int:
        """Collect the nodes of a scope that begins after these pauses; return those before its end.
        `counts`: whether it is known how often its nodes run."""
        left_out = skippable(scope)
        passed: dict[str, int] = {}
        for name in scope.order:
            node = scope.nodes[name]
            before = pauses
            for need in node.needs:
                before |= passed[need]
            passed[name] = self._node(node, before, counts=counts and name not in left_out)
        for after in passed.values():
            pauses |= after
        return pauses

    def _node(self, node: NodePlan, pauses: int, *, counts: bool) -> int:
        repeats = bool(node.node.map or node.node.loop)
        counts = counts and not repeats  # how many steps is known when they are dispatched
        if counts and runs_in_worker(node.node.type):
            self._count(node, pauses)
        elif pauses:
            self._uncounted.append((node.path, pauses))
        if pauses:
            instead = node.fallbacks if node.fast is None else (node.fast, *node.fallbacks)
            self._uncounted += [(one.path, pauses) for one in instead]
        after = pauses
        if node.body is not None:
            after = self.scope(node.body, pauses, counts=counts)
        for branch in node.branches.values():
            self._node(branch, pauses, counts=counts)
        if node.path not in self._pausing:
            return pauses
        if node.body is not None and not repeats:
            return after
        self._pauses += 1
        return pauses | 1 << self._pauses

    def _count(self, node: NodePlan, pauses: int) -> None:
        found = self._by_pauses.get(pauses)
        if found is None:
            found = self._by_pauses[pauses] = ({}, set())
        by_type, keys = found
        pool = pool_of(node.node)
        by_type[pool] = by_type.get(pool, 0.0) + self._outlook[node.path].own.mean_ms
        keys.add(node.path)
