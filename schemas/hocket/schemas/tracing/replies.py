"""REST replies about traces."""

from datetime import datetime
from typing import Any

from hocket.schemas.rest import Reply
from hocket.schemas.tracing.spans import Service, SpanKind, SpanStatus


class TraceSpan(Reply):
    """A span; `attributes` are those of docs/reference/traces.md. Times that are null are not over."""

    span_id: str
    parent_id: str | None = None
    run_id: str
    name: str
    kind: SpanKind
    service: Service
    started_at: datetime
    ended_at: datetime | None = None
    duration_ms: float | None = None
    status: SpanStatus
    message: str = ""
    attributes: dict[str, Any]


class RunTrace(Reply):
    """The spans of a run with those of its sub-runs, each before those below it. `truncated`: it has
    more than are shown."""

    run_id: str
    trace_id: str
    truncated: bool = False
    spans: tuple[TraceSpan, ...]
