"""Ends: of what runs under a step, and of the run. Every path to a terminal run goes through
`end_run`, which leaves nothing alive."""

from typing import Any

from hocket.coordinator.core.reuse.caching import released
from hocket.coordinator.core.run.commands import CancelSubRun, EndRun, cancel_attempt
from hocket.coordinator.core.run.state import Role, Run, RunStatus, Step, StepState
from hocket.coordinator.core.run.transition import RunTransition
from hocket.coordinator.core.structures.frozen import replace
from hocket.coordinator.core.time.critical_path import critical_path
from hocket.schemas.errors import ErrorClass, ErrorInfo, HocketError
from hocket.schemas.ids import child_run_id
from hocket.schemas.messages import RunFinished, TaskRejected


class DeadlineExceeded(HocketError):
    """The run did not end by its deadline, {slo_ms} ms after it was accepted. Look at where the time
    went: `hocket runs show {run_id}`."""

    code = "deadline_exceeded"
    error_class = ErrorClass.TIMEOUT


def cancel_below(u: RunTransition, key: str, reason: str) -> None:
    """Cancel every live step under a step ("" for all of the run)."""
    for live in u.below(key):
        cancel_step(u, live, reason)


def cancel_step(u: RunTransition, key: str, reason: str) -> None:
    """Cancel one live step and tell whoever works on it; its parent is not asked."""
    step = withdraw(u, u.steps[key], reason)
    u.put(replace(step, state=StepState.CANCELLED, finished_at_ms=u.now_ms, wake_at_ms=None))
    u.scopes.pop(key, None)
    u.tallies.pop(key, None)


def withdraw(u: RunTransition, step: Step, reason: str) -> Step:
    """Tell whoever works on a step that nobody waits for it any more."""
    if step.state is StepState.DISPATCHED and step.role is Role.LEAF:
        u.commands.append(cancel_attempt(u.run, step, reason))
    elif step.role is Role.SUBRUN and step.state is StepState.DISPATCHED:
        child = child_run_id(u.run.run_id, step.key, step.attempt)
        u.commands.append(CancelSubRun(child, reason))
    return released(u, step)


def end_run(
    u: RunTransition, status: RunStatus, *, output: Any = None, error: ErrorInfo | None = None
) -> None:
    """End the run: nothing of it stays alive, and after the commit its caller hears of it."""
    assert not u.run.ended, u.run.run_id
    cancel_below(u, "", error.code if error else str(status))
    u.todo.clear()
    u.change(
        status=status,
        output=output,
        error=error,
        finished_at_ms=u.now_ms,
        critical_path=critical_path(u, u.now_ms),
        reuse=None,
    )
    u.commands.append(EndRun(finished_of(u.run)))


def fail_run(u: RunTransition, error: ErrorInfo) -> None:
    """End the run for an error; one that fails when its deadline has come has expired: attempts are
    stopped at that moment, and what they say may be in the log before the timer."""
    if deadline_has_come(u):
        expire_run(u)
    else:
        end_run(u, RunStatus.FAILED, error=error)


def expire_run(u: RunTransition) -> None:
    """End the run because its deadline has come."""
    slo_ms = round(u.run.deadline_at_ms - u.run.accepted_at_ms)
    error = DeadlineExceeded(slo_ms=slo_ms, run_id=u.run.run_id)
    end_run(u, RunStatus.EXPIRED, error=error.info())


def deadline_has_come(u: RunTransition) -> bool:
    """Tell whether the run's time is over; it stands still while the run is paused."""
    return u.run.paused_at_ms is None and u.run.deadline_at_ms <= u.now_ms


def rejected_of(run: Run) -> TaskRejected:
    """Return the public fact of a run that was rejected."""
    assert run.error is not None, run.run_id
    return TaskRejected(
        tenant=run.tenant, pipeline=run.pipeline, error=run.error, task_id=run.run_id
    )


def finished_of(run: Run) -> RunFinished:
    """Return the public fact of a run that has ended."""
    assert run.finished_at_ms is not None, run.run_id
    return RunFinished(
        run_id=run.run_id,
        tenant=run.tenant,
        pipeline=run.pipeline,
        version=run.version,
        status=run.status,
        output=run.output,
        error=run.error,
        accepted_at_ms=run.accepted_at_ms,
        finished_at_ms=run.finished_at_ms,
        deadline_at_ms=run.deadline_at_ms,
    )
