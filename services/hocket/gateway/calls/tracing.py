"""The trace of a call: sent to its backends with every request and attached to its log lines."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from opentelemetry import context
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    TraceFlags,
    format_trace_id,
    set_span_in_context,
)
from opentelemetry.trace.span import TraceState

from hocket.kit.logs.run_lines import RUNNING, Line
from hocket.schemas import ids
from hocket.schemas.messages import CallRequest
from hocket.schemas.tracing.context import read_context
from hocket.schemas.tracing.spans import call_span_id

TRACEPARENT, TRACESTATE = "traceparent", "tracestate"


class TracedCall:
    """A call with its trace: the caller's, otherwise that of its run, otherwise a new one.

    The trace is worked out when somebody asks for it: a request over HTTP, a line in the log.
    """

    def __init__(self, request: CallRequest, headers: Mapping[str, str]) -> None:
        """`headers` are the caller's; their names may be in any case."""
        self._run_id = request.attribution.run_id
        self._call_id = request.call_id
        self._headers = headers

    def enter(self) -> None:
        """Make the call's trace the current one for the rest of the running task."""
        context.attach(set_span_in_context(_Span(self)))
        RUNNING.set(self)

    @cached_property
    def span_context(self) -> SpanContext:
        """The context of the call's span; that of the caller's if the call is of no run of Hocket's, as
        its own span is never exported then."""
        named = {name.lower(): value for name, value in self._headers.items()}
        caller = read_context(named.get(TRACEPARENT))
        span_id = call_span_id(self._call_id)
        if caller is None:
            trace_id, flags, state = ids.trace_id(self._run_id or self._call_id), 0, None
        else:
            trace_id, flags, state = caller.trace_id, caller.flags, named.get(TRACESTATE)
            if not ids.is_run_id(self._run_id or ""):
                span_id = caller.span_id
        return SpanContext(
            int(trace_id, 16),
            int(span_id, 16),
            is_remote=False,
            trace_flags=TraceFlags(flags),
            trace_state=TraceState.from_header([state]) if state else None,
        )

    def keep_line(self, line: Line) -> None:
        """Discard the line: a gateway's logs belong to the platform, not to the run."""

    def log_fields(self) -> dict[str, Any]:
        """Return the fields added to log lines of the call."""
        trace_id = format_trace_id(self.span_context.trace_id)
        fields: dict[str, Any] = {"call_id": self._call_id, "trace_id": trace_id}
        return fields if self._run_id is None else {"run_id": self._run_id, **fields}


class _Span(NonRecordingSpan):
    """The span of a call in progress."""

    def __init__(self, call: TracedCall) -> None:
        self._call = call

    def get_span_context(self) -> SpanContext:
        """Return the span's context."""
        return self._call.span_context

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._call.span_context!r})"
