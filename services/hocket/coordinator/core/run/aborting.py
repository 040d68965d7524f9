"""Ends of runs that cannot go on: an event that no rule can apply, rows that Postgres refuses, a run
that cannot be read back.

Such a run ends `failed` at once, by the core's ordinary ending where that works, otherwise by `closed`,
which asks nothing of the run's plan. Nobody else's run is touched.
"""

from immutables import Map

from hocket.coordinator.core.rows.bare_rows import bare_error, moment
from hocket.coordinator.core.run.commands import (
    CancelSubRun,
    Command,
    EndRun,
    ReleaseCache,
    cancel_attempt,
)
from hocket.coordinator.core.run.decide import Decision, abort
from hocket.coordinator.core.run.ending import finished_of
from hocket.coordinator.core.run.state import TERMINAL, Role, Run, RunStatus, Step, StepState
from hocket.coordinator.core.structures.frozen import replace
from hocket.coordinator.core.time.timestamps import not_before
from hocket.schemas.bounded import stored_text
from hocket.schemas.errors import ErrorInfo, HocketError
from hocket.schemas.ids import child_run_id
from hocket.schemas.pipeline.plan import Plan

MAX_REASON_CHARS = 1_000


class EventNotApplicable(HocketError):
    """The event `{kind}` could not be applied to the run: {reason}. Look at what the pipeline's
    expressions make of this input; `hocket dlq list --source log` has the event."""

    code = "event_not_applicable"


class MessageNotSendable(HocketError):
    """A value cannot be sent as JSON: {reason}. Look for half a surrogate pair in text, and for values
    that nest very deep."""

    code = "message_not_sendable"


class RunNotStorable(HocketError):
    """Postgres refuses what the run holds: {reason}. Look for text with U+0000 or half a surrogate
    pair, numbers out of range, and very large or very deep values."""

    code = "run_not_storable"


class RunNotRestorable(HocketError):
    """The run could not be read back from Postgres: {reason}. Apply the pipeline anew and retry the
    run: `hocket runs retry {run_id}`."""

    code = "run_not_restorable"


def unsendable(error: Exception) -> ErrorInfo:
    """Return what to say of a message that cannot be sent."""
    if isinstance(error, HocketError):
        return error.info()
    return MessageNotSendable(reason=reason_of(error)).info()


def reason_of(error: BaseException) -> str:
    """Return what an exception says, as text that everything can carry."""
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:  # it cannot even be said
        text = type(error).__name__
    return str(stored_text(text, limit=MAX_REASON_CHARS))


def aborted(
    run: Run,
    error: ErrorInfo,
    *,
    now_ms: float,
    plan: Plan | None,
    epoch: int,
) -> Decision:
    """End a run that cannot go on; `plan` is None where it has none any more."""
    if plan is not None:
        try:
            return abort(run, error, now_ms=now_ms, plan=plan, outlook={}, epoch=epoch)
        except Exception:  # what cannot be applied may not be endable by the rules either
            return closed(run, error, now_ms=now_ms)
    return closed(run, error, now_ms=now_ms)


def altered(run: Run, error: ErrorInfo) -> Decision:
    """Return the end of a run that ended in a way which cannot be stored: a success is none then."""
    succeeded = run.status in (RunStatus.SUCCEEDED, RunStatus.DEGRADED)
    ended = replace(
        run,
        status=RunStatus.FAILED if succeeded else run.status,
        output=None,
        error=error if succeeded or run.error is None else bare_error(run.error),
        accepted_at_ms=moment(run.accepted_at_ms),
        deadline_at_ms=moment(run.deadline_at_ms),
        finished_at_ms=moment(run.finished_at_ms),
    )
    return Decision(ended, (EndRun(finished_of(ended)),), (), True)


def closed(run: Run, error: ErrorInfo, *, now_ms: float) -> Decision:
    """End a run by its steps alone: those that live are cancelled, and whoever works on them is told."""
    finished_at_ms = not_before(now_ms)
    commands: list[Command] = []
    changed: list[str] = []
    steps: Map[str, Step] = run.steps
    for key, step in run.steps.items():
        if step.state in TERMINAL:
            continue
        commands += _withdrawals(run, step, error.code)
        changed.append(key)
        steps = steps.set(
            key,
            replace(
                step,
                state=StepState.CANCELLED,
                finished_at_ms=finished_at_ms,
                wake_at_ms=None,
                cache_key=None,
            ),
        )
    ended = replace(
        run,
        status=RunStatus.FAILED,
        output=None,
        error=error,
        accepted_at_ms=moment(run.accepted_at_ms),
        deadline_at_ms=moment(run.deadline_at_ms),
        finished_at_ms=finished_at_ms,
        critical_path=(),
        reuse=None,
        steps=steps,
        scopes=Map(),
        tallies=Map(),
        live=Map(),
        wakes=Map(),
        due=None,
        waiting=Map(),
        pausing=0,
    )
    return Decision(ended, (*commands, EndRun(finished_of(ended))), tuple(changed), True)


def _withdrawals(run: Run, step: Step, reason: str) -> list[Command]:
    found: list[Command] = []
    if step.state is StepState.DISPATCHED and step.role is Role.LEAF:
        found.append(cancel_attempt(run, step, reason))
    elif step.state is StepState.DISPATCHED and step.role is Role.SUBRUN:
        found.append(CancelSubRun(child_run_id(run.run_id, step.key, step.attempt), reason))
    if step.cache_key is not None:
        found.append(ReleaseCache(step.cache_key, run.run_id, step.key))
    return found
