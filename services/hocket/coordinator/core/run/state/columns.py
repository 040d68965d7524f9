"""The columns of runs, steps and attempts in Postgres, and how their values are represented: JSON
as text, times as epoch milliseconds. Rows are tuples in the order of the columns."""

import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json

from hocket.coordinator.core.run.commands import RecordAttempt
from hocket.coordinator.core.run.state.stored_form import row_text, text_of

Columns = Mapping[str, Any]
"""A row, by the names of its columns."""
Row = tuple[Any, ...]
_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
"""The escape of U+0000 in a JSON text, but not the same six characters behind an escaped backslash."""

RUN_COLUMNS: Mapping[str, str] = {
    "run_id": "text",
    "partition": "integer",
    "tenant": "text",
    "pipeline": "text",
    "version": "integer",
    "status": "text",
    "priority": "text",
    "input": "jsonb",
    "output": "jsonb",
    "error": "jsonb",
    "idempotency_key": "text",
    "accepted_at": "timestamptz",
    "deadline_at": "timestamptz",
    "finished_at": "timestamptz",
    "budget_usd": "numeric",
    "spent_usd": "numeric",
    "degraded": "boolean",
    "reply_to": "text",
    "progress": "boolean",
    "traceparent": "text",
    "parent": "jsonb",
    "facts": "jsonb",
    "critical_path": "jsonb",
    "parked_until": "timestamptz",
    "labels": "jsonb",
}
STEP_COLUMNS: Mapping[str, str] = {
    "run_id": "text",
    "key": "text",
    "path": "text",
    "type": "text",
    "role": "text",
    "parent": "text",
    "state": "text",
    "attempt": "integer",
    "input": "jsonb",
    "output": "jsonb",
    "error": "jsonb",
    "ready_at": "timestamptz",
    "dispatched_at": "timestamptz",
    "started_at": "timestamptz",
    "finished_at": "timestamptz",
    "deadline_at": "timestamptz",
    "slack_ms": "double precision",
    "wake_at": "timestamptz",
    "worker": "text",
    "facts": "jsonb",
    "queued_at": "timestamptz",
    "took_ms": "double precision",
}
ATTEMPT_COLUMNS: Mapping[str, str] = {
    "run_id": "text",
    "key": "text",
    "attempt": "integer",
    "outcome": "text",
    "error": "jsonb",
    "dispatched_at": "timestamptz",
    "started_at": "timestamptz",
    "finished_at": "timestamptz",
    "worker": "text",
}

SPENDING_COLUMNS: Mapping[str, str] = {
    "run_id": "text",
    "key": "text",
    "spent_usd": "numeric",
    "facts": "jsonb",
    "run_facts": "jsonb",
}
"""What of an ended run and one of its steps may still change: what the run has spent, and the facts
of the step that say so. A row without a step's key has the facts of the run instead."""
FLOW_COLUMNS: Mapping[str, str] = {
    "run_id": "text",
    "gate": "smallint",
    "tenant": "text",
    "pipeline": "text",
    "kind": "text",
    "key": "text",
    "rule": "jsonb",
    "accepted_at": "timestamptz",
    "is_last": "boolean",
}

KEPT_COLUMNS = ("input", "deadline_at", "slack_ms")
"""Columns of a step that a later row without them leaves as they are: the run need not keep them in
memory once the step has ended."""
_KEPT_PLACES = tuple(list(STEP_COLUMNS).index(name) for name in KEPT_COLUMNS)


def completed(row: Row, before: Row) -> Row:
    """Return a step's row, completed with what only its earlier row has."""
    made = list(row)
    for place in _KEPT_PLACES:
        if made[place] is None:
            made[place] = before[place]
    return tuple(made)


def attempt_row(run_id: str, attempt: RecordAttempt) -> Row:
    """Return the row of an attempt that did not produce its step's result."""
    return (
        run_id,
        attempt.key,
        attempt.attempt,
        attempt.outcome,
        json_column(attempt.error),
        attempt.dispatched_at_ms,
        attempt.started_at_ms,
        attempt.finished_at_ms,
        attempt.worker,
    )


def json_column(value: Any) -> str | None:
    """Return a value as the text of a JSON column; None for None."""
    return None if value is None else in_row(text_of(value))


def in_row(text: str) -> str:
    """Return a JSON text as a JSON column takes it."""
    return without_nul(row_text(text))


def without_nul(text: str) -> str:
    """Return a JSON text without U+0000, which jsonb refuses and a model's output may contain."""
    return _NUL.sub(r"\1\\ufffd", text) if "\\u0000" in text else text


def parsed(text: str | None) -> Any:
    """Return the value of a JSON column."""
    if text is None:
        return None
    try:
        return from_json(text)
    except (
        ValueError
    ):  # it nests deeper than that parser goes, but not too deep for Postgres and Python
        return json.loads(text)
