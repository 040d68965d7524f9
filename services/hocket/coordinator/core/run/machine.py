"""Maps each event of the log to the rule that applies it to a run.

`apply` changes the run in place and returns what changed and what the shell must do. An event for a
run that has ended changes only what the run has spent; one from a sender that cannot be the
attempt's worker changes nothing. If an event cannot be applied, an exception is raised: the run is
then half changed, and must be read back from its rows.
"""

from hocket.coordinator.core.flow.entry import decided
from hocket.coordinator.core.run.constructs.attempt_ends import count_charge
from hocket.coordinator.core.run.constructs.deadline_actions import (
    give_up,
    turn_came,
    waited_in_vain,
)
from hocket.coordinator.core.run.constructs.redispatch import hand_out_again, returned
from hocket.coordinator.core.run.constructs.result_checks import may_tell
from hocket.coordinator.core.run.constructs.results import (
    cache_answered,
    finished,
    woken,
)
from hocket.coordinator.core.run.constructs.waits import signal_received, wait_timed_out
from hocket.coordinator.core.run.ends.ending import deadline_has_come, end_run, expire_run
from hocket.coordinator.core.run.ends.late import came_late
from hocket.coordinator.core.run.plan.step_deadlines import PlanForecast
from hocket.coordinator.core.run.state.run import (
    RUN_CANCELLED,
    RUN_FAILED,
    WAITING,
    Run,
    Step,
    is_suspended,
)
from hocket.coordinator.core.run.transition import Outcome, Transition, next_due_ms, take_due
from hocket.coordinator.core.run.work import work_off
from hocket.schemas.errors import ErrorClass, ErrorInfo, HocketError
from hocket.schemas.messages import (
    AttemptFinished,
    AttemptReturned,
    CacheAnswered,
    CancelRequested,
    FlowDecided,
    RunAccepted,
    RunCharged,
    RunEvent,
    SignalReceived,
    TimerFired,
)


class RunCancelled(HocketError):
    """The run was cancelled by {by}: {reason}."""

    code = "cancelled"
    error_class = ErrorClass.CANCELLED


def apply(
    run: Run,
    event: RunEvent,
    now_ms: float,
    forecast: PlanForecast | None,
    *,
    believed: bool = False,
) -> Outcome:
    """Apply an event of the log to a run; `now_ms` is the log's own time. `forecast` is None only
    for a run that has ended. `believed`: the sender is already known to be the attempt's worker."""
    if isinstance(event, AttemptFinished | AttemptReturned) and not (
        believed or may_tell(run, event, run.owner.capabilities)
    ):
        return Outcome(run)
    if run.has_ended:
        return came_late(run, event, now_ms)
    if isinstance(event, RunAccepted):
        return Outcome(run)
    if isinstance(event, TimerFired):
        now_ms = max(now_ms, event.due_at_ms)
    assert forecast is not None, run.run_id
    t = Transition(run, forecast, now_ms)
    _apply(t, event)
    work_off(t)
    return t


def resume(run: Run, now_ms: float, forecast: PlanForecast) -> Outcome:
    """Return what a new owner must do for a run in flight: hand its attempts out again (the same
    messages, so that repeats are dropped) and ask for its next wake-up."""
    t = Transition(run, forecast, now_ms)
    hand_out_again(t)
    run.armed_at_ms = None
    t.arm(_next_wake_ms(run))
    return t


def abort(run: Run, error: ErrorInfo, now_ms: float) -> Outcome:
    """End a run that cannot go on."""
    assert run.plan is not None, run.run_id
    t = Transition(run, PlanForecast(run.plan, {}), now_ms)
    end_run(t, RUN_FAILED, error=error)
    work_off(t)
    return t


def _apply(t: Transition, event: RunEvent) -> None:
    if isinstance(event, AttemptFinished):
        if waited_in_vain(event):
            turn_came(t, event)
        else:
            finished(t, event)
    elif isinstance(event, AttemptReturned):
        returned(t, event)
    elif isinstance(event, TimerFired):
        _time_passed(t)
    elif isinstance(event, SignalReceived):
        signal_received(t, event)
    elif isinstance(event, CacheAnswered):
        cache_answered(t, event)
    elif isinstance(event, RunCharged):
        count_charge(t, event)
    elif isinstance(event, FlowDecided):
        decided(t, event)
    elif isinstance(event, CancelRequested):
        error = RunCancelled(by=event.by or "somebody", reason=event.reason or "no reason given")
        end_run(t, RUN_CANCELLED, error=error.info())


def _time_passed(t: Transition) -> None:
    run = t.run
    run.armed_at_ms = None
    if deadline_has_come(t):
        expire_run(t)
        return
    for step in take_due(run, t.now_ms):
        if run.has_ended:
            return
        if run.is_live(step):  # otherwise it was just withdrawn with its container
            _step_is_due(t, step)
    t.arm(_next_wake_ms(run))


def _step_is_due(t: Transition, step: Step) -> None:
    if step.give_up_at_ms is not None and step.give_up_at_ms <= t.now_ms:
        if t.run.paused_at_ms is None:
            give_up(t, step)
            return
        # the deadline is paused: the node is watched again once it resumes
        step.give_up_at_ms = None
        if step.wake_at_ms is None or step.wake_at_ms > t.now_ms:
            t.keep(step)
            return
        t.note(step)
    if step.state == WAITING or is_suspended(step):
        wait_timed_out(t, step)
    else:
        woken(t, step)


def _next_wake_ms(run: Run) -> float:
    return min(run.expires_at_ms, next_due_ms(run))
