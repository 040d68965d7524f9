"""The trace that a call stands in: its backends get it with every request, its log lines carry it."""

from collections.abc import Mapping
from typing import Any

from opentelemetry import context
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context
from opentelemetry.trace.span import TraceState

from hocket.kit.logs.run_lines import RUNNING, Line
from hocket.schemas import ids
from hocket.schemas.messages import CallRequest
from hocket.schemas.tracing.context import TraceContext, read_context
from hocket.schemas.tracing.spans import call_span_id

TRACEPARENT, TRACESTATE = "traceparent", "tracestate"


class TracedCall:
    """A call with its trace: its caller's, else that of its run, else one of its own."""

    def __init__(self, request: CallRequest, headers: Mapping[str, str]) -> None:
        """`headers` are the caller's, their names written anyhow."""
        named = {name.lower(): value for name, value in headers.items()}
        caller = read_context(named.get(TRACEPARENT))
        self._run_id = request.attribution.run_id
        self._call_id = request.call_id
        self._state = named.get(TRACESTATE) if caller is not None else None
        self._context = TraceContext(
            ids.trace_id(self._run_id or self._call_id) if caller is None else caller.trace_id,
            call_span_id(self._call_id),
            0 if caller is None else caller.flags,
        )

    def enter(self) -> None:
        """Make the call's trace that of the task that makes it, until its end."""
        own = SpanContext(
            int(self._context.trace_id, 16),
            int(self._context.span_id, 16),
            is_remote=False,
            trace_flags=TraceFlags(self._context.flags),
            trace_state=TraceState.from_header([self._state]) if self._state else None,
        )
        context.attach(set_span_in_context(NonRecordingSpan(own)))
        RUNNING.set(self)

    def keep_line(self, line: Line) -> None:
        """Keep none: what a gateway logs is the platform's."""

    def log_fields(self) -> dict[str, Any]:
        """Return what lines that are logged for the call carry."""
        fields: dict[str, Any] = {"call_id": self._call_id, "trace_id": self._context.trace_id}
        return fields if self._run_id is None else {"run_id": self._run_id, **fields}
