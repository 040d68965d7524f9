"""What is kept of an attempt that ended, and what follows if it gave no output: the step is retried
after a backoff (`retry`), handed out again because its worker did not know the handler, suspended
(`suspension/`), or failed."""

from decimal import Decimal

from hocket.coordinator.core.run.commands import RecordAttempt
from hocket.coordinator.core.run.constructs.planned import count_cost
from hocket.coordinator.core.run.plan.nodes import LEAF
from hocket.coordinator.core.run.retries import (
    NOT_HERE,
    STOPPED,
    TAKEN,
    asked_anew_ms,
    backoff_ms,
    is_passed_on,
)
from hocket.coordinator.core.run.state.charges import add_of_sub_run, charge
from hocket.coordinator.core.run.state.messages import cancel_attempt
from hocket.coordinator.core.run.state.run import BACKOFF, CANCELLED, Run, Step
from hocket.coordinator.core.run.suspension.calls import forget_failed
from hocket.coordinator.core.run.suspension.suspended import suspended
from hocket.coordinator.core.run.transition import Transition
from hocket.coordinator.core.time.timestamps import nearest
from hocket.schemas.errors import ErrorClass, ErrorInfo
from hocket.schemas.messages import AttemptFinished, RunCharged

MAX_COUNTED = 64
"""The most paid executions of one step that are remembered, so that a repeated result is recognized."""
_OUTSIDE = -1
"""Takes the place of a delivery's number for the costs of calls that named a sub-run."""
_CHARGED = (0, -1)
"""Takes the place of an execution, for the costs of calls that named a step without its report."""
_EARLIER = (0, 0)
"""Takes the place of an execution, for what those before them cost together: attempts begin at 1."""
_NOTHING = Decimal(0)


def note_end(t: Transition, step: Step, event: AttemptFinished) -> None:
    """Record what the worker of the present attempt reports about it."""
    if step.is_repeated:  # its second message may still reach a worker
        t.commands.append(cancel_attempt(t.run, step, "its result has arrived"))
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
    """Handle an attempt that failed, or whose handler waits; tell whether the step's next attempt
    is to go out at once."""
    if event.waits:
        record(t, step, event, "suspended")
        return suspended(t, step, event)
    assert event.error is not None, step.key
    failed(t, step, event, event.error)
    return False


def count_spend(t: Transition, step: Step, event: AttemptFinished) -> None:
    """Add what an attempt cost to what the run has spent, once however often its result arrives.
    Each delivery costs; an execution repeated under one number makes the same calls, and counts as
    much as the dearer of the two."""
    news_usd = spent_news(t.run, step, event)
    if news_usd:
        t.run_changed = True
        t.note(step)
        count_cost(step, news_usd)


def count_charge(t: Transition, event: RunCharged) -> None:
    """Add what calls cost that no step reports to what the run has spent, and to what the agents and
    planners have spent that the named step works for."""
    news_usd = charge(t.run, event)
    if not news_usd:
        return
    t.run_changed = True
    step = None if event.step is None else t.run.steps.get(event.step)
    if step is not None and (step.home is not None or step.node.agent is not None):
        counted_usd = [usd for *execution, usd in step.counted if execution == [*_CHARGED]]
        _news_usd(step, _CHARGED, sum(counted_usd, news_usd))
        t.note(step)
        count_cost(step, news_usd)


def spent_news(run: Run, step: Step, event: AttemptFinished) -> Decimal:
    """Add to a run and its step what an attempt reports and was not counted yet; return how much."""
    outside_usd = _news_usd(step, (event.attempt, _OUTSIDE), event.outside_usd)
    if outside_usd:
        add_of_sub_run(run, outside_usd)
    return _reported_news(run, step, event) + outside_usd


def _reported_news(run: Run, step: Step, event: AttemptFinished) -> Decimal:
    execution = (event.attempt, event.delivery)
    is_first = all(one[:2] != execution for one in step.counted)
    news_usd = _news_usd(step, execution, event.spend.cost_usd)
    if news_usd:
        if is_first and event.spend.charged_usd:
            step.charged_usd += min(event.spend.charged_usd, news_usd)
        run.spent_usd += news_usd
    return news_usd


def _news_usd(step: Step, execution: tuple[int, int], cost_usd: Decimal) -> Decimal:
    """Return by how much an execution's cost exceeds what was counted of it so far, and count it."""
    if not cost_usd:
        return _NOTHING
    counted = {(attempt, delivery): known for attempt, delivery, known in step.counted}
    news_usd = cost_usd - counted.get(execution, _NOTHING)
    if news_usd > 0:
        counted[execution] = cost_usd
        earlier_usd = counted.pop(_EARLIER, _NOTHING)
        kept = [(attempt, delivery, known) for (attempt, delivery), known in counted.items()]
        forgotten, kept = kept[:-MAX_COUNTED], kept[-MAX_COUNTED:]
        earlier_usd += sum((known for _, _, known in forgotten), _NOTHING)
        step.counted = ((*_EARLIER, earlier_usd), *kept) if earlier_usd else tuple(kept)
    return max(news_usd, _NOTHING)


def failed(t: Transition, step: Step, event: AttemptFinished, error: ErrorInfo) -> None:
    """Retry a step after a backoff if its policy and the deadline leave room; otherwise let it fail."""
    run = t.run
    retry = step.node.spec.retry
    if is_passed_on(error, step.node.type):
        _pass_on(t, step, error)
        return
    if step.role == LEAF and error.code == STOPPED:
        _after_stop(t, step, event, error)
        return
    tried = event.attempt - step.suspensions - step.untried
    wait_ms = backoff_ms(
        retry, error, run_id=run.run_id, step=step.key, attempt=tried, now_ms=t.now_ms
    )
    if wait_ms is None or t.now_ms + wait_ms >= run.latest_deadline_at_ms:
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
    """Return the number of a step's next attempt: the same again if its worker passed it on,
    otherwise one more."""
    if step.error is not None and step.error.code in (NOT_HERE, TAKEN):
        step.error = None
        return step.attempt
    return step.attempt + 1


def supersede(t: Transition, step: Step) -> None:
    """End the present attempt, because another one is to take its place."""
    if step.role == LEAF:
        t.commands.append(cancel_attempt(t.run, step, "superseded"))
    step.tries = (*step.tries, step.past(t.now_ms))


def late_outcome(step: Step, event: AttemptFinished) -> str:
    """Return `cancelled` for an attempt that was stopped, `late` for one that was no longer waited
    for."""
    error = event.error
    stopped = error is not None and error.error_class is ErrorClass.CANCELLED
    return "cancelled" if stopped and step.state == CANCELLED else "late"


def record(t: Transition, step: Step, event: AttemptFinished, outcome: str) -> None:
    """Record an attempt that did not end its step."""
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


def _after_stop(t: Transition, step: Step, event: AttemptFinished, error: ErrorInfo) -> None:
    """Hand out the next attempt of a step whose worker was told to give the present one up: that was
    decided upon a result at the end of the log, and lost with it. It is no retry."""
    past = step.past(t.now_ms)
    _pass_on(t, step, error)
    if step.state == BACKOFF:
        record(t, step, event, "cancelled")
        step.tries = (*step.tries, past)
        step.untried += 1


def _pass_on(t: Transition, step: Step, error: ErrorInfo) -> None:
    """Hand an attempt that its worker passed on out again after a while; `attempt_after_backoff` tells
    its number. This is no failure, and goes on until the run's deadline."""
    waited_ms = t.now_ms - step.ready_at_ms
    wait_ms = asked_anew_ms(waited_ms, run_id=t.run.run_id, step=step.key)
    if t.now_ms + wait_ms >= t.run.latest_deadline_at_ms:
        t.keep(step)
        t.fail(step, error)
        return
    step.state = BACKOFF
    step.error = error
    step.wake_at_ms = nearest(t.now_ms + wait_ms)
    t.keep(step)
