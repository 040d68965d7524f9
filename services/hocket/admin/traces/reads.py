"""Builds the trace of a run from its stored data."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from hocket.admin.context import Context
from hocket.kit.request_turns import give_way
from hocket.kit.traces.assembly import traces_of
from hocket.kit.traces.reads import TraceRows, read_rows
from hocket.schemas.tracing.replies import RunTrace, TraceSpan
from hocket.schemas.tracing.spans import Span

MAX_SPANS = 20_000
"""The maximum number of spans in one answer."""
Made = TypeVar("Made")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


async def trace_of(
    context: Context, tenant: str, run_id: str, make: Callable[[RunTrace], Made]
) -> Made:
    """Return what `make` makes of the trace of an existing run, with at most MAX_SPANS spans. This
    happens in a thread, because a long trace takes seconds, during which nothing else would be
    answered."""
    give_way()
    async with context.traces.place(tenant):
        rows = await read_rows(context.pool, [run_id])
        return await asyncio.to_thread(lambda: make(_made(run_id, rows)))


def _made(run_id: str, rows: TraceRows) -> RunTrace:
    (trace,) = traces_of(rows)
    return RunTrace(
        run_id=run_id,
        trace_id=trace.trace_id,
        truncated=trace.truncated or len(trace.spans) > MAX_SPANS,
        spans=tuple(_shown(span) for span in trace.spans[:MAX_SPANS]),
    )


def _shown(span: Span) -> TraceSpan:
    begun, ended = span.started_at_us, span.ended_at_us
    return TraceSpan(
        span_id=span.span_id,
        parent_id=span.parent_id,
        run_id=span.run_id,
        name=span.name,
        kind=span.kind,
        service=span.service,
        started_at=_moment(begun),
        ended_at=None if ended is None else _moment(ended),
        duration_ms=None if ended is None else (ended - begun) / 1_000,
        status=span.status,
        message=span.message,
        attributes=dict(span.attributes),
    )


def _moment(us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=us)
