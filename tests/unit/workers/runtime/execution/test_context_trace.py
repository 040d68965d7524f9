"""An attempt stands in the trace of its run, and its calls below it."""

from typing import Any

import pytest

from hocket.schemas import ids
from hocket.schemas.messages import CallReply, CallRequest, Priority
from hocket.schemas.structs.steps import RequestedStep
from hocket.schemas.tracing.spans import attempt_span_id
from hocket.workers.runtime.execution.context import Context

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = f"00-{TRACE}-b7ad6b7169203331-01"


class Asked:
    def __init__(self) -> None:
        self.headers: list[dict[str, str] | None] = []

    async def make(self, request: CallRequest, headers: dict[str, str] | None = None) -> CallReply:
        self.headers.append(headers)
        return CallReply(call_id=request.call_id)


def context_of(head: bytes, asked: Asked) -> Context:
    more: dict[str, Any] = {"input": {}, "config": {}, "deadline_at_ms": 0, "slack_ms": 7}
    step = RequestedStep(
        run_id="r1", tenant="t", pipeline="p", version=1, step="draft", node="draft", type="llm",
        attempt=2, timeout_ms=1, priority=Priority.STANDARD, partition=0, epoch=0, **more,
    )  # fmt: skip
    return Context(
        step, {}, attempt_id="r1:draft:2", delivery=1, deadline_at_ms=0, calls=asked, head=head
    )


@pytest.mark.parametrize(
    ("head", "trace_id", "flags"),
    [
        (f"NATS/1.0\r\nNats-Msg-Id: x\r\ntraceparent: {CALLER}\r\n\r\n", TRACE, "01"),
        ("NATS/1.0\r\ntraceparent: nonsense\r\n\r\n", ids.trace_id("r1"), "00"),
        ("", ids.trace_id("r1"), "00"),
    ],
)
async def test_a_call_stands_below_its_attempt_in_the_trace_of_the_run(
    head: str, trace_id: str, flags: str
) -> None:
    asked = Asked()
    context = context_of(head.encode(), asked)
    await context.model("writer", "hello")
    header = f"00-{trace_id}-{attempt_span_id('r1', 'draft', 2)}-{flags}"
    assert asked.headers == [{"traceparent": header}]
    assert context.traceparent == header
    assert context.log_fields() == {
        "run_id": "r1",
        "trace_id": trace_id,
        "step": "draft",
        "attempt": 2,
    }
