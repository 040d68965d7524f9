"""Sub-runs (`pipeline` nodes), and the bound on how many runs one task may lead to, divided down
the tree.

The run at the top may start `max_runs` runs, a bound set by its pipeline. What a run may start is
divided evenly among all places where its plan could start one: its `pipeline` nodes, the attempts
of each, the items of a map, the rounds of a loop, the steps of a planner. A sub-run gets its share,
less one for itself, and divides it further. So no count has to be kept across partitions: whatever
each run does, the shares never add up to more than the whole, and a replay gives the same ones.

A sub-run's budget is what its caller has left when it starts, or its own pipeline's if that is less.
"""

from dataclasses import replace
from decimal import Decimal
from functools import lru_cache
from typing import Any

from hocket.coordinator.core.run.commands import StartSubRun
from hocket.coordinator.core.run.constructs.reuse import child_origin
from hocket.coordinator.core.run.plan.nodes import SUBRUN
from hocket.coordinator.core.run.state.run import CALL, ITEM, ROUND, Run, Step
from hocket.coordinator.core.run.transition import Transition
from hocket.coordinator.core.time.timestamps import nearest
from hocket.schemas.errors import ErrorClass, HocketError
from hocket.schemas.ids import child_run_id, input_digest
from hocket.schemas.messages import RootBudget, RunAccepted, RunParent
from hocket.schemas.pipeline.contradictions import all_nodes
from hocket.schemas.pipeline.plan import Plan
from hocket.schemas.pipeline.spec import (
    DEFAULT_TREE_RUNS,
    AgentNode,
    CallingNode,
    PipelineNode,
    PlanningNode,
)
from hocket.schemas.tracing.spans import context_of_run, step_span_id


class TooManyRuns(HocketError):
    """The step `{step}` may not start a run: its run may start {runs_left} in all, but its pipeline
    could ask for {ways} in such places. Raise `max_runs` of the pipeline that the task names, map over
    fewer items, or let pipelines that call themselves end sooner."""

    code = "too_many_runs"
    error_class = ErrorClass.INVALID


MAX_RUN_DEPTH = 32
"""The most runs above a run: pipelines that call each other in a circle end here, not at their
deadline."""


class RunsNestTooDeep(HocketError):
    """The step `{step}` would start a run below {depth} others. Pipelines that call themselves, or
    each other in a circle, need a `when` that ends the recursion."""

    code = "runs_nest_too_deep"
    error_class = ErrorClass.INVALID


def check_sub_run(t: Transition, step: Step) -> None:
    """Raise RunsNestTooDeep or TooManyRuns if a step may not start a run."""
    if t.run.depth >= MAX_RUN_DEPTH:
        raise RunsNestTooDeep(step=step.key, depth=t.run.depth)
    _share(t, step, 1)


def check_map_of_runs(t: Transition, step: Step, items: int) -> None:
    """Raise TooManyRuns if the items of a map of sub-runs could not all be started."""
    if items and step.node.role_in_round == SUBRUN:
        _share(t, step, items)


def start_sub_run(t: Transition, step: Step) -> StartSubRun:
    """Return the command that starts the run for a step's present attempt."""
    node = step.node.spec
    assert isinstance(node, PipelineNode)
    run = t.run
    assert step.dispatched_at_ms is not None
    deadline_at_ms = _deadline_at_ms(t, step)
    times_out_at_ms: float | None = None
    if node.timeout_ms is not None:
        times_out_at_ms = nearest(step.dispatched_at_ms + node.timeout_ms)
        deadline_at_ms = min(deadline_at_ms, times_out_at_ms)
    given = child_input(step)
    accepted = RunAccepted(
        run_id=child_run_id(run.run_id, step.key, step.attempt),
        tenant=run.tenant,
        pipeline=node.pipeline,
        version=node.version or 0,
        input=given,
        priority=run.priority,
        deadline_at_ms=deadline_at_ms,
        budget_usd=_budget_left(run),
        traceparent=_traceparent(run, step),
        parent=RunParent(
            run_id=run.run_id,
            step=step.key,
            attempt=step.attempt,
            partition=run.owner.partition,
            depth=run.depth + 1,
            dispatched_at_ms=step.dispatched_at_ms,
            capability=_capability(run, step),
            runs_left=_share(t, step, 1),
            root_budget=_root_budget(run),
            input_digest=input_digest(given),
            times_out_at_ms=times_out_at_ms,
        ),
        origin=child_origin(run, step),
        labels=run.labels,
    )
    return StartSubRun(accepted)


def _deadline_at_ms(t: Transition, step: Step) -> float:
    """Return the latest useful finish of a step. If the run is late, that may be too early to be kept,
    or past, and the sub-run would be given up with time left: then it is the run's deadline, which is
    what limits the attempts of other steps."""
    assert step.deadline_at_ms is not None
    expected_ms = t.forecast_of(step).expectation.own.tail_ms()
    if t.now_ms + expected_ms <= step.deadline_at_ms:
        return step.deadline_at_ms
    return t.run.deadline_seen_at_ms(t.now_ms)


def _traceparent(run: Run, step: Step) -> str:
    """Return the trace context that puts a sub-run below its step in the parent's trace."""
    trace = context_of_run(run.run_id, run.traceparent)
    return replace(trace, span_id=step_span_id(run.run_id, step.key)).header


def child_input(step: Step) -> dict[str, Any]:
    """Return the input of a sub-run, which is always an object."""
    value = step.input.value
    return value if isinstance(value, dict) else {"value": value}


def _capability(run: Run, step: Step) -> str | None:
    capabilities = run.owner.capabilities
    if capabilities is None or not step.capable:
        return None
    return capabilities.of_attempt(
        run.tenant, run.run_id, step.key, step.attempt, step.dispatched_at_ms
    )


def _budget_left(run: Run) -> Decimal | None:
    return None if run.budget_usd is None else max(Decimal(0), run.budget_usd - run.cost_usd)


def budget_of_sub_run(left_usd: Decimal | None, own_usd: Decimal | None) -> Decimal | None:
    """Return the budget of a sub-run: what its caller has left, or that of its own pipeline if that is
    less; None if neither has one."""
    given = [usd for usd in (left_usd, own_usd) if usd is not None]
    return min(given) if given else None


def _root_budget(run: Run) -> RootBudget | None:
    """Return the budget that the sub-runs of a run share, with what is known to be spent from it: that
    of the topmost run that has one. None where there is none."""
    root = None if run.parent is None else run.parent.root_budget
    if root is not None:
        known_usd = root.spent_usd
        spent_usd = None if known_usd is None else known_usd + run.cost_usd
        return root.model_copy(update={"spent_usd": spent_usd})
    if run.budget_usd is None:
        return None
    return RootBudget(run_id=run.run_id, budget_usd=run.budget_usd, spent_usd=run.cost_usd)


def _share(t: Transition, step: Step, items: int) -> int:
    runs_left = t.plan.max_runs
    if t.run.parent is not None:
        given = t.run.parent.runs_left
        runs_left = min(runs_left, DEFAULT_TREE_RUNS if given is None else given)
    ways = _nodes_that_begin_runs(t.plan.source) * _ways(step, items)
    if ways > runs_left:
        raise TooManyRuns(step=step.key, runs_left=runs_left, ways=ways)
    return runs_left // ways - 1


def _ways(step: Step, items: int) -> int:
    """Return how often the node of a step could run at most, by attempts, items, rounds and calls."""
    retry = step.node.spec.retry
    attempts = 1 if retry is None else retry.max_attempts
    ways = attempts * items
    while True:
        parent = step.parent
        if step.link == ITEM:
            assert parent is not None, step.key
            ways *= len(parent.input.value)
        elif step.link == ROUND:
            loop = step.node.spec.loop
            assert loop is not None, step.key
            ways *= loop.max_rounds
        elif step.link == CALL:
            assert parent is not None, step.key
            assert isinstance(parent.node.spec, CallingNode), parent.key
            ways *= parent.node.spec.max_calls
        if parent is None:
            return ways
        if parent.emitted is not None:  # its policy counts all steps that work inside
            ways = attempts * parent.emitted.policy.max_steps
        step = parent


@lru_cache(maxsize=1_000)
def _nodes_that_begin_runs(plan: Plan) -> int:
    found = 0
    for node_plan in plan.by_path.values():
        node = node_plan.node
        emit = node.emit if isinstance(node, PlanningNode) else None
        found += isinstance(node, PipelineNode) or (emit is not None and "pipeline" in emit.types)
        if isinstance(node, AgentNode):
            inside = all_nodes({name: tool.node for name, tool in node.tools.items()}, "tools")
            found += sum(isinstance(one, PipelineNode) for _, one, _ in inside)
    return max(1, found)
