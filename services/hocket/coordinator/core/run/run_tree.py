"""How many runs one task may come to, shared out down the tree of its sub-runs.

The run at the top may begin `max_runs` of its pipeline. What a run may begin is divided among all that
its plan could ask for: evenly among its `pipeline` nodes, the attempts of each, the items of a map,
the rounds of a loop, the steps of a planner. A sub-run gets its part, less one for itself, and divides
it further. So no count has to be kept across partitions: whatever each run does, the parts never come
to more than the whole, and a replay gives the same.
"""

from functools import lru_cache

from hocket.coordinator.core.run.state import Emitted, ParentRelation, Step
from hocket.coordinator.core.run.transition import RunTransition
from hocket.schemas.errors import ErrorClass, HocketError
from hocket.schemas.pipeline.plan import Plan
from hocket.schemas.pipeline.spec import DEFAULT_TREE_RUNS, PipelineNode, PlanningNode


class TooManyRuns(HocketError):
    """The step `{step}` may begin no run: its run may begin {runs_left} in all, and its pipeline could
    ask for {ways} at such places. Raise `max_runs` of the pipeline that the task names, map over fewer
    items, or let pipelines that call themselves end sooner."""

    code = "too_many_runs"
    error_class = ErrorClass.INVALID


def check_map(u: RunTransition, step: Step, items: int) -> None:
    """Raise TooManyRuns for a map of sub-runs whose items could not all be begun."""
    if items and isinstance(u.node_plan(step).node, PipelineNode):
        _share(u, step, items)


def share_of(u: RunTransition, step: Step) -> int:
    """Return how many runs a sub-run may begin; raise TooManyRuns where it may not be begun itself."""
    return _share(u, step, 1)


def _share(u: RunTransition, step: Step, items: int) -> int:
    runs_left = u.plan.pipeline.max_runs
    if u.run.parent is not None:
        given = u.run.parent.runs_left
        runs_left = min(runs_left, DEFAULT_TREE_RUNS if given is None else given)
    ways = _nodes_that_begin_runs(u.plan) * _ways(u, step, items)
    if ways > runs_left:
        raise TooManyRuns(step=step.key, runs_left=runs_left, ways=ways)
    return runs_left // ways - 1


def _ways(u: RunTransition, step: Step, items: int) -> int:
    """Return how often the node of a step could come to be in its run, by attempts, items and rounds."""
    retry = u.node_plan(step).node.retry
    attempts = 1 if retry is None else retry.max_attempts
    ways = attempts * items
    while True:
        if step.link is ParentRelation.ITEM:
            ways *= len(u.steps[step.parent].input)
        elif step.link is ParentRelation.ROUND:
            loop = u.node_plan(u.steps[step.parent]).node.loop
            assert loop is not None, step.key
            ways *= loop.max_rounds
        emitted: Emitted | None = u.emitted.get(step.parent)
        if emitted is not None:  # its policy counts all that works inside
            ways = attempts * emitted.policy.max_steps
        if not step.parent:
            return ways
        step = u.steps[step.parent]


@lru_cache(maxsize=1_000)
def _nodes_that_begin_runs(plan: Plan) -> int:
    found = 0
    for node_plan in plan.by_path.values():
        node = node_plan.node
        emit = node.emit if isinstance(node, PlanningNode) else None
        found += isinstance(node, PipelineNode) or (emit is not None and "pipeline" in emit.types)
    return max(1, found)
