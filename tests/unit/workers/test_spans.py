"""Spans of attempts: children of the run's trace, and nothing while they go nowhere."""

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from hocket.kit.nats.delivery import Delivery
from hocket.schemas import ids
from hocket.schemas.messages import CallReply, CallRequest, Priority
from hocket.schemas.structs.steps import RequestedStep
from hocket.workers.runtime.execution.attempt import Attempt
from hocket.workers.runtime.execution.context import Context
from hocket.workers.spans import Spans

TRACE = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE}-b7ad6b7169203331-01"
HEAD = f"NATS/1.0\r\nNats-Msg-Id: x\r\ntraceparent: {TRACEPARENT}\r\n\r\n".encode()


class Headers:
    def __init__(self) -> None:
        self.seen: list[dict[str, str] | None] = []

    async def make(self, request: CallRequest, headers: dict[str, str] | None = None) -> CallReply:
        self.seen.append(headers)
        return CallReply(call_id=request.call_id, input_tokens=5)


def attempt_of(calls: Headers, head: bytes) -> tuple[Attempt, Context]:
    step = RequestedStep(
        run_id="r1",
        tenant="t",
        pipeline="p",
        version=1,
        step="draft",
        node="draft",
        type="llm",
        attempt=2,
        input={},
        config={"model": "writer"},
        deadline_at_ms=0,
        slack_ms=7,
        timeout_ms=1,
        priority=Priority.STANDARD,
        partition=0,
        epoch=0,
    )
    attempt = Attempt(step, "", Delivery(1, 1, 1, 0, 0), head, 0.0, 0)
    context = Context(
        step,
        {},
        attempt_id=attempt.id,
        delivery=1,
        deadline_at_ms=0,
        calls=calls,
        head=head,
    )
    return attempt, context


def exporting() -> tuple[Spans, InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Spans(exporting=True, tracer=provider.get_tracer("test")), exporter


async def test_an_attempt_is_a_span_in_the_trace_of_its_run() -> None:
    spans, exporter = exporting()
    calls = Headers()
    attempt, context = attempt_of(calls, HEAD)
    with spans.attempt(attempt, context):
        await context.model("writer", "hello")
    (span,) = exporter.get_finished_spans()
    assert f"{span.context.trace_id:032x}" == TRACE
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" == "b7ad6b7169203331"
    assert span.attributes is not None
    assert span.attributes["messaging.message.id"] == "r1:draft:2"
    assert span.attributes["gen_ai.request.model"] == "writer"
    assert span.attributes["gen_ai.usage.input_tokens"] == 5
    assert calls.seen == [{"traceparent": f"00-{TRACE}-{span.context.span_id:016x}-01"}]


async def test_without_exporting_the_runs_trace_is_passed_on() -> None:
    calls = Headers()
    attempt, context = attempt_of(calls, HEAD)
    with Spans(exporting=False).attempt(attempt, context):
        await context.model("writer", "hello")
    assert calls.seen == [{"traceparent": TRACEPARENT}]


def test_lines_of_a_run_without_a_trace_carry_the_trace_id_that_it_has_anyway() -> None:
    _, context = attempt_of(Headers(), b"")
    assert context.trace_id == ids.trace_id("r1")
