"""Events that come after the end of their run. They change no end, but what their attempts spent was
paid: it counts towards the run, its step and the runs above."""

from hocket.coordinator.core.run.commands import RecordAttempt, ReleaseCache
from hocket.coordinator.core.run.constructs.attempt_ends import spent_news
from hocket.coordinator.core.run.constructs.deadline_actions import waited_in_vain
from hocket.coordinator.core.run.state.messages import TellSpending
from hocket.coordinator.core.run.state.run import Run, Step
from hocket.coordinator.core.run.transition import Outcome
from hocket.schemas.errors import ErrorClass
from hocket.schemas.messages import AttemptFinished, CacheAnswered, RunEvent


def came_late(run: Run, event: RunEvent, now_ms: float) -> Outcome:
    """Record a result that is no longer waited for, and what it cost; give an unused turn to compute
    back."""
    outcome = Outcome(run)
    if isinstance(event, CacheAnswered) and not event.hit:
        outcome.commands.append(ReleaseCache(event.key, event.run_id, event.step))
    elif isinstance(event, AttemptFinished):
        step = run.steps.get(event.step)
        if step is not None:
            _count(outcome, step, event)
            if _is_recorded(event):
                outcome.commands.append(_record(step, event, now_ms))
    return outcome


def _count(outcome: Outcome, step: Step, event: AttemptFinished) -> None:
    if spent_news(outcome.run, step, event):
        outcome.spender = step
        if outcome.run.parent is not None:
            outcome.commands.append(TellSpending(outcome.run))


def _is_recorded(event: AttemptFinished) -> bool:
    if event.retold or waited_in_vain(event):
        return False
    return event.error is None or event.error.error_class is not ErrorClass.CANCELLED


def _record(step: Step, event: AttemptFinished, now_ms: float) -> RecordAttempt:
    return RecordAttempt(
        key=step.key,
        attempt=event.attempt,
        outcome="late",
        error=event.error,
        dispatched_at_ms=step.dispatched_at_ms,
        started_at_ms=event.started_at_ms or None,
        finished_at_ms=now_ms,
        worker=event.worker,
    )
