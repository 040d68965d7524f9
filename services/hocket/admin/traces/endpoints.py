"""`/v1/runs/{run_id}/trace`: where the time of a run went, span by span."""

from datetime import UTC, datetime, timedelta

from fastapi import APIRouter

from hocket.admin.context import Ctx
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.permissions import needs
from hocket.admin.runs.lookup import RunId
from hocket.admin.runs.reads import run_row
from hocket.kit.traces.assembly import traces_of
from hocket.kit.traces.reads import read_rows
from hocket.schemas.access.roles import Permission
from hocket.schemas.tracing.replies import RunTrace, TraceSpan
from hocket.schemas.tracing.spans import Span

MAX_SPANS = 20_000
"""Of one answer."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

router = APIRouter(prefix="/v1/runs", tags=["runs"])


@router.get("/{run_id}/trace")
@needs(Permission.RUNS_READ)
async def show_trace(run_id: RunId, context: Ctx, caller: CallerDep) -> RunTrace:
    """Show the trace of a run: steps, waits, attempts and model calls, those of sub-runs too. No prompt
    and no answer stands in it."""
    await run_row(context.pool, caller.tenant, run_id)
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
