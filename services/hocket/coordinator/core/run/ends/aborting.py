"""Ends of runs that cannot go on: an event that no rule can apply, rows that Postgres refuses, or a
run that cannot be read back.

Such a run ends `failed` at once: by the ordinary ending if that works, otherwise by `closed`, which
needs nothing from the run's plan. No other run is affected. A run that an exception left half
changed is read back from its rows first.
"""

from collections.abc import Iterable, Iterator

from hocket.coordinator.core.run.commands import CancelAttempt, CancelSubRun, ReleaseCache
from hocket.coordinator.core.run.machine import abort
from hocket.coordinator.core.run.plan.nodes import LEAF, SUBRUN
from hocket.coordinator.core.run.state.bare_rows import bare_error, moment
from hocket.coordinator.core.run.state.columns import Columns, parsed
from hocket.coordinator.core.run.state.messages import EndRun, cancel_attempt
from hocket.coordinator.core.run.state.run import (
    CANCELLED,
    DISPATCHED,
    RUN_DEGRADED,
    RUN_FAILED,
    RUN_SUCCEEDED,
    TERMINAL,
    Run,
    Step,
)
from hocket.coordinator.core.run.state.values import NULL
from hocket.coordinator.core.run.transition import Outcome
from hocket.coordinator.core.time.timestamps import not_before
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.ids import child_run_id


def aborted(run: Run, error: ErrorInfo, *, now_ms: float) -> Outcome:
    """End a run that cannot go on."""
    if run.plan is not None:
        try:
            return abort(run, error, now_ms)
        except Exception:  # an event that the rules cannot apply may keep them from ending the run
            return closed(run, error, now_ms=now_ms)
    return closed(run, error, now_ms=now_ms)


def altered(run: Run, error: ErrorInfo) -> Outcome:
    """End again a run whose end cannot be stored as it is: if it had succeeded, it has now failed."""
    run.revision += 1
    succeeded = run.status in (RUN_SUCCEEDED, RUN_DEGRADED)
    if succeeded:
        run.status = RUN_FAILED
    run.output = NULL
    run.error = error if succeeded or run.error is None else bare_error(run.error)
    return _ended(run, run.finished_at_ms)


def closed(run: Run, error: ErrorInfo, *, now_ms: float, unread: Iterable[Columns] = ()) -> Outcome:
    """End a run by its steps alone: live ones are cancelled, and whoever works on them is told. The
    same goes for `unread`, the rows of steps that could not be restored."""
    finished_at_ms = not_before(now_ms)
    run.revision += 1
    outcome = Outcome(run)
    for row in unread:
        _withdraw_unread(outcome, run, row, error.code)
    for step in run.steps.values():
        if step.state in TERMINAL:
            continue
        _withdraw(outcome, run, step, error.code)
        step.state = CANCELLED
        step.finished_at_ms = finished_at_ms
        step.wake_at_ms = step.due_at_ms = step.cache_key = None
        if not step.is_changed:
            step.is_changed = True
            outcome.changed.append(step)
    run.due = run.waiting = None
    run.pausing = 0
    run.status = RUN_FAILED
    run.output = NULL
    run.error = error
    run.critical_path = ()
    run.reuse = None
    ended = _ended(run, finished_at_ms)
    outcome.commands += ended.commands
    outcome.run_changed = True
    return outcome


def withdrawn_again(run: Run, reason: str) -> Iterator[CancelAttempt | CancelSubRun]:
    """Yield what tells those who may work on cancelled steps of a run to stop: an exception may have
    kept the commands of the event that cancelled them from being executed."""
    for step in run.steps.values():
        if step.state != CANCELLED or not step.attempt:
            continue
        if step.role == LEAF:
            yield cancel_attempt(run, step, reason)
        elif step.role == SUBRUN:
            yield CancelSubRun(child_run_id(run.run_id, step.key, step.attempt), reason)


def _ended(run: Run, finished_at_ms: float | None) -> Outcome:
    run.accepted_at_ms = moment(run.accepted_at_ms)
    run.deadline_at_ms = moment(run.deadline_at_ms)
    run.finished_at_ms = moment(finished_at_ms)
    outcome = Outcome(run)
    outcome.run_changed = True
    outcome.commands.append(EndRun(run))
    return outcome


def _withdraw(outcome: Outcome, run: Run, step: Step, reason: str) -> None:
    if step.state == DISPATCHED and step.role == LEAF:
        outcome.commands.append(cancel_attempt(run, step, reason))
    elif step.state == DISPATCHED and step.role == SUBRUN:
        outcome.commands.append(
            CancelSubRun(child_run_id(run.run_id, step.key, step.attempt), reason)
        )
    if step.cache_key is not None:
        outcome.commands.append(ReleaseCache(step.cache_key, run.run_id, step.key))


def _withdraw_unread(outcome: Outcome, run: Run, row: Columns, reason: str) -> None:
    key, attempt, role = row["key"], row["attempt"], row["role"]
    try:
        facts = parsed(row["facts"]) or {}
    except ValueError:
        facts = {}
    if row["state"] == DISPATCHED and role == LEAF:
        dispatched = (run.tenant, row["dispatched_at"]) if facts.get("capable") else None
        outcome.commands.append(CancelAttempt(run.run_id, key, attempt, reason, dispatched))
    elif row["state"] == DISPATCHED and role == SUBRUN:
        outcome.commands.append(CancelSubRun(child_run_id(run.run_id, key, attempt), reason))
    if row["state"] not in TERMINAL and facts.get("cache_key") is not None:
        outcome.commands.append(ReleaseCache(facts["cache_key"], run.run_id, key))
