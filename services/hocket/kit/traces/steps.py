"""Builds the spans of a run's steps, with the waits for a worker and the attempts of each. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hocket.kit.traces.rows import Row, later, plain, us
from hocket.schemas import ids
from hocket.schemas.tracing import attributes as names
from hocket.schemas.tracing.spans import (
    Span,
    SpanKind,
    attempt_span_id,
    query_span_id,
    queue_span_id,
    run_span_id,
    step_span_id,
)

LEAF = "leaf"
_OWN_WORK = frozenset({"llm", "agent", "planning", "sql"})
"""Types of nodes whose attempts are neither the use of a tool nor a retrieval."""
_MAX_ROWS = 2.0**53
_FAILED = frozenset({"failed", "timed_out"})
_OUTCOMES = {"failed": "failed", "cancelled": "cancelled"}
"""The outcome of a step's last attempt, by the state in which the step ended."""


def step_spans(trace_id: str, steps: Sequence[Row], attempts: Sequence[Row]) -> Iterator[Span]:
    """Yield the spans of the steps of one run."""
    tried: dict[str, list[Row]] = {}
    for row in attempts:
        tried.setdefault(row["key"], []).append(row)
    for row in steps:
        yield _step_span(trace_id, row)
        if row["role"] == LEAF:
            yield from _attempt_spans(trace_id, row, tried.get(row["key"], ()))


def _step_span(trace_id: str, row: Row) -> Span:
    run_id, key, ended = row["run_id"], row["key"], row["finished_at"]
    parent, has_failed = row["parent"], row["state"] == "failed"
    return Span(
        trace_id,
        step_span_id(run_id, key),
        run_span_id(run_id) if parent is None else step_span_id(run_id, parent),
        run_id,
        f"step {row['path']}",
        "internal",
        "coordinator",
        us(row["ready_at"]),
        None if ended is None else us(ended),
        "error" if has_failed else "unset",
        (row["error_message"] or "") if has_failed else "",
        plain(
            {
                names.RUN: run_id,
                names.STEP: key,
                names.NODE: row["path"],
                names.NODE_TYPE: row["type"],
                names.STATE: row["state"],
                names.SOURCE: row["source"],
                names.ERROR_TYPE: row["error_code"],
            }
        ),
    )


def _attempt_spans(trace_id: str, step: Row, tried: Sequence[Row]) -> Iterator[Span]:
    """Yield the spans of a step's attempts, each after that of its wait for a worker."""
    before = step["ready_at"]
    for row in tried:
        yield from _queue_span(trace_id, step, row, before)
        yield _attempt_span(trace_id, step, row)
        before = None
    is_told = any(row["attempt"] == step["attempt"] for row in tried)
    if step["dispatched_at"] is not None and not is_told:  # it gave the result, or is still running
        yield from _queue_span(trace_id, step, step, before)
        attempt = _attempt_span(trace_id, step, step)
        yield attempt
        if step.get("sql_ms") is not None and attempt.ended_at_us is not None:
            yield _query_span(attempt, step, attempt.ended_at_us)


def _query_span(attempt: Span, step: Row, ended_us: int) -> Span:
    """Return the span of the query of an `sql` node, with the duration that its output gives. It ends
    when its attempt ends."""
    took_us = min(float(step["sql_ms"]) * 1_000, ended_us - attempt.started_at_us)
    rows = min(float(step["sql_rows"] or 0), _MAX_ROWS)
    return Span(
        attempt.trace_id,
        query_span_id(attempt.span_id),
        attempt.span_id,
        attempt.run_id,
        "SELECT",
        "client",
        "worker",
        ended_us - max(round(took_us), 0),
        ended_us,
        attributes={
            names.RUN: attempt.run_id,
            names.STEP: step["key"],
            names.DB_SYSTEM: "other_sql",
            names.DB_OPERATION: "SELECT",
            names.DB_ROWS: int(rows),
        },
    )


def _queue_span(trace_id: str, step: Row, row: Row, ready: Any) -> Iterator[Span]:
    """Yield the span of an attempt's wait, from when it was ready until a worker started it.

    If no worker has reported a start, because the attempt is still running or was cancelled, the span
    ends when the attempt was dispatched, where that of the attempt begins."""
    sent, started = row["dispatched_at"], row["started_at"]
    if sent is None:
        return
    run_id, key, attempt = step["run_id"], step["key"], row["attempt"]
    begun = us(sent if ready is None else ready)
    ended = us(sent if started is None else started)
    if started is None and ended <= begun:
        return
    yield Span(
        trace_id,
        queue_span_id(ids.attempt_id(run_id, key, attempt)),
        step_span_id(run_id, key),
        run_id,
        "queue",
        "internal",
        "coordinator",
        begun,
        max(begun, ended),  # the worker's clock may be behind
        attributes=plain(
            {
                names.RUN: run_id,
                names.STEP: key,
                names.ATTEMPT: attempt,
                names.GATE_MS: (us(sent) - begun) / 1_000,
                names.STREAM_MS: None
                if started is None
                else max(us(started) - us(sent), 0) / 1_000,
            }
        ),
    )


def _attempt_span(trace_id: str, step: Row, row: Row) -> Span:
    run_id, key, attempt = step["run_id"], step["key"], row["attempt"]
    started = row["started_at"] or row["dispatched_at"] or row["finished_at"]
    outcome = row.get("outcome") or _OUTCOMES.get(step["state"])
    has_failed = outcome in _FAILED
    name, kind, operation = _work_of(step)
    return Span(
        trace_id,
        attempt_span_id(run_id, key, attempt),
        step_span_id(run_id, key),
        run_id,
        name,
        kind,
        "worker",
        us(started),
        _end_of(row, us(started)),
        "error" if has_failed else "unset",
        (row["error_message"] or "") if has_failed else "",
        plain(
            {
                names.RUN: run_id,
                names.STEP: key,
                names.NODE: step["path"],
                names.NODE_TYPE: step["type"],
                names.ATTEMPT: attempt,
                names.OUTCOME: outcome,
                names.WORKER: row["worker"],
                names.ERROR_TYPE: row["error_code"] if has_failed else None,
                **operation,
            }
        ),
    )


def _end_of(row: Row, started: int) -> int | None:
    """Return when an attempt ended, by its worker's clock if the worker reported how long it took."""
    if row["started_at"] is not None and row.get("took_ms") is not None:
        return later(row["started_at"], row["took_ms"])
    return None if row["finished_at"] is None else max(us(row["finished_at"]), started)


def _work_of(step: Row) -> tuple[str, SpanKind, Mapping[str, Any]]:
    """Return the name, the kind and the operation of a step's attempts, by its type."""
    node, type_ = step["path"], step["type"]
    if type_ == "retrieval":
        return f"retrieval {node}", "client", {names.GEN_AI_OPERATION: "retrieval"}
    if type_ not in _OWN_WORK:
        operation = {
            names.GEN_AI_OPERATION: "execute_tool",
            names.GEN_AI_TOOL: node,
            names.GEN_AI_TOOL_TYPE: "function",
        }
        return f"execute_tool {node}", "internal", operation
    process = {
        names.MESSAGING_SYSTEM: "nats",
        names.MESSAGING_OPERATION: "process",
        names.MESSAGING_OPERATION_TYPE: "process",
        names.MESSAGING_DESTINATION: f"hocket.step.{type_}",
    }
    return f"process {node}", "consumer", process
