"""What is kept of an attempt that ended, and what follows where it gave no output: the step is tried
again after a backoff (`retry`), handed out again where its worker did not know the handler, waits
(`suspension/`), or fails."""

from decimal import Decimal

from hocket.coordinator.core.run.commands import RecordAttempt
from hocket.coordinator.core.run.constructs.planned import count_cost
from hocket.coordinator.core.run.plan.nodes import LEAF
from hocket.coordinator.core.run.retries import NOT_HERE, asked_anew_ms, backoff_ms
from hocket.coordinator.core.run.state.charges import add_of_sub_run
from hocket.coordinator.core.run.state.messages import cancel_attempt
from hocket.coordinator.core.run.state.run import BACKOFF, CANCELLED, Step
from hocket.coordinator.core.run.suspension.calls import forget_failed
from hocket.coordinator.core.run.suspension.suspended import suspended
from hocket.coordinator.core.run.transition import Transition
from hocket.coordinator.core.time.timestamps import nearest
from hocket.schemas.errors import ErrorClass, ErrorInfo
from hocket.schemas.messages import AttemptFinished

PYTHON = "python"
MAX_COUNTED = 64
"""Paid executions of one step that are remembered, to know a result that comes again."""
_OUTSIDE = -1
"""Stands, where the number of a delivery does, for the calls that named a sub-run."""
_NOTHING = Decimal(0)


def note_end(t: Transition, step: Step, event: AttemptFinished) -> None:
    """Keep what whoever ran the present attempt says of it."""
    if step.is_repeated:  # the second message of it may reach a worker yet
        t.commands.append(cancel_attempt(t.run, step, "its result has come"))
        step.set_seldom(is_repeated=False)
    started_at_ms = event.started_at_ms
    if started_at_ms:
        step.started_at_ms = nearest(started_at_ms)
        step.took_ms = max(0.0, event.finished_at_ms - started_at_ms)
    else:
        step.started_at_ms = None
        step.took_ms = None
    step.queued_at_ms = nearest(event.queued_at_ms) or None
    if step.timing is not event.timing:
        step.timing = event.timing
    step.worker = event.worker


def gave_nothing(t: Transition, step: Step, event: AttemptFinished) -> bool:
    """Do what follows an attempt that failed, or whose handler waits; tell whether the step's next one
    is to go out at once."""
    if event.waits:
        record(t, step, event, "suspended")
        return suspended(t, step, event)
    assert event.error is not None, step.key
    failed(t, step, event, event.error)
    return False


def count_spend(t: Transition, step: Step, event: AttemptFinished) -> None:
    """Add what an attempt cost to what the run has spent, once however often its result comes. Each
    delivery costs; what is executed twice under one number makes the same calls, and costs as much
    as the dearer of the two."""
    execution = (event.attempt, event.delivery)
    is_first = all(one[:2] != execution for one in step.counted)
    news_usd = _news_usd(t, step, execution, event.spend.cost_usd)
    if news_usd > 0:
        if is_first and event.spend.charged_usd:
            step.charged_usd += min(event.spend.charged_usd, news_usd)
        t.run.spent_usd += news_usd
        t.run_changed = True
        count_cost(step, news_usd)
    outside_usd = _news_usd(t, step, (event.attempt, _OUTSIDE), event.outside_usd)
    if outside_usd > 0:
        add_of_sub_run(t.run, outside_usd)
        t.run_changed = True
        count_cost(step, outside_usd)


def _news_usd(t: Transition, step: Step, execution: tuple[int, int], cost_usd: Decimal) -> Decimal:
    """Return how much more an execution cost than was counted of it; now that is counted."""
    if not cost_usd:
        return _NOTHING
    counted = {(attempt, delivery): known for attempt, delivery, known in step.counted}
    news_usd = cost_usd - counted.get(execution, _NOTHING)
    if news_usd > 0:
        counted[execution] = cost_usd
        kept = [(attempt, delivery, known) for (attempt, delivery), known in counted.items()]
        step.counted = tuple(kept[-MAX_COUNTED:])
        t.note(step)
    return news_usd


def failed(t: Transition, step: Step, event: AttemptFinished, error: ErrorInfo) -> None:
    """Try a step again after a backoff, where its policy and the deadline leave room; else it fails."""
    run = t.run
    retry = step.node.spec.retry
    if error.code == NOT_HERE and step.node.type == PYTHON:
        _pass_on(t, step, error)
        return
    tried = event.attempt - step.suspensions
    wait_ms = backoff_ms(
        retry, error, run_id=run.run_id, step=step.key, attempt=tried, now_ms=t.now_ms
    )
    if wait_ms is None or t.now_ms + wait_ms >= run.deadline_at_ms:
        t.keep(step)
        t.fail(step, error)
        return
    forget_failed(t, step)
    outcome = "timed_out" if error.error_class is ErrorClass.TIMEOUT else "failed"
    record(t, step, event, outcome)
    step.state = BACKOFF
    step.error = error
    step.wake_at_ms = nearest(t.now_ms + wait_ms)
    step.tries = (*step.tries, step.past(t.now_ms))
    t.keep(step)


def attempt_after_backoff(step: Step) -> int:
    """Return the number of a step's next attempt: that of the one which its worker passed on, or one
    more."""
    if step.error is not None and step.error.code == NOT_HERE:
        step.error = None
        return step.attempt
    return step.attempt + 1


def supersede(t: Transition, step: Step) -> None:
    """End the present attempt, because another one is to take its place."""
    if step.role == LEAF:
        t.commands.append(cancel_attempt(t.run, step, "superseded"))
    step.tries = (*step.tries, step.past(t.now_ms))


def late_outcome(step: Step, event: AttemptFinished) -> str:
    """Tell the end of an attempt that was stopped from one that nobody waited for any more."""
    error = event.error
    stopped = error is not None and error.error_class is ErrorClass.CANCELLED
    return "cancelled" if stopped and step.state == CANCELLED else "late"


def record(t: Transition, step: Step, event: AttemptFinished, outcome: str) -> None:
    """Have an attempt recorded that did not end its step."""
    t.commands.append(
        RecordAttempt(
            key=step.key,
            attempt=event.attempt,
            outcome=outcome,
            error=None if event.waits else event.error,
            dispatched_at_ms=step.dispatched_at_ms,
            started_at_ms=event.started_at_ms or None,
            finished_at_ms=t.now_ms,
            worker=event.worker,
        )
    )


def _pass_on(t: Transition, step: Step, error: ErrorInfo) -> None:
    """Hand an attempt out again after a while, under its number, that its worker does not know: another
    one may. It is no failure, and waits until the run's deadline."""
    waited_ms = t.now_ms - step.ready_at_ms
    wait_ms = asked_anew_ms(waited_ms, run_id=t.run.run_id, step=step.key)
    if t.now_ms + wait_ms >= t.run.deadline_at_ms:
        t.keep(step)
        t.fail(step, error)
        return
    step.state = BACKOFF
    step.error = error
    step.wake_at_ms = nearest(t.now_ms + wait_ms)
    t.keep(step)
