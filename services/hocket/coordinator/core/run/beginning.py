"""How runs begin: accepted, rejected for want of workers, or refused because they cannot begin."""

from hocket.coordinator.core.flow.entry import enter
from hocket.coordinator.core.run.constructs.graph import open_run
from hocket.coordinator.core.run.constructs.reuse import Reuse
from hocket.coordinator.core.run.constructs.sub_runs import budget_of_sub_run
from hocket.coordinator.core.run.plan.nodes import PipelinePlan
from hocket.coordinator.core.run.plan.step_deadlines import PlanForecast
from hocket.coordinator.core.run.state.messages import EndRun
from hocket.coordinator.core.run.state.run import RUN_FAILED, RUN_REJECTED, Owner, Run
from hocket.coordinator.core.run.state.values import Json, json_of
from hocket.coordinator.core.run.transition import Outcome, Transition
from hocket.coordinator.core.run.work import work_off
from hocket.coordinator.core.time.timestamps import nearest, not_before
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.messages import RunAccepted
from hocket.schemas.pipeline.plan import complete_input


def accept(
    event: RunAccepted,
    plan: PipelinePlan,
    owner: Owner,
    *,
    now_ms: float,
    forecast: PlanForecast,
    reuse: Reuse | None = None,
) -> Outcome:
    """Begin an admitted run; `reuse` holds what it takes over from the run that it repeats."""
    completed = complete_input(plan.source, event.input)
    run = _run_of(event, plan, owner, json_of(completed), now_ms)
    if event.parent is not None:
        run.budget_usd = budget_of_sub_run(event.budget_usd, plan.source.pipeline.budget_usd)
    if reuse is not None:
        run.reuse = reuse
    if run.parent is not None and reuse is None:
        run.origin = None  # the run that it repeats had not ended, so nothing is taken over
    t = Transition(run, forecast, now_ms)
    t.run_changed = True
    t.arm(run.deadline_at_ms)
    if plan.flow:
        enter(t)
    else:
        open_run(t)
    work_off(t)
    return t


def reject(event: RunAccepted, owner: Owner, *, now_ms: float) -> Outcome:
    """Return a rejected run, already ended."""
    assert event.rejected is not None, event.run_id
    return _ended(event, owner, RUN_REJECTED, event.rejected, now_ms)


def refuse(event: RunAccepted, error: ErrorInfo, owner: Owner, *, now_ms: float) -> Outcome:
    """Return a run that could not begin, already failed."""
    return _ended(event, owner, RUN_FAILED, error, now_ms)


def _ended(
    event: RunAccepted, owner: Owner, status: str, error: ErrorInfo, now_ms: float
) -> Outcome:
    run = _run_of(event, None, owner, json_of(event.input), now_ms)
    run.status = status
    run.error = error
    run.finished_at_ms = not_before(now_ms)
    outcome = Outcome(run)
    outcome.run_changed = True
    outcome.commands.append(EndRun(run))
    return outcome


def _run_of(
    event: RunAccepted, plan: PipelinePlan | None, owner: Owner, given: Json, now_ms: float
) -> Run:
    run = Run(
        owner,
        plan,
        run_id=event.run_id,
        tenant=event.tenant,
        pipeline=event.pipeline,
        version=event.version,
        priority=event.priority,
        given=given,
        accepted_at_ms=not_before(now_ms),
        deadline_at_ms=nearest(event.deadline_at_ms),
    )
    run.budget_usd = event.budget_usd
    run.idempotency_key = event.idempotency_key
    run.reply_to = event.reply_to
    run.progress = event.progress
    run.set_seldom(
        traceparent=event.traceparent,
        parent=event.parent,
        origin=event.origin,
        labels=event.labels,
        probe=event.probe,
    )
    run.size_bytes = given.size
    return run
