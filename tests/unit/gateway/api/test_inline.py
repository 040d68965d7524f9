"""Calls within the gateway's own process: what comes back, and what stops them."""

import asyncio
from typing import Any

import pytest

from hocket.gateway.api.call_requests import checked
from hocket.gateway.api.inline import InlineCalls
from hocket.gateway.core.calls import request_content
from hocket.gateway.core.errors import CallMalformed, GatewayFull
from hocket.schemas.capabilities import Capabilities
from hocket.schemas.messages import Attribution, CallReply, CallRequest, ChatMessage, OpenAIBody

REQUEST = CallRequest(
    call_id="c1", model="m", messages=(ChatMessage(role="user", content="?"),), deadline_at_ms=2e14
)


class CallRegistry:
    """Stands for the gateway's: one call, whose reply the test gives."""

    def __init__(self, *, full: bool = False) -> None:
        self.reply: asyncio.Future[CallReply] = asyncio.get_running_loop().create_future()
        self.cancelled: list[str] = []
        self.refusals: list[str] = []
        self.begun: list[CallRequest] = []
        self._full = full

    def begin(self, request: CallRequest, headers: Any = None) -> asyncio.Future[CallReply]:
        if self._full:
            raise GatewayFull(limit=1, component="gateway", retry_at_ms=5.0)
        self.begun.append(request)
        return self.reply

    def leave(self, request: CallRequest, reason: str) -> None:
        self.cancelled.append(request.call_id)

    def refused(self, code: str) -> None:
        self.refusals.append(code)


async def test_the_reply_is_the_gateways() -> None:
    registry = CallRegistry()
    reply = CallReply(call_id="c1", model="m", text="yes")
    registry.reply.set_result(reply)
    assert await InlineCalls(registry).make(REQUEST) is reply  # type: ignore[arg-type]


async def test_a_cancelled_caller_stops_its_call_and_leaves_it_to_be_booked() -> None:
    registry = CallRegistry()
    asking = asyncio.create_task(InlineCalls(registry).make(REQUEST))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert registry.cancelled == ["c1"]
    assert not registry.reply.cancelled()


async def test_a_full_gateway_is_a_typed_error() -> None:
    registry = CallRegistry(full=True)
    reply = await InlineCalls(registry).make(REQUEST)  # type: ignore[arg-type]
    assert reply.error is not None
    assert reply.error.code == "gateway_full"
    assert registry.refusals == ["gateway_full"]


async def test_a_call_counts_for_the_run_whose_attempt_its_function_was_given() -> None:
    registry, capabilities = CallRegistry(), Capabilities([b"k" * 32])
    registry.reply.set_result(CallReply(call_id="c1", model="m", text="yes"))
    calls = InlineCalls(registry, capabilities)  # type: ignore[arg-type]
    own = Attribution(tenant="acme", run_id="r1", step="s", attempt=1)
    given = capabilities.of_attempt("acme", "r1", "s", 1, 5.0)
    said = {"attribution": own, "capability": given, "dispatched_at_ms": 5.0}
    request = REQUEST.model_copy(update=said)
    foreign = own.model_copy(update={"tenant": "globex"})

    answered = await calls.make(request)
    refused = await calls.make(request.model_copy(update={"attribution": foreign}))

    assert answered.text == "yes"
    assert refused.error is not None
    assert refused.error.code == "call_not_attributable"
    assert registry.refusals == ["call_not_attributable"]


def _of_openai(**fields: Any) -> CallRequest:
    body = {"messages": [{"role": "user", "content": "?"}], **fields}
    return REQUEST.model_copy(
        update={"messages": (), "openai": OpenAIBody(path="chat/completions", body=body)}
    )


async def test_a_body_that_asks_for_more_than_is_counted_is_refused_as_over_nats() -> None:
    registry, request = CallRegistry(), _of_openai(n=1_000)
    with pytest.raises(CallMalformed) as over_nats:
        checked(request.model_dump_json().encode())

    reply = await InlineCalls(registry).make(request)  # type: ignore[arg-type]

    assert reply.error == over_nats.value.info()
    assert reply.error.code == "call_malformed"
    assert registry.refusals == ["call_malformed"]
    assert not registry.begun


async def test_the_counts_of_a_body_are_whole_numbers() -> None:
    registry = CallRegistry()
    registry.reply.set_result(CallReply(call_id="c1", model="m", text="yes"))
    await InlineCalls(registry).make(_of_openai(n=4.0))  # type: ignore[arg-type]
    (begun,) = registry.begun
    assert request_content.choices(begun) == 4
