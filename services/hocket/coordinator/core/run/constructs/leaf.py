"""Steps that run elsewhere: in workers (`leaf`) or as other runs (`subrun`), up to the moment at
which an attempt goes out. How they end is handled in `results.py`.

A step is taken over from the repeated run, looked up in the cache, or dispatched; it fails at once
if the run, or a planner above it, has no money left.
"""

from hocket.coordinator.core.run.constructs.caching import key_of, look_up
from hocket.coordinator.core.run.constructs.planned import check_budget
from hocket.coordinator.core.run.constructs.reuse import Kept, is_forced, kept_for
from hocket.coordinator.core.run.constructs.sub_runs import check_sub_run, start_sub_run
from hocket.coordinator.core.run.infeasible import may_be_spared, start_by_at_ms
from hocket.coordinator.core.run.plan.nodes import SUBRUN
from hocket.coordinator.core.run.plan.step_deadlines import NodeForecast
from hocket.coordinator.core.run.state.messages import Dispatch
from hocket.coordinator.core.run.state.run import DISPATCHED, ITEM, NODE, Run, Step
from hocket.coordinator.core.run.transition import Transition
from hocket.schemas.errors import ErrorClass, HocketError
from hocket.schemas.messages import AttemptFinished


class BudgetExhausted(HocketError):
    """The run has spent {spent_usd} USD of its budget of {budget_usd} USD. Raise `budget_usd`, or
    make the pipeline cheaper."""

    code = "budget_exhausted"
    error_class = ErrorClass.BUDGET


def begin_leaf(t: Transition, step: Step) -> Kept | AttemptFinished | None:
    """Dispatch the first attempt of a step, unless the cache is asked first. Return what ends the
    step at once, if anything: what it takes over, or a result that arrived earlier."""
    if t.run.reuse is not None:
        kept = kept_for(t.run, step)
        if kept is not None:
            return kept
    if step.node.cache is None:
        return compute(t, step)
    if not is_forced(t.run, step):
        look_up(t, step)
        return None
    step.cache_key = key_of(t, step)
    return compute(t, step)


def compute(t: Transition, step: Step) -> AttemptFinished | None:
    """Dispatch the first attempt of a step; returns what `dispatch` returns."""
    if step.role == SUBRUN:
        try:
            check_sub_run(t, step)
        except HocketError as error:
            t.keep(step)
            t.fail(step, error.info())
            return None
    return dispatch(t, step, 1)


def dispatch(
    t: Transition, step: Step, attempt: int, *, judged: bool = True
) -> AttemptFinished | None:
    """Dispatch an attempt; fail the step if there is no money. Return the attempt's result if it
    has already arrived. `judged`: whether `on_infeasible` applies if the attempt cannot begin in
    time."""
    run = t.run
    held = run.early.get((step.key, attempt)) if run.early else None
    if held is None and not _may_spend(t, step):
        return None
    forecast = t.forecast_of(step)
    deadline_at_ms = run.deadline_seen_at_ms(t.now_ms)
    step.state = DISPATCHED
    step.attempt = attempt
    step.dispatched_at_ms = t.now_ms
    step.queued_at_ms = None
    step.started_at_ms = None
    step.took_ms = None
    step.deadline_at_ms = min(deadline_at_ms, forecast.deadline_at_ms(deadline_at_ms))
    step.slack_ms = forecast.slack_ms(deadline_at_ms, t.now_ms)
    if step.timing is not None:
        step.timing = None
    if step.wake_at_ms is not None:
        step.wake_at_ms = None
    step.capable = run.owner.capabilities is not None
    step.set_seldom(is_repeated=False)
    t.keep(step)
    if held is not None:
        return held
    if step.role == SUBRUN:
        t.commands.append(start_sub_run(t, step))
    else:
        t.commands.append(_dispatch_of(t, step, forecast, judged=judged, again=False))
    return None


def dispatch_again(t: Transition, step: Step, *, judged: bool = True) -> Dispatch:
    """Return another dispatch of a step's present attempt."""
    return _dispatch_of(t, step, t.forecast_of(step), judged=judged, again=True)


def _dispatch_of(
    t: Transition, step: Step, forecast: NodeForecast, *, judged: bool, again: bool
) -> Dispatch:
    start_by: float | None = None
    judged = judged and t.plan.judges and t.run.paused_at_ms is None
    if judged and step.link == NODE and may_be_spared(t, step.node):
        start_by = start_by_at_ms(t, step.node, forecast.expectation)
    return Dispatch(
        t.run,
        step,
        forecast,
        join_left=_join_left(step),
        start_by_at_ms=start_by,
        again=again,
    )


def _join_left(step: Step) -> int:
    """Return how many steps, including this one, the next step still waits for."""
    if step.link == NODE:
        within = step.within
        dependents = step.node.dependents
        if not dependents:
            return within.left
        return min([within.pending[place] for place in dependents])
    if step.link == ITEM:
        parent = step.parent
        assert parent is not None, step.key
        assert parent.children is not None, step.key
        children = parent.children
        return len(parent.input.value) - children.started + children.running
    return 1


def _may_spend(t: Transition, step: Step) -> bool:
    """Tell whether there is money for an attempt; fail its step where there is none."""
    error: HocketError | None = None
    if _is_spent(t.run):
        error = BudgetExhausted(spent_usd=t.run.cost_usd, budget_usd=t.run.budget_usd)
    elif step.home is not None or step.node.agent is not None:
        try:
            check_budget(step)
        except HocketError as over:
            error = over
    if error is None:
        return True
    t.keep(step)
    t.fail(step, error.info())
    return False


def _is_spent(run: Run) -> bool:
    """Tell whether nothing more may be spent; a budget of 0 still allows steps that cost nothing."""
    return run.budget_usd is not None and 0 < run.cost_usd >= run.budget_usd
