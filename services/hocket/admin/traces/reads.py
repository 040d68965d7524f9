"""The trace of a run, made of what is stored of it."""

from datetime import UTC, datetime, timedelta

from hocket.admin.context import Context
from hocket.kit.traces.assembly import traces_of
from hocket.kit.traces.reads import read_rows
from hocket.schemas.tracing.replies import RunTrace, TraceSpan
from hocket.schemas.tracing.spans import Span

MAX_SPANS = 20_000
"""Of one answer."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


async def trace_of(context: Context, run_id: str) -> RunTrace:
    """Return the trace of a run that is there, its first spans where it is long."""
    (trace,) = traces_of(await read_rows(context.pool, [run_id]))
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
