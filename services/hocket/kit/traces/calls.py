"""Builds the spans of a run's model calls from the ledger's rows. Pure.

There is one span for the call; its children are a span for its wait for a place and one for each request
to a backend.
"""

from collections.abc import Iterable, Iterator, Sequence

from hocket.kit.traces.rows import Row, later, plain, us
from hocket.schemas.ids import call_of
from hocket.schemas.tracing import attributes as names
from hocket.schemas.tracing.spans import (
    Span,
    attempt_span_id,
    call_span_id,
    queue_span_id,
    request_span_id,
    run_span_id,
)

_SHORTEST_WAIT_US = 100
"""Shorter waits get no span."""


def call_spans(trace_id: str, rows: Iterable[Row]) -> Iterator[Span]:
    """Yield the spans of the calls of one run."""
    calls: dict[str, list[Row]] = {}
    for row in rows:
        calls.setdefault(call_of(row["call_id"]), []).append(row)
    for call_id, requests in calls.items():
        yield from _call(trace_id, call_id, requests)


def _call(trace_id: str, call_id: str, requests: Sequence[Row]) -> Iterator[Span]:
    first, last = (
        requests[0],
        max(requests, key=lambda row: later(row["started_at"], row["latency_ms"])),
    )
    run_id, parent = first["run_id"], call_span_id(call_id)
    begun = min(us(row["started_at"]) - round((row["queue_ms"] or 0.0) * 1_000) for row in requests)
    good = [row for row in requests if row["status"] == "ok"]
    counts = (good or [last])[-1]
    yield Span(
        trace_id,
        parent,
        _above(first),
        run_id,
        f"call {first['model']}",
        "internal",
        "gateway",
        begun,
        later(last["started_at"], last["latency_ms"]),
        "unset" if counts["status"] != "error" else "error",
        attributes=plain(
            {
                names.RUN: run_id,
                names.STEP: first["step"],
                names.ATTEMPT: first["attempt"],
                names.CALL: call_id,
                names.MODEL: first["model"],
                names.COST: float(sum(row["cost_usd"] for row in requests)),
                names.EXPERIMENT: first["experiment"],
                names.ARM: first["arm"],
                names.ERROR_TYPE: counts["error_code"],
            }
        ),
    )
    known: set[str] = set()
    for row in requests:
        record_id = row["call_id"]
        if record_id in known:  # another gateway made the call again
            record_id = f"{record_id}#{us(row['started_at'])}"
        known.add(record_id)
        waited_us = round((row["queue_ms"] or 0.0) * 1_000)
        if waited_us >= _SHORTEST_WAIT_US:
            yield _queue(trace_id, parent, record_id, row, waited_us)
        yield _request(trace_id, parent, (call_id, record_id), row)


def _above(row: Row) -> str:
    """Return the parent of a call's span: its attempt's, or the run's for a call of the HTTP door."""
    if row["step"] is None or row["attempt"] is None:
        return run_span_id(row["run_id"])
    return attempt_span_id(row["run_id"], row["step"], row["attempt"])


def _queue(trace_id: str, parent: str, record_id: str, row: Row, waited_us: int) -> Span:
    started = us(row["started_at"])
    return Span(
        trace_id,
        queue_span_id(record_id),
        parent,
        row["run_id"],
        "queue",
        "internal",
        "gateway",
        started - waited_us,
        started,
        attributes=plain(
            {names.RUN: row["run_id"], names.BACKEND: row["backend"], names.REPLICA: row["replica"]}
        ),
    )


def _request(trace_id: str, parent: str, ids: tuple[str, str], row: Row) -> Span:
    call_id, record_id = ids
    operation = row["operation"] or "chat"
    is_function = row["provider"] == "function"
    model = row["model"] if is_function else row["target"] or row["model"]
    has_failed = row["status"] == "error"
    return Span(
        trace_id,
        request_span_id(record_id),
        parent,
        row["run_id"],
        f"{operation} {model}",
        "client",
        "gateway",
        us(row["started_at"]),
        later(row["started_at"], row["latency_ms"]),
        "error" if has_failed else "unset",
        attributes=plain(
            {
                names.GEN_AI_OPERATION: operation,
                names.GEN_AI_PROVIDER: row["provider"] or "unknown",
                names.GEN_AI_MODEL: model,
                names.GEN_AI_INPUT_TOKENS: row["input_tokens"],
                names.GEN_AI_OUTPUT_TOKENS: row["output_tokens"],
                names.GEN_AI_CACHED_TOKENS: row["cached_tokens"] or None,
                names.GEN_AI_CACHE_WRITE_TOKENS: row["cache_write_tokens"] or None,
                names.RUN: row["run_id"],
                names.CALL: call_id,
                names.CALL_KIND: row["kind"],
                names.MODEL: row["model"],
                names.BACKEND: row["backend"],
                names.REPLICA: row["replica"],
                names.COST: float(row["cost_usd"]),
                names.ESTIMATED: row["estimated"] or None,
                names.ERROR_TYPE: row["error_code"],
            }
        ),
    )
