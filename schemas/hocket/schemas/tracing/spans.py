"""Spans of a trace and their ids. Each id is derived from what the span is about, so that all processes
know it without asking, and a span that is sent twice is the same span. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from hocket.schemas import ids
from hocket.schemas.tracing.context import TraceContext, read_context

SpanKind = Literal["internal", "server", "client", "producer", "consumer"]
SpanStatus = Literal["unset", "ok", "error"]
Service = Literal["coordinator", "worker", "gateway"]


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of work with its times in microseconds since 1970; one that is in progress has no end."""

    trace_id: str
    span_id: str
    parent_id: str | None
    run_id: str
    name: str
    kind: SpanKind
    service: Service
    started_at_us: int
    ended_at_us: int | None
    status: SpanStatus = "unset"
    message: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)


@lru_cache(maxsize=4_096)  # asked for each step of a run
def context_of_run(run_id: str, traceparent: str | None) -> TraceContext:
    """Return the trace context of a run: in its caller's trace if it was submitted with one, and
    otherwise in a trace of its own."""
    caller = read_context(traceparent)
    if caller is None:
        return TraceContext(ids.trace_id(run_id), run_span_id(run_id))
    return TraceContext(caller.trace_id, run_span_id(run_id), caller.flags)


def run_span_id(run_id: str) -> str:
    """Return the id of a run's span."""
    return ids.span_id(run_id)


def step_span_id(run_id: str, step: str) -> str:
    """Return the id of a step's span."""
    return ids.span_id(run_id, step)


def attempt_span_id(run_id: str, step: str, attempt: int) -> str:
    """Return the id of an attempt's span."""
    return ids.span_id(run_id, step, str(attempt))


def queue_span_id(of: str) -> str:
    """Return the id of the span for the wait before another span."""
    return ids.span_id(of, "queue")


def query_span_id(attempt_span_id: str) -> str:
    """Return the id of the span of an attempt's query."""
    return ids.span_id(attempt_span_id, "query")


def call_span_id(call_id: str) -> str:
    """Return the id of the span of a model call."""
    return ids.span_id("call", call_id)


def request_span_id(record_id: str) -> str:
    """Return the id of the span of a call's request to a backend, from the id of its usage record."""
    return ids.span_id("request", record_id)
