"""One span per attempt, child of its run's trace; nothing at all while spans go nowhere."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import SpanKind, Tracer

from hocket.kit.logs import telemetry
from hocket.workers.runtime.execution.attempt import Attempt
from hocket.workers.runtime.execution.context import Context

_NOTHING: AbstractContextManager[None] = nullcontext()
_OPERATIONS = {"llm": "chat", "planning": "chat", "retrieval": "retrieval"}
_TOOL = "execute_tool"


class Spans:
    """Makes the spans of attempts where `exporting`."""

    def __init__(self, *, exporting: bool, tracer: Tracer | None = None) -> None:
        self._exporting = exporting
        self._tracer = tracer or trace.get_tracer("hocket.workers")

    def attempt(self, attempt: Attempt, context: Context) -> AbstractContextManager[None]:
        """Return the span of an attempt; model calls made inside are its children."""
        return self._span(attempt, context) if self._exporting else _NOTHING

    @contextmanager
    def _span(self, attempt: Attempt, context: Context) -> Iterator[None]:
        step = attempt.step
        with self._tracer.start_as_current_span(
            f"{step.type} {step.node}",
            context=telemetry.extract(_headers(context)),
            kind=SpanKind.CONSUMER,
            attributes=_attributes(attempt),
        ):
            headers: dict[str, str] = {}
            telemetry.inject(headers)
            context.traceparent = headers.get("traceparent", context.traceparent)
            yield
            if spend := context.spend:
                span = trace.get_current_span()
                span.set_attribute("gen_ai.usage.input_tokens", spend.input_tokens)
                span.set_attribute("gen_ai.usage.output_tokens", spend.output_tokens)


def _headers(context: Context) -> dict[str, str]:
    traceparent = context.traceparent
    return {"traceparent": traceparent} if traceparent else {}


def _attributes(attempt: Attempt) -> dict[str, Any]:
    step = attempt.step
    operation = _OPERATIONS.get(step.type, _TOOL)
    attributes: dict[str, Any] = {
        "messaging.system": "nats",
        "messaging.operation.type": "process",
        "messaging.operation.name": "process",
        "messaging.message.id": attempt.id,
        "messaging.destination.name": f"hocket.step.{step.type}",
        "gen_ai.operation.name": operation,
        "gen_ai.conversation.id": step.run_id,
        "hocket.run_id": step.run_id,
        "hocket.tenant": step.tenant,
        "hocket.pipeline": step.pipeline,
        "hocket.version": step.version,
        "hocket.step": step.step,
        "hocket.node": step.node,
        "hocket.attempt": step.attempt,
        "hocket.delivery": attempt.delivery.deliveries,
        "hocket.slack_ms": step.slack_ms,
    }
    if operation == _TOOL:
        attributes["gen_ai.tool.name"] = step.config.get("handler", step.node)
    elif model := step.config.get("model"):
        attributes["gen_ai.request.model"] = model
    return attributes
