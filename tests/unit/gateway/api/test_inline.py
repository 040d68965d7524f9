"""Calls within the gateway's own process: what comes back, and what stops them."""

import asyncio
from typing import Any

import pytest

from hocket.gateway.api.inline import InlineCalls
from hocket.gateway.core.errors import GatewayFull
from hocket.schemas.capabilities import Capabilities
from hocket.schemas.messages import Attribution, CallReply, CallRequest, ChatMessage

REQUEST = CallRequest(
    call_id="c1", model="m", messages=(ChatMessage(role="user", content="?"),), deadline_at_ms=2e14
)


class CallRegistry:
    """Stands for the gateway's: one call, whose reply the test gives."""

    def __init__(self, *, full: bool = False) -> None:
        self.reply: asyncio.Future[CallReply] = asyncio.get_running_loop().create_future()
        self.cancelled: list[str] = []
        self.refusals: list[str] = []
        self._full = full

    def begin(self, request: CallRequest, headers: Any = None) -> asyncio.Future[CallReply]:
        if self._full:
            raise GatewayFull(limit=1, component="gateway", retry_at_ms=5.0)
        return self.reply

    def cancel(self, tenant: str, call_id: str, reason: str) -> None:
        self.cancelled.append(call_id)

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
