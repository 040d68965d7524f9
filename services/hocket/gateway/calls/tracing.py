"""The trace of a call: sent to its backends with every request and attached to its log lines."""

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
    """A call with its trace: the caller's, otherwise that of its run, otherwise a new one."""

    def __init__(self, request: CallRequest, headers: Mapping[str, str]) -> None:
        """`headers` are the caller's; their names may be in any case."""
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
        """Make the call's trace the current one for the rest of the running task."""
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
        """Discard the line: a gateway's logs belong to the platform, not to the run."""

    def log_fields(self) -> dict[str, Any]:
        """Return the fields added to log lines of the call."""
        fields: dict[str, Any] = {"call_id": self._call_id, "trace_id": self._context.trace_id}
        return fields if self._run_id is None else {"run_id": self._run_id, **fields}
