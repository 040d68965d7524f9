"""A call's backends get its trace, and its log lines carry it."""

import asyncio
from collections.abc import Mapping

import pytest
from opentelemetry import propagate

from hocket.gateway.calls.tracing import TracedCall
from hocket.kit.logs.run_lines import RUNNING, add_run
from hocket.schemas import ids
from hocket.schemas.messages import Attribution, CallRequest
from hocket.schemas.tracing.spans import call_span_id

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = f"00-{TRACE}-b7ad6b7169203331-01"
RUN = "r" + "1" * 24
REQUEST = CallRequest(
    call_id="c1", model="m", deadline_at_ms=0, attribution=Attribution(run_id=RUN)
)


async def sent(request: CallRequest, headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that a backend gets, when a call comes with some."""

    async def call() -> dict[str, str]:
        TracedCall(request, headers).enter()
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        return carrier

    return await asyncio.create_task(call())


async def test_the_caller_s_trace_goes_on_to_the_backend() -> None:
    headers = {"TraceParent": CALLER, "tracestate": "vendor=1"}
    header = f"00-{TRACE}-{call_span_id('c1')}-01"
    assert await sent(REQUEST, headers) == {"traceparent": header, "tracestate": "vendor=1"}
    assert RUNNING.get() is None


async def test_without_one_it_is_the_trace_of_the_run_or_of_the_call() -> None:
    lone = REQUEST.model_copy(update={"attribution": Attribution()})
    for request, of in ((REQUEST, RUN), (lone, "c1")):
        header = f"00-{ids.trace_id(of)}-{call_span_id('c1')}-00"
        for headers in ({}, {"traceparent": "nonsense", "tracestate": "vendor=1"}):
            assert await sent(request, headers) == {"traceparent": header}


@pytest.mark.parametrize("run_id", [None, "job-7"])
async def test_the_backend_of_a_call_of_no_run_is_told_the_caller_s_span(
    run_id: str | None,
) -> None:
    """The span of such a call is never exported: a trace that went on from it would have a gap."""
    alone = REQUEST.model_copy(update={"attribution": Attribution(run_id=run_id)})
    headers = {"traceparent": CALLER, "tracestate": "vendor=1"}
    assert await sent(alone, headers) == headers


async def test_a_line_that_tells_of_another_run_keeps_it() -> None:
    TracedCall(REQUEST, {"traceparent": CALLER}).enter()
    fields = {"run_id": RUN, "call_id": "c1", "trace_id": TRACE}
    assert add_run(None, "", {"event": "e"}) == {"event": "e", **fields}
    assert add_run(None, "", {"event": "e", "run_id": "r2"}) == {"event": "e", "run_id": "r2"}
