"""Spans of calls, after OpenTelemetry's conventions for generative AI."""

from collections.abc import Awaitable, Mapping
from contextvars import Token

from opentelemetry import context, trace
from opentelemetry.context import Context

from hocket.gateway.core.protocols.openai_api import CHAT, COMPLETIONS, EMBEDDINGS, path_of
from hocket.kit.logs import telemetry
from hocket.schemas.messages import CallReply, CallRequest

_OPERATIONS = {CHAT: "chat", COMPLETIONS: "text_completion", EMBEDDINGS: "embeddings"}

tracer = trace.get_tracer("hocket.gateway")


def attached(headers: Mapping[str, str]) -> Token[Context] | None:
    """Make the trace context among headers, whose names may be written anyhow, that of this task; return
    what it is detached with, None where there is none."""
    named = {name.lower(): name for name in headers}
    found = {name: headers[named[name]] for name in telemetry.FIELDS if name in named}
    return context.attach(telemetry.extract(found)) if found else None


async def traced(request: CallRequest, making: Awaitable[CallReply]) -> CallReply:
    """Make a call inside a span."""
    operation = _OPERATIONS[path_of(request)]
    with tracer.start_as_current_span(
        f"{operation} {request.model}",
        kind=trace.SpanKind.CLIENT,
        attributes={
            "gen_ai.operation.name": operation,
            "gen_ai.request.model": request.model,
            "hocket.call_id": request.call_id,
            "hocket.run_id": request.attribution.run_id or "",
        },
    ) as span:
        reply = await making
        span.set_attribute("hocket.backend", reply.backend)
        span.set_attribute("gen_ai.usage.input_tokens", reply.input_tokens)
        span.set_attribute("gen_ai.usage.output_tokens", reply.output_tokens)
        if reply.error is not None:
            span.set_status(trace.StatusCode.ERROR, reply.error.code)
        return reply
