"""The ends of everything that runs under a step, and of the run. Every way to a terminal run goes
through `end_run`, which leaves nothing alive."""

from hocket.coordinator.core.run.commands import CancelSubRun, ReleaseCache
from hocket.coordinator.core.run.ends.critical_path import critical_path
from hocket.coordinator.core.run.plan.nodes import LEAF, SUBRUN
from hocket.coordinator.core.run.state.messages import EndRun, cancel_attempt
from hocket.coordinator.core.run.state.run import (
    CANCELLED,
    DISPATCHED,
    RUN_EXPIRED,
    RUN_FAILED,
    Step,
)
from hocket.coordinator.core.run.state.values import NULL, Json
from hocket.coordinator.core.run.transition import Transition, live_below
from hocket.schemas.errors import ErrorClass, ErrorInfo, HocketError
from hocket.schemas.ids import child_run_id


class DeadlineExceeded(HocketError):
    """The run did not end by its deadline, {slo_ms} ms after it was accepted. See where the time went:
    `hocket runs show {run_id}`."""

    code = "deadline_exceeded"
    error_class = ErrorClass.TIMEOUT


def cancel_below(t: Transition, step: Step | None, reason: str) -> None:
    """Cancel every live step under a step (None for all of the run)."""
    for live in live_below(t.run, step):
        _cancel(t, live, reason)


def cancel_step(t: Transition, step: Step, reason: str) -> None:
    """Cancel a live step and every live step under it; nobody is notified."""
    cancel_below(t, step, reason)
    _cancel(t, step, reason)


def _cancel(t: Transition, live: Step, reason: str) -> None:
    withdraw(t, live, reason)
    live.state = CANCELLED
    live.finished_at_ms = t.now_ms
    live.wake_at_ms = None
    t.keep(live)
    close_scope(live)


def withdraw(t: Transition, step: Step, reason: str) -> None:
    """Tell whoever works on a step that its result is no longer wanted."""
    if step.state == DISPATCHED and step.role == LEAF:
        t.commands.append(cancel_attempt(t.run, step, reason))
    elif step.state == DISPATCHED and step.role == SUBRUN:
        t.commands.append(CancelSubRun(child_run_id(t.run.run_id, step.key, step.attempt), reason))
    release_cache(t, step)


def release_cache(t: Transition, step: Step) -> None:
    """Tell the cache that a step has no output for it, so that another step computes it."""
    if step.cache_key is not None:
        t.commands.append(ReleaseCache(step.cache_key, t.run.run_id, step.key))
        step.cache_key = None


def end_run(
    t: Transition, status: str, *, output: Json = NULL, error: ErrorInfo | None = None
) -> None:
    """End the run: nothing of it stays alive, and its caller is told after the commit."""
    run = t.run
    assert not run.has_ended, run.run_id
    cancel_below(t, None, error.code if error else status)
    t.todo.clear()
    if run.paused_at_ms is not None:
        move_deadline(t)
    run.status = status
    run.output = output
    run.error = error
    run.finished_at_ms = t.now_ms
    run.critical_path = tuple(critical_path(run, t.now_ms))
    if run.reuse is not None:
        run.reuse = None
    t.run_changed = True
    t.commands.append(EndRun(run))


def move_deadline(t: Transition) -> None:
    """Resume the paused deadline, moved by the time waited."""
    run = t.run
    run.deadline_at_ms = run.deadline_seen_at_ms(t.now_ms)
    run.paused_at_ms = None
    t.run_changed = True


def fail_run(t: Transition, error: ErrorInfo) -> None:
    """End the run because of an error. If its deadline has come, it has expired instead: attempts
    are stopped at that moment, and their reports may be in the log before the timer."""
    if deadline_has_come(t):
        expire_run(t)
    else:
        end_run(t, RUN_FAILED, error=error)


def expire_run(t: Transition) -> None:
    """End the run because its deadline has come."""
    run = t.run
    slo_ms = max(round(run.deadline_seen_at_ms(t.now_ms) - run.accepted_at_ms), 0)
    error = DeadlineExceeded(slo_ms=slo_ms, run_id=run.run_id)
    end_run(t, RUN_EXPIRED, error=error.info())


def deadline_has_come(t: Transition) -> bool:
    """Tell whether the run's deadline has come. While it is paused, only the timeout of the step above
    ends the run."""
    return t.run.expires_at_ms <= t.now_ms


def close_scope(step: Step) -> None:
    """Let nothing more begin under a step that failed or was given up."""
    if step.scope is not None:
        step.scope.is_open = False
