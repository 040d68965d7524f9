"""What is kept of a run that Postgres refuses to store: names, states, times and the error, but no
value that an expression or a worker produced."""

import math
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Any

from hocket.coordinator.core.run.commands import RecordAttempt
from hocket.coordinator.core.run.state.columns import Row, attempt_row, json_column
from hocket.coordinator.core.run.state.run import NODE, TERMINAL, Run, Step
from hocket.coordinator.core.run.state.values import Json
from hocket.schemas.checks.bounded import stored_text
from hocket.schemas.checks.plain_json import check_plain
from hocket.schemas.errors import ErrorInfo

MAX_TEXT_CHARS = 1_000
MAX_INPUT_BYTES = 1024 * 1024
"""A larger input is not stored with a run whose rows were refused."""
MAX_USD = Decimal(10) ** 12
SMALLEST_USD = Decimal("1e-18")
FIRST_MS, LAST_MS = 0.0, 4_102_444_800_000.0
"""Times (epoch ms) outside the years 1970 to 2100 are clamped to these."""


def bare_run_row(run: Run, *, first: bool, barest: bool = False) -> Row:
    """Return the row of an ended run without what it computed; with `barest`, also without input,
    caller and key."""
    assert run.error is not None, run.run_id
    keep_input = first and not barest and _is_plain(run.input)
    path = json_column(run.critical_path) if run.critical_path and not barest else None
    return (
        run.run_id,
        run.owner.partition,
        run.tenant,
        run.pipeline,
        run.version,
        run.status,
        run.priority.value,
        json_column(run.input.value) if keep_input else "{}",
        None,
        json_column(bare_error(run.error)),
        None if barest else _text(run.idempotency_key),
        moment(run.accepted_at_ms),
        moment(run.deadline_at_ms),
        moment(run.finished_at_ms),
        None if run.budget_usd is None else _usd(run.budget_usd),
        _usd(run.spent_usd),
        run.degraded,
        None if barest else _text(run.reply_to),
        run.progress,
        None if barest else _text(run.traceparent),
        None if barest else json_column(run.parent),
        json_column(_run_facts(run)),
        path,
        None,
        None if barest else json_column(run.labels),
    )


def bare_step_row(run_id: str, step: Step) -> Row:
    """Return the row of a step without its values."""
    node = step.node
    return (
        run_id,
        step.key,
        node.path,
        node.type,
        step.role,
        "" if step.parent is None else step.parent.key,
        step.state,
        step.attempt,
        None,
        None,
        None if step.error is None else json_column(bare_error(step.error)),
        moment(step.ready_at_ms),
        _moment_or_none(step.dispatched_at_ms),
        _moment_or_none(step.started_at_ms),
        _moment_or_none(step.finished_at_ms),
        None,
        None,
        None,
        str(stored_text(step.worker, limit=MAX_TEXT_CHARS)),
        json_column(_step_facts(step)),
        None,
        None,
    )


def bare_attempt_row(run_id: str, attempt: RecordAttempt) -> Row:
    """Return the row of an attempt without what its worker reported."""
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
    """Return an error without its details, as text that can be stored."""
    return ErrorInfo(
        code=str(stored_text(error.code, limit=MAX_TEXT_CHARS)),
        message=str(stored_text(error.message, limit=MAX_TEXT_CHARS)),
        error_class=error.error_class,
        retryable=error.retryable,
    )


def moment(at_ms: float | None) -> float:
    """Return a time (epoch ms) clamped to what Postgres and messages can hold."""
    if at_ms is None or not math.isfinite(at_ms):
        return LAST_MS
    return min(max(at_ms, FIRST_MS), LAST_MS)


def _moment_or_none(at_ms: float | None) -> float | None:
    return None if at_ms is None else moment(at_ms)


def _run_facts(run: Run) -> dict[str, Any] | None:
    facts: dict[str, Any] = {}
    if run.probe:
        facts["probe"] = True
    if run.operations:
        facts["operations"] = run.operations
    if run.charges:
        facts["charges"] = [[source, str(_usd(usd))] for source, usd in run.charges.items()]
    if run.untold:
        facts["untold"] = [[source, str(_usd(usd))] for source, usd in run.untold.items()]
    return facts or None


def _step_facts(step: Step) -> dict[str, Any] | None:
    facts: dict[str, Any] = {}
    if step.link != NODE:
        facts["link"] = step.link
        facts["index"] = step.index
    if step.home is not None:
        facts["home"] = step.home.key
    if step.degraded:
        facts["degraded"] = True
    if step.winner:
        facts["winner"] = step.winner
    if step.capable and step.state not in TERMINAL:
        facts["capable"] = True
    if step.counted:
        facts["counted"] = step.counted
    if step.charged_usd:
        facts["charged_usd"] = str(step.charged_usd)
    return facts or None


def _is_plain(value: Json) -> bool:
    try:
        check_plain(value.value)
        return len(value.text.encode()) <= MAX_INPUT_BYTES
    except Exception:
        return False


def _text(text: str | None) -> str | None:
    return None if text is None else str(stored_text(text, limit=MAX_TEXT_CHARS))


def _usd(amount: Decimal) -> Decimal:
    try:
        return min(max(amount, -MAX_USD), MAX_USD).quantize(SMALLEST_USD)
    except InvalidOperation:
        return Decimal(0)
