"""Attempts of the steps that somebody else runs: workers (`leaf`) and other runs (`subrun`).

A step is dispatched, and then an attempt of it finishes: with a result, with an error that is tried
again after a backoff, or with one that fails the step. A result that this state has not asked for
yet is held (the log lost its tail); one it does not wait for any more is recorded as late.
"""

from decimal import Decimal
from typing import Any

from immutables import Map
from pydantic_core import from_json, to_json

from hocket.coordinator.core.graph.expansion import check_budget, count_cost
from hocket.coordinator.core.graph.scopes import open_scope
from hocket.coordinator.core.reuse.caching import filled, key_of, look_again, look_up, released
from hocket.coordinator.core.reuse.repeats import Kept, child_origin, is_forced, kept_for, source_of
from hocket.coordinator.core.run.commands import (
    Dispatch,
    RecordAttempt,
    ReleaseCache,
    StartSubRun,
    cancel_attempt,
    new_dispatch,
)
from hocket.coordinator.core.run.feasibility import may_be_spared, start_by_at_ms
from hocket.coordinator.core.run.retries import backoff_ms
from hocket.coordinator.core.run.run_size import result_size
from hocket.coordinator.core.run.run_tree import TooManyRuns, share_of
from hocket.coordinator.core.run.state import (
    TERMINAL,
    ChildProgress,
    Emitted,
    ParentRelation,
    PastAttempt,
    Role,
    Run,
    Scope,
    Source,
    Step,
    StepState,
)
from hocket.coordinator.core.run.transition import Failing, RunTransition
from hocket.coordinator.core.structures.frozen import replace
from hocket.coordinator.core.time.deadlines import (
    DEFAULT_TIMEOUT_MS,
    Expectation,
    deadline_of,
    emitted_outlook,
    last_hope_of,
    slack_of,
)
from hocket.coordinator.core.time.timestamps import nearest
from hocket.schemas.capabilities import Capabilities
from hocket.schemas.errors import ErrorClass, ErrorInfo, HocketError
from hocket.schemas.ids import child_run_id, input_digest
from hocket.schemas.messages import (
    AttemptFinished,
    CacheAnswered,
    RunAccepted,
    RunParent,
    StepRequested,
)
from hocket.schemas.pipeline.node_parts import PlanPolicy
from hocket.schemas.pipeline.plan import NodePlan, compile_emitted
from hocket.schemas.pipeline.spec import PipelineNode, PlanningNode

MAX_RUN_DEPTH = 32
"""Runs above a run: pipelines that call each other in a circle end here and not at their deadline."""
MAX_COUNTED = 64
"""Paid executions of one step that are remembered, to know a result that comes again."""
MAX_EARLY = 10_000
"""Results held before their step is dispatched; one more is dropped, and its step runs again."""


class BudgetExhausted(HocketError):
    """The run has spent {spent_usd} USD of its budget of {budget_usd} USD. Raise `budget_usd`, or
    make the pipeline cheaper."""

    code = "budget_exhausted"
    error_class = ErrorClass.BUDGET


class RunsNestTooDeep(HocketError):
    """The step `{step}` would start a run below {depth} others. Pipelines that call themselves, or each
    other in a circle, need a `when` that ends it."""

    code = "runs_nest_too_deep"
    error_class = ErrorClass.INVALID


class StepTimedOut(HocketError):
    """The step `{step}` took longer than its timeout of {timeout_ms} ms. Raise `timeout_ms`."""

    code = "step_timed_out"
    error_class = ErrorClass.TIMEOUT


def begin_leaf(u: RunTransition, step: Step) -> None:
    """Dispatch the first attempt of a step, unless the run that is repeated has its output, or the
    cache is asked first."""
    kept = kept_for(u, step)
    if kept is not None:
        _take_over(u, step, kept)
    elif u.node_plan(step).node.cache is None:
        compute(u, step)
    elif is_forced(u, step):
        compute(u, replace(step, cache_key=key_of(u, step)))
    else:
        look_up(u, step)


def compute(u: RunTransition, step: Step) -> None:
    """Dispatch the first attempt of a step."""
    if step.role is Role.SUBRUN and u.run.depth >= MAX_RUN_DEPTH:
        u.put(step)
        u.todo.append(Failing(step.key, RunsNestTooDeep(step=step.key, depth=u.run.depth).info()))
        return
    if step.role is Role.SUBRUN:
        try:
            share_of(u, step)
        except TooManyRuns as error:
            u.put(step)
            u.todo.append(Failing(step.key, error.info()))
            return
    dispatch(u, step, attempt=1)


def dispatch(u: RunTransition, step: Step, attempt: int, *, judged: bool = True) -> None:
    """Hand an attempt out, or take the result that is already here; fail the step where the run's
    budget is spent. `judged` as in `redispatch`."""
    held = u.run.early.get((step.key, attempt))
    if held is None and _is_spent(u.run):
        u.put(step)
        error = BudgetExhausted(spent_usd=u.run.spent_usd, budget_usd=u.run.budget_usd)
        u.todo.append(Failing(step.key, error.info()))
        return
    if held is None and step.home:
        try:
            check_budget(u, step)
        except HocketError as over:
            u.put(step)
            u.todo.append(Failing(step.key, over.info()))
            return
    expectation = u.expectation(step)
    deadline = u.run.deadline_at_ms
    step = u.put(
        replace(
            step,
            state=StepState.DISPATCHED,
            attempt=attempt,
            dispatched_at_ms=u.now_ms,
            queued_at_ms=None,
            started_at_ms=None,
            took_ms=None,
            timing=None,
            deadline_at_ms=min(deadline, deadline_of(expectation, deadline)),
            slack_ms=slack_of(expectation, deadline, u.now_ms),
            wake_at_ms=None,
            capable=u.capabilities is not None,
        )
    )
    if held is not None:
        u.change(early=u.run.early.delete((step.key, attempt)))
        u.size_bytes -= result_size(held)
        finished(u, held)
        return
    if step.role is Role.SUBRUN:
        u.commands.append(StartSubRun(child_of(u, step)))
    else:
        u.commands.append(_dispatch(u, step, expectation, judged=judged))


def redispatch(u: RunTransition, step: Step, *, judged: bool = True) -> Dispatch:
    """Return the dispatch of a step's present attempt once more; `judged`: whether its run is asked
    where it cannot begin in time."""
    return _dispatch(u, step, u.expectation(step), judged=judged, again=True)


def _dispatch(
    u: RunTransition,
    step: Step,
    expectation: Expectation,
    *,
    judged: bool = True,
    again: bool = False,
) -> Dispatch:
    plan = u.node_plan(step)
    assert step.deadline_at_ms is not None
    assert step.slack_ms is not None
    assert step.dispatched_at_ms is not None
    left_ms = max(1.0, u.run.deadline_at_ms - step.dispatched_at_ms)
    judged = judged and step.link is ParentRelation.NODE and may_be_spared(u, plan)
    request = StepRequested(
        run_id=u.run.run_id,
        tenant=u.run.tenant,
        pipeline=u.run.pipeline,
        version=u.run.version,
        step=step.key,
        node=step.path,
        type=step.type,
        attempt=step.attempt,
        input=step.input,
        config=dict(plan.config),
        deadline_at_ms=step.deadline_at_ms,
        run_deadline_at_ms=u.run.deadline_at_ms,
        slack_ms=step.slack_ms,
        timeout_ms=min(plan.node.timeout_ms or DEFAULT_TIMEOUT_MS, left_ms),
        priority=u.run.priority,
        partition=u.run.partition,
        epoch=u.epoch,
        budget_usd=u.run.budget_usd,
        budget_left_usd=_budget_left(u.run),
        effects_external=plan.node.effects == "external",
        start_by_at_ms=start_by_at_ms(u, plan, expectation) if judged else None,
        dispatched_at_ms=step.dispatched_at_ms,
        capability=_capability(u, step),
        queue=plan.node.queue,
        labels=u.run.labels,
    )
    return new_dispatch(
        request,
        latest_start_at_ms=step.dispatched_at_ms + step.slack_ms,
        latest_feasible_start_at_ms=last_hope_of(expectation, u.run.deadline_at_ms),
        expected_ms=expectation.own.mean_ms,
        join_left=_join_left(u, step, plan),
        traceparent=u.run.traceparent,
        again=again,
    )


def may_tell(run: Run, event: AttemptFinished, capabilities: Capabilities | None) -> bool:
    """Tell whether a result comes from who got its attempt: it has the capability of that dispatch. What
    was dispatched without one, by a release that knew none, needs none until it has ended: whether a
    step that ended had one is not kept."""
    if capabilities is None:
        return True
    if event.capability is not None:
        return capabilities.is_of_attempt(
            event.capability,
            run.tenant,
            event.run_id,
            event.step,
            event.attempt,
            event.dispatched_at_ms,
        )
    step: Step | None = run.steps.get(event.step)
    if step is None or step.capable or step.state in TERMINAL:
        return False
    return event.attempt <= step.attempt


def _capability(u: RunTransition, step: Step) -> str | None:
    """Return the capability of a step's present attempt; none where it went out without."""
    if u.capabilities is None or not step.capable:
        return None
    return u.capabilities.of_attempt(
        u.run.tenant, u.run.run_id, step.key, step.attempt, step.dispatched_at_ms
    )


def _join_left(u: RunTransition, step: Step, plan: NodePlan) -> int:
    """Return for how many steps, this one included, what comes next still waits."""
    if step.link is ParentRelation.ITEM:
        tally: ChildProgress = u.tallies[step.parent]
        return len(u.steps[step.parent].input) - tally.started + tally.running
    if step.link is not ParentRelation.NODE:
        return 1
    scope: Scope = u.scopes[step.parent]
    return min((scope.pending[name] for name in plan.dependents), default=scope.left)


def finished(u: RunTransition, event: AttemptFinished) -> None:
    """Apply the end of an attempt."""
    step: Step | None = u.steps.get(event.step)
    if step is None or (step.state not in TERMINAL and event.attempt > step.attempt):
        _hold(u, event)
        return
    step = _count(u, step, event)
    if step.state is not StepState.DISPATCHED or event.attempt != step.attempt:
        _record(u, step, event, _late_outcome(step, event))
        return
    if _is_of_another_input(step, event):
        _record(u, step, event, "late")
        _ask_anew(u, step)
        return
    step = _clocked(step, event)
    if event.error is not None:
        _failed(u, step, event, event.error)
    else:
        if event.degraded:  # the makeshift is not kept for others
            step = replace(released(u, step), degraded=True)
        try:
            _succeeded(u, step, event.output, cost_usd=event.spend.cost_usd)
        except HocketError as error:
            _failed(u, step, event, error.info())


def cache_answered(u: RunTransition, event: CacheAnswered) -> None:
    """Take the output that the cache has for a step, or compute it; an answer that its step does not
    wait for any more is given back where it is a turn to compute."""
    step: Step | None = u.steps.get(event.step)
    if step is None or step.cache_key != event.key:
        if not event.hit:
            u.commands.append(ReleaseCache(event.key, event.run_id, event.step))
        return
    if step.state is not StepState.LOOKING_UP:
        return  # it computes already
    if not event.hit:
        compute(u, step)
        return
    source = Source(
        "cache", event.computed_by_run, event.computed_by_step, saved_usd=event.saved_usd
    )
    step = replace(step, cache_key=None, source=source)
    try:
        _succeeded(u, step, event.output)
    except HocketError as error:
        u.put(step)
        u.todo.append(Failing(step.key, error.info()))


def woken(u: RunTransition, step: Step) -> None:
    """Act on a step whose time has come: the backoff is over, nobody answered it, or it took too
    long."""
    if step.state is StepState.BACKOFF:
        dispatch(u, step, step.attempt + 1)
        return
    if step.state is StepState.LOOKING_UP:
        if not look_again(u, step):
            compute(u, step)
        return
    timeout_ms = u.node_plan(step).node.timeout_ms
    error = StepTimedOut(step=step.key, timeout_ms=timeout_ms)
    u.todo.append(Failing(step.key, error.info()))


def _take_over(u: RunTransition, step: Step, kept: Kept) -> None:
    step = replace(step, source=source_of(u, kept))
    if kept.error is not None:
        u.put(step)
        u.todo.append(Failing(step.key, kept.error))
    else:
        _succeeded(u, replace(step, degraded=kept.step.degraded), kept.output)


def _failed(u: RunTransition, step: Step, event: AttemptFinished, error: ErrorInfo) -> None:
    retry = u.node_plan(step).node.retry
    wait_ms = backoff_ms(retry, error, run_id=u.run.run_id, step=step.key, attempt=event.attempt)
    if wait_ms is None or u.now_ms + wait_ms >= u.run.deadline_at_ms:
        u.put(step)
        u.todo.append(Failing(step.key, error))
        return
    outcome = "timed_out" if error.error_class is ErrorClass.TIMEOUT else "failed"
    _record(u, step, event, outcome)
    u.put(
        replace(
            step,
            state=StepState.BACKOFF,
            error=error,
            wake_at_ms=nearest(u.now_ms + wait_ms),
            tries=(*step.tries, _try_of(step, u.now_ms)),
        )
    )


def _is_of_another_input(step: Step, event: AttemptFinished) -> bool:
    """Tell whether what was executed under the number of the present attempt is something else: the end
    of the log was lost after it was handed out, and what came before the step came out otherwise."""
    if event.dispatched_at_ms is None or event.dispatched_at_ms == step.dispatched_at_ms:
        return False
    asked = _child_input(step) if step.role is Role.SUBRUN else step.input
    return event.input_digest not in ("", input_digest(from_json(to_json(asked))))


def _ask_anew(u: RunTransition, step: Step) -> None:
    """Hand a step out under the next number: streams and workers may know the present one already."""
    if step.role is Role.LEAF:
        u.commands.append(cancel_attempt(u.run, step, "superseded"))
    step = replace(step, tries=(*step.tries, _try_of(step, u.now_ms)))
    dispatch(u, step, step.attempt + 1)


def _child_input(step: Step) -> dict[str, Any]:
    return step.input if isinstance(step.input, dict) else {"value": step.input}


def _clocked(step: Step, event: AttemptFinished) -> Step:
    """Keep what whoever ran the present attempt says of it."""
    started_at_ms = event.started_at_ms or None
    took_ms = None if started_at_ms is None else max(0.0, event.finished_at_ms - started_at_ms)
    return replace(
        step,
        queued_at_ms=nearest(event.queued_at_ms) or None,
        started_at_ms=started_at_ms and nearest(started_at_ms),
        took_ms=took_ms,
        timing=event.timing,
        worker=event.worker,
    )


def _try_of(step: Step, finished_at_ms: float) -> PastAttempt:
    assert step.dispatched_at_ms is not None, step.key
    return PastAttempt(
        step.dispatched_at_ms,
        finished_at_ms,
        step.queued_at_ms,
        step.started_at_ms,
        step.took_ms,
        step.timing,
    )


def _succeeded(
    u: RunTransition, step: Step, output: Any, *, cost_usd: Decimal = Decimal(0)
) -> None:
    """End a step with the output of its attempt; a planner's steps are spliced in instead. Raises
    PlanRefused, having done nothing."""
    node = u.node_plan(step).node
    if isinstance(node, PlanningNode) and node.emit:
        _splice(u, step, output, node.emit, cost_usd)
        return
    u.settle_as(filled(u, step, output, cost_usd), StepState.SUCCEEDED, output=output)


def _splice(
    u: RunTransition, step: Step, output: Any, policy: PlanPolicy, cost_usd: Decimal
) -> None:
    scope, by_path = compile_emitted(output, policy, path=step.path)
    degrades = u.plan.pipeline.on_infeasible == "degrade"
    step = filled(u, step, output, cost_usd)
    u.put(replace(step, state=StepState.OPEN, emitted=output, wake_at_ms=None))
    outlook = emitted_outlook(scope, degrades=degrades)
    u.emitted[step.key] = Emitted(scope, by_path, outlook, policy)
    open_scope(u, step.key)


def _budget_left(run: Run) -> Decimal | None:
    return None if run.budget_usd is None else max(Decimal(0), run.budget_usd - run.spent_usd)


def _is_spent(run: Run) -> bool:
    """Tell whether nothing may be spent any more; a budget of nothing allows what costs nothing."""
    budget = run.budget_usd
    return budget is not None and run.spent_usd > 0 and run.spent_usd >= budget


def _count(u: RunTransition, step: Step, event: AttemptFinished) -> Step:
    """Add what an attempt cost to what the run has spent, once however often its result comes. Each
    delivery costs; what is executed twice under one number makes the same calls, and costs as much as
    the dearer of the two."""
    cost = event.spend.cost_usd
    if not cost:
        return step
    counted = {(attempt, delivery): known for attempt, delivery, known in step.counted}
    execution = (event.attempt, event.delivery)
    news = cost - counted.get(execution, Decimal(0))
    if news <= 0:
        return step
    counted[execution] = cost
    u.change(spent_usd=u.run.spent_usd + news)
    count_cost(u, step, news)
    kept = tuple((attempt, delivery, known) for (attempt, delivery), known in counted.items())
    return u.note(replace(step, counted=kept[-MAX_COUNTED:]))


def _hold(u: RunTransition, event: AttemptFinished) -> None:
    key = (event.step, event.attempt)
    if key not in u.run.early and len(u.run.early) < MAX_EARLY:
        early: Map[tuple[str, int], AttemptFinished] = u.run.early.set(key, event)
        u.change(early=early)
        u.size_bytes += result_size(event)


def _late_outcome(step: Step, event: AttemptFinished) -> str:
    """Tell the end of an attempt that was stopped from one that nobody waited for any more."""
    error = event.error
    stopped = error is not None and error.error_class is ErrorClass.CANCELLED
    return "cancelled" if stopped and step.state is StepState.CANCELLED else "late"


def _record(u: RunTransition, step: Step, event: AttemptFinished, outcome: str) -> None:
    u.commands.append(
        RecordAttempt(
            key=step.key,
            attempt=event.attempt,
            outcome=outcome,
            error=event.error,
            dispatched_at_ms=step.dispatched_at_ms,
            started_at_ms=event.started_at_ms or None,
            finished_at_ms=u.now_ms,
            worker=event.worker,
        )
    )


def child_of(u: RunTransition, step: Step) -> RunAccepted:
    node = u.node_plan(step).node
    assert isinstance(node, PipelineNode)
    run = u.run
    assert step.deadline_at_ms is not None
    assert step.dispatched_at_ms is not None
    deadline_at_ms = step.deadline_at_ms
    if node.timeout_ms is not None:
        deadline_at_ms = min(deadline_at_ms, step.dispatched_at_ms + node.timeout_ms)
    return RunAccepted(
        run_id=child_run_id(run.run_id, step.key, step.attempt),
        tenant=run.tenant,
        pipeline=node.pipeline,
        version=node.version or 0,
        input=_child_input(step),
        priority=run.priority,
        deadline_at_ms=deadline_at_ms,
        budget_usd=_budget_left(run),
        traceparent=run.traceparent,
        parent=RunParent(
            run_id=run.run_id,
            step=step.key,
            attempt=step.attempt,
            partition=run.partition,
            depth=run.depth + 1,
            dispatched_at_ms=step.dispatched_at_ms,
            capability=_capability(u, step),
            runs_left=share_of(u, step),
        ),
        origin=child_origin(u, step),
        labels=run.labels,
    )
