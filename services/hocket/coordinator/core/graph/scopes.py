"""Scopes: which nodes may start, what a finished node sets free, when a scope is done."""

from contextlib import suppress

from hocket.coordinator.core.graph.expansion import PlanExceeded, count_step
from hocket.coordinator.core.graph.layers import first_role
from hocket.coordinator.core.run.ending import cancel_below, end_run, fail_run
from hocket.coordinator.core.run.feasibility import (
    DeadlineInfeasible,
    TooSlow,
    is_judged,
    is_too_late,
)
from hocket.coordinator.core.run.state import ParentRelation, RunStatus, Step, StepState
from hocket.coordinator.core.run.transition import (
    Activate,
    Failing,
    RunTransition,
    Settled,
    Start,
    child_key,
    new_scope,
    new_start,
)
from hocket.coordinator.core.structures.frozen import replace
from hocket.schemas.errors import ErrorInfo, HocketError
from hocket.schemas.pipeline.plan import ScopePlan


def open_scope(u: RunTransition, scope: str) -> None:
    """Begin a scope: the nodes that need nothing start."""
    plan = u.scope_plan(scope)
    u.scopes[scope] = new_scope(plan)
    u.todo.extend(Activate(scope, name) for name in plan.roots)


def activate(u: RunTransition, work: Activate) -> None:
    """Start a node whose needs are met, or skip it."""
    if work.scope not in u.scopes:
        return  # the scope ended while this waited its turn
    plan = u.scope_plan(work.scope).nodes[work.name]
    key = child_key(work.scope, work.name)
    home = u.home_of(work.scope)
    if plan.needs and all(_skipped(u, work.scope, need) for need in plan.needs):
        _skip(u, key, Start(key, plan, home, ParentRelation.NODE, work.scope))
        return
    if plan.when is not None:
        try:
            wanted = bool(plan.when(u.names(work.scope)))
        except HocketError as error:
            _placeholder(u, Start(key, plan, home, ParentRelation.NODE, work.scope))
            u.todo.append(Failing(key, error.info()))
            return
        if not wanted:
            _skip(u, key, Start(key, plan, home, ParentRelation.NODE, work.scope))
            return
    start = new_start(key, plan, home, ParentRelation.NODE, work.scope)
    if is_judged(u) and is_too_late(u, plan, u.expected(home, plan.path)):
        if u.plan.pipeline.on_infeasible == "fail":
            end_run(u, RunStatus.FAILED, error=DeadlineInfeasible(node=plan.path).info())
            return
        if plan.fast is not None:
            start = replace(start, fast=True)
        elif plan.node.optional:
            _placeholder(u, start)
            too_slow = TooSlow(node=plan.path).info()
            u.settle(key, StepState.SKIPPED, error=too_slow, degraded=True)
            return
    u.todo.append(start)


def node_settled(u: RunTransition, work: Settled) -> None:
    """Count a finished node and set free what waited for it; a failed one fails its scope."""
    step: Step = u.steps[work.key]
    scope = u.scopes.get(step.parent)
    if scope is None:
        return
    plan = u.scope_plan(step.parent)
    node = u.node_plan(step)
    if step.state is StepState.FAILED and not node.node.optional:
        assert step.error is not None, step.key
        fail_scope(u, step.parent, step.error)
        return
    if step.degraded or step.state is StepState.FAILED:
        _degrade(u, step.parent)
    pending = scope.pending
    for name in node.dependents:
        left = pending[name] - 1
        pending = pending.set(name, left)
        if left == 0:
            u.todo.append(Activate(step.parent, name))
    left = scope.left - 1
    u.scopes[step.parent] = replace(scope, pending=pending, left=left)
    if left == 0:
        _finish_scope(u, step.parent, plan)


def fail_scope(u: RunTransition, scope: str, error: ErrorInfo) -> None:
    """Stop what runs in a scope and fail its owner: the step that opened it, or the run."""
    cancel_below(u, scope, error.code)
    u.scopes.pop(scope, None)
    if scope:
        u.todo.append(Failing(scope, error))
    else:
        fail_run(u, error)


def _finish_scope(u: RunTransition, scope: str, plan: ScopePlan) -> None:
    try:
        if plan.output is not None:
            output = plan.output(u.names(scope))
        elif len(plan.finals) == 1:
            output = u.steps[child_key(scope, plan.finals[0])].output
        else:
            output = {name: u.steps[child_key(scope, name)].output for name in plan.finals}
    except HocketError as error:
        fail_scope(u, scope, error.info())
        return
    u.scopes.pop(scope, None)
    if scope:
        u.settle(scope, StepState.SUCCEEDED, output=output)
    else:
        status = RunStatus.DEGRADED if u.run.degraded else RunStatus.SUCCEEDED
        end_run(u, status, output=output)


def _degrade(u: RunTransition, scope: str) -> None:
    if scope:
        step: Step = u.steps[scope]
        if not step.degraded:
            u.put(replace(step, degraded=True))
    elif not u.run.degraded:
        u.change(degraded=True)


def _skipped(u: RunTransition, scope: str, name: str) -> bool:
    """Tell whether a node was skipped because it is not wanted; what needs one that was left out for
    want of time runs without it."""
    step: Step = u.steps[child_key(scope, name)]
    return step.state is StepState.SKIPPED and step.error is None


def _skip(u: RunTransition, key: str, start: Start) -> None:
    _placeholder(u, start)
    u.settle(key, StepState.SKIPPED)


def _placeholder(u: RunTransition, start: Start) -> None:
    """Give a node that never starts a step, so that its end can be told like any other."""
    step = u.put(
        Step(
            key=start.key,
            path=start.plan.path,
            type=start.plan.node.type,
            role=first_role(start.plan, start.link),
            link=start.link,
            parent=start.parent,
            home=start.home,
            ready_at_ms=u.now_ms,
            state=StepState.OPEN,
        )
    )
    with suppress(
        PlanExceeded
    ):  # it counts, as it does when the run is read again; it does nothing
        count_step(u, step)
