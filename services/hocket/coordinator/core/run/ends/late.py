"""Events that come after the end of their run. They change no end, but what attempts and calls spent
was paid: it counts towards the run, its step and the runs above."""

from hocket.coordinator.core.run.commands import RecordAttempt, ReleaseCache
from hocket.coordinator.core.run.constructs.attempt_ends import spent_news
from hocket.coordinator.core.run.constructs.deadline_actions import waited_in_vain
from hocket.coordinator.core.run.faults import RunNotStorable
from hocket.coordinator.core.run.state.charges import charge
from hocket.coordinator.core.run.state.messages import TellSpending
from hocket.coordinator.core.run.state.run import Run, Step
from hocket.coordinator.core.run.transition import Outcome
from hocket.schemas.errors import ErrorClass
from hocket.schemas.messages import AttemptFinished, CacheAnswered, RunCharged, RunEvent


class SpentBefore:
    """What an ended run and the step of an event had spent before the event, which is all that it
    changes: an exception may leave it half changed, and the rows of a run that Postgres refuses do not
    say yet that it has ended, so that it cannot be read back from them."""

    __slots__ = ("_charged_usd", "_charges", "_counted", "_run", "_spent_usd", "_step", "_untold")

    def __init__(self, run: Run, event: RunEvent) -> None:
        self._run = run
        self._spent_usd = run.spent_usd
        self._charges, self._untold = run.charges, run.untold
        self._step = run.steps.get(event.step) if isinstance(event, AttemptFinished) else None
        if self._step is not None:
            self._counted = self._step.counted
            self._charged_usd = self._step.charged_usd

    def restore(self) -> None:
        """Let the run be as it was."""
        self._run.spent_usd = self._spent_usd
        self._run.set_seldom(charges=self._charges, untold=self._untold)
        if self._step is not None:
            self._step.counted = self._counted
            self._step.charged_usd = self._charged_usd


def came_late(run: Run, event: RunEvent, now_ms: float) -> Outcome:
    """Record a result that is no longer waited for, and what it or a call cost; give an unused turn to
    compute back."""
    outcome = Outcome(run)
    if isinstance(event, CacheAnswered) and not event.hit:
        outcome.commands.append(ReleaseCache(event.key, event.run_id, event.step))
    elif isinstance(event, RunCharged):
        if _counts(run) and charge(run, event):
            _spent(outcome, run)
    elif isinstance(event, AttemptFinished):
        step = run.steps.get(event.step)
        if step is not None:
            if _counts(run) and spent_news(run, step, event):
                _spent(outcome, step)
            if _is_recorded(event):
                outcome.commands.append(_record(step, event, now_ms))
    return outcome


def _counts(run: Run) -> bool:
    """Tell whether a run counts what is spent after its end. One that Postgres refuses is not changed
    any more: its bare rows are made from it, and must be those of where it was refused."""
    return run.error is None or run.error.code != RunNotStorable.code


def _spent(outcome: Outcome, spender: Step | Run) -> None:
    """Note for which step, or beside which steps, more was spent."""
    outcome.spender = spender
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
