"""What is kept of a run that Postgres refuses to store, and of one that cannot be read back.

`bare_*` rows hold what surely can be stored: names, states, times and the error, no value that an
expression or a worker made. `remains_of` makes a run of whatever columns of its row can be read.
"""

import math
from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from pydantic_core import from_json, to_json

from hocket.coordinator.core.rows.records import (
    Row,
    attempt_row,
    run_of,
    run_row,
    step_of,
    step_row,
)
from hocket.coordinator.core.run.commands import RecordAttempt
from hocket.coordinator.core.run.state import NONE, Run, RunStatus, Step
from hocket.coordinator.core.structures.frozen import replace
from hocket.schemas.bounded import stored_text
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.messages import Priority, RunParent
from hocket.schemas.plain_json import check_plain

StoredRun = tuple[Run, list[Step] | Exception]
"""A run as Postgres has it: with its steps, or what remains of it with why it cannot be read."""
MAX_TEXT_CHARS = 1_000
MAX_INPUT_BYTES = 1024 * 1024
"""A larger input is not kept with a run whose rows were refused."""
MAX_USD = Decimal(10) ** 12
SMALLEST_USD = Decimal("1e-18")
FIRST_MS, LAST_MS = 0.0, 4_102_444_800_000.0
"""Moments (epoch ms) outside of these years, 1970 to 2100, are moved to their edge."""


def bare_run_row(run: Run, *, first: bool, barest: bool = False) -> Row:
    """Return the row of a run that ended, without what it computed; the `barest` has no input, caller
    or key either."""
    assert run.error is not None, run.run_id
    keep_input = first and not barest and _is_plain(run.input)
    bare = replace(
        run,
        input=run.input if keep_input else {},
        output=None,
        error=bare_error(run.error),
        accepted_at_ms=moment(run.accepted_at_ms),
        deadline_at_ms=moment(run.deadline_at_ms),
        finished_at_ms=moment(run.finished_at_ms),
        budget_usd=None if run.budget_usd is None else _usd(run.budget_usd),
        spent_usd=_usd(run.spent_usd),
        idempotency_key=None if barest else _text(run.idempotency_key),
        reply_to=None if barest else _text(run.reply_to),
        traceparent=None if barest else _text(run.traceparent),
        parent=None if barest else run.parent,
        critical_path=() if barest else run.critical_path,
        origin=None,
        labels=None if barest else run.labels,
        signals=(),
        seen_signals=(),
        early=NONE,
        paused_at_ms=None,
    )
    return run_row(bare, first=True)


def bare_step_row(run_id: str, step: Step) -> Row:
    """Return the row of a step without its values."""
    times = ("ready_at_ms", "dispatched_at_ms", "started_at_ms", "finished_at_ms", "deadline_at_ms")
    moments = {name: moment(at_ms) for name in times if (at_ms := getattr(step, name)) is not None}
    bare = replace(
        step,
        input=None,
        output=None,
        error=None if step.error is None else bare_error(step.error),
        slack_ms=None,
        wake_at_ms=None,
        give_up_at_ms=None,
        queued_at_ms=None,
        took_ms=None,
        worker=str(stored_text(step.worker, limit=MAX_TEXT_CHARS)),
        emitted=None,
        cache_key=None,
        source=None,
        counted=(),
        timing=None,
        tries=(),
        **moments,
    )
    return step_row(run_id, bare)


def bare_attempt_row(run_id: str, attempt: RecordAttempt) -> Row:
    """Return the row of an attempt without what its worker said."""
    bare = replace(
        attempt,
        error=None if attempt.error is None else bare_error(attempt.error),
        dispatched_at_ms=None,
        started_at_ms=None,
        finished_at_ms=moment(attempt.finished_at_ms),
        worker=str(stored_text(attempt.worker, limit=MAX_TEXT_CHARS)),
    )
    return attempt_row(run_id, bare)


def bare_error(error: ErrorInfo) -> ErrorInfo:
    """Return an error without its details, in text that everything can carry."""
    return ErrorInfo(
        code=str(stored_text(error.code, limit=MAX_TEXT_CHARS)),
        message=str(stored_text(error.message, limit=MAX_TEXT_CHARS)),
        error_class=error.error_class,
        retryable=error.retryable,
    )


def readable(row: Mapping[str, Any]) -> tuple[Run, Exception | None]:
    """Return the run of a row, without steps; where it cannot be read, what remains of it and why."""
    try:
        return run_of(row), None
    except Exception as error:
        return remains_of(row), error


def steps_of(rows: Iterable[Mapping[str, Any]]) -> list[Step] | Exception:
    """Return the steps of a run's rows, or why they cannot be read."""
    try:
        return [step_of(row) for row in rows]
    except Exception as error:
        return error


def remains_of(row: Mapping[str, Any]) -> Run:
    """Return the run of a row as far as it can be read, without steps."""
    error = _read(row["error"], ErrorInfo.model_validate)
    return Run(
        run_id=row["run_id"],
        tenant=row["tenant"],
        pipeline=row["pipeline"],
        version=row["version"],
        partition=row["partition"],
        priority=Priority(row["priority"]),
        input={},
        accepted_at_ms=row["accepted_at"],
        deadline_at_ms=row["deadline_at"],
        status=RunStatus(row["status"]),
        error=error,
        finished_at_ms=row["finished_at"],
        budget_usd=row["budget_usd"],
        spent_usd=Decimal(row["spent_usd"]),
        degraded=row["degraded"],
        idempotency_key=row["idempotency_key"],
        reply_to=row["reply_to"],
        progress=row["progress"],
        traceparent=row["traceparent"],
        parent=_read(row["parent"], RunParent.model_validate),
        labels=_read(row["labels"], dict),
    )


def _read(text: str | None, read: Any) -> Any:
    try:
        return None if text is None else read(from_json(text))
    except ValueError:
        return None


def _is_plain(value: Any) -> bool:
    try:
        check_plain(value)
        return len(to_json(value)) <= MAX_INPUT_BYTES
    except Exception:
        return False


def _text(text: str | None) -> str | None:
    return None if text is None else str(stored_text(text, limit=MAX_TEXT_CHARS))


def moment(at_ms: float | None) -> float:
    """Return a moment that Postgres and messages can hold."""
    if at_ms is None or not math.isfinite(at_ms):
        return LAST_MS
    return min(max(at_ms, FIRST_MS), LAST_MS)


def _usd(amount: Decimal) -> Decimal:
    try:
        return min(max(amount, -MAX_USD), MAX_USD).quantize(SMALLEST_USD)
    except InvalidOperation:
        return Decimal(0)
