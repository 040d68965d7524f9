"""Scopes: the nodes of a run, of a `graph` node or of what a planner emitted. Decides which nodes
may start, which ones a finished node unblocks, and when a scope is done."""

from contextlib import suppress

from hocket.coordinator.core.run.constructs.planned import PlanExceeded, count_step
from hocket.coordinator.core.run.ends.ending import cancel_below, end_run, fail_run
from hocket.coordinator.core.run.infeasible import (
    DeadlineInfeasible,
    TooSlow,
    is_judged,
    is_too_late,
)
from hocket.coordinator.core.run.plan.nodes import Scope
from hocket.coordinator.core.run.state.names import names_in
from hocket.coordinator.core.run.state.run import (
    FAILED,
    NODE,
    RUN_DEGRADED,
    RUN_FAILED,
    RUN_SUCCEEDED,
    SKIPPED,
    SUCCEEDED,
    ScopeProgress,
    Step,
)
from hocket.coordinator.core.run.state.values import Json, json_of
from hocket.coordinator.core.run.transition import (
    ACTIVATE,
    START,
    START_FAST,
    Transition,
)
from hocket.schemas.errors import ErrorInfo, HocketError


def open_run(t: Transition) -> None:
    """Begin the scope of the run itself."""
    assert t.run.plan is not None
    progress = t.run.scope = ScopeProgress(t.run.plan.root, None, None)
    _activate_roots(t, progress)


def open_scope(t: Transition, owner: Step, plan: Scope, home: Step | None) -> None:
    """Begin a scope under a step, and start the nodes that need nothing."""
    progress = owner.scope = ScopeProgress(plan, owner, home)
    _activate_roots(t, progress)


def activate(t: Transition, step: Step) -> None:
    """Start a node whose needs are met, or skip it."""
    within, node = step.within, step.node
    if not within.is_open:
        return  # the scope ended while this step was queued
    if node.needs and all(_is_skipped(within, need) for need in node.needs):
        _skip(t, step)
        return
    if node.plan.when is not None:
        try:
            wanted = bool(node.plan.when(names_in(t, within)))
        except HocketError as error:
            _placeholder(t, step)
            t.fail(step, error.info())
            return
        if not wanted:
            _skip(t, step)
            return
    if t.plan.judges and is_judged(t):
        expected = t.expected(step.home, node).expectation
        if is_too_late(t, node, expected):
            _start_late(t, step)
            return
    t.todo.append((START, step, None))


def node_settled(t: Transition, step: Step) -> None:
    """Count a finished node and activate those that waited for it; a failure that is not tolerated
    fails the scope."""
    within, node = step.within, step.node
    if not within.is_open:
        return
    is_told = step.state == FAILED and within.plan.plan.tells_failures
    if step.state == FAILED and not (node.optional or is_told):
        assert step.error is not None, step.key
        _fail_scope(t, within, step.error)
        return
    if step.degraded or (step.state == FAILED and not is_told):
        _degrade(t, within)
    pending = within.pending
    for place in node.dependents:
        left = pending[place] - 1
        pending[place] = left
        if left == 0:
            _activate(t, within, place)
    within.left -= 1
    if within.left == 0:
        _finish(t, within)


def _activate_roots(t: Transition, progress: ScopeProgress) -> None:
    for place in progress.plan.roots:
        _activate(t, progress, place)


def _activate(t: Transition, progress: ScopeProgress, place: int) -> None:
    node = progress.plan.nodes[place]
    key = progress.prefix + node.name
    step = Step(key, node, node.role, NODE, progress.owner, progress, 0, t.now_ms)
    t.todo.append((ACTIVATE, step, None))


def _start_late(t: Transition, step: Step) -> None:
    """Apply `on_infeasible` to a node that cannot end in time: fail the run, start the node's fast
    variant, leave the node out, or start it all the same."""
    if t.plan.fails_infeasible:
        end_run(t, RUN_FAILED, error=DeadlineInfeasible(node=step.node.path).info())
    elif step.node.fast is not None:
        t.todo.append((START_FAST, step, None))
    elif step.node.optional:
        _placeholder(t, step)
        t.settle(step, SKIPPED, error=TooSlow(node=step.node.path).info(), degraded=True)
    else:
        t.todo.append((START, step, None))


def _fail_scope(t: Transition, progress: ScopeProgress, error: ErrorInfo) -> None:
    """Stop what runs in a scope and fail its owner: the step that opened it, or the run."""
    owner = progress.owner
    cancel_below(t, owner, error.code)
    progress.is_open = False
    if owner is None:
        fail_run(t, error)
    else:
        t.fail(owner, error)


def _finish(t: Transition, progress: ScopeProgress) -> None:
    try:
        output = _output(t, progress)
        if progress.owner is not None:
            _ = output.size  # raises ValueTooDeep
    except HocketError as error:
        _fail_scope(t, progress, error.info())
        return
    owner = progress.owner
    progress.is_open = False
    if owner is not None:
        t.settle(owner, SUCCEEDED, output=output)
    else:
        end_run(t, RUN_DEGRADED if t.run.degraded else RUN_SUCCEEDED, output=output)


def _output(t: Transition, progress: ScopeProgress) -> Json:
    plan = progress.plan
    if plan.output is not None:
        return json_of(plan.output(names_in(t, progress)))
    outputs = [_output_of(progress, place) for place in plan.finals]
    if len(outputs) == 1:
        return outputs[0]
    names = [plan.nodes[place].name for place in plan.finals]
    return json_of({name: one.value for name, one in zip(names, outputs, strict=True)})


def _output_of(progress: ScopeProgress, place: int) -> Json:
    step = progress.steps[place]
    assert step is not None, progress.prefix
    return step.output


def _degrade(t: Transition, progress: ScopeProgress) -> None:
    owner = progress.owner
    if owner is None:
        if not t.run.degraded:
            t.run.degraded = t.run_changed = True
    elif not owner.degraded:
        owner.degraded = True
        t.keep(owner)


def _is_skipped(progress: ScopeProgress, place: int) -> bool:
    """Tell whether a node was skipped because it was not wanted. One that was left out for lack of
    time does not count: what needs it runs without it."""
    step = progress.steps[place]
    return step is not None and step.state == SKIPPED and step.error is None


def _skip(t: Transition, step: Step) -> None:
    _placeholder(t, step)
    t.settle(step, SKIPPED)


def _placeholder(t: Transition, step: Step) -> None:
    """Add a node that never starts to the run, so that its end can be recorded like any other."""
    t.begin(step)
    t.keep(step)
    with suppress(PlanExceeded):  # it counts, as in a restored run, but it does no work
        count_step(step)
