"""Questions of other gateways about calls that this one holds."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

from prometheus_client import CollectorRegistry

from hocket.gateway.api.peers import Peers
from hocket.gateway.backends import large_work
from hocket.gateway.calls.registry import CallRegistry
from hocket.gateway.core.calls.call_key import digest
from hocket.gateway.core.calls.request_content import CHARS_PER_TOKEN, LARGE_TOKENS
from hocket.gateway.metrics import GatewayMetrics
from hocket.kit.nats.bus import Bus
from hocket.schemas.messages import CallRequest, ChatMessage, HeldCall
from support.gateway.routing_rig import BOUND_S, Rig, backend, hangs, request


class AskedBus:
    """Hands over questions, and notes where they were answered."""

    def __init__(self) -> None:
        self.answered: list[str] = []
        self.ask: Callable[[Any], Awaitable[None]]

    async def subscribe(self, _: str, handler: Callable[[Any], Awaitable[None]]) -> None:
        self.ask = handler

    def respond(self, inbox: str, _: bytes) -> None:
        self.answered.append(inbox)

    async def until_answered(self, *inboxes: str) -> None:
        async with asyncio.timeout(BOUND_S):
            while self.answered != list(inboxes):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.001)


def question(asked: CallRequest, inbox: str) -> Any:
    who = asked.attribution
    held = HeldCall(
        tenant=who.tenant,
        call_id=asked.call_id,
        run_id=who.run_id,
        step=who.step,
        question=digest(asked),
        reply_to="_INBOX.worker",
        counts=True,
    )
    return SimpleNamespace(data=held.model_dump_json().encode(), reply=inbox)


async def test_a_question_about_a_large_call_does_not_keep_others_waiting() -> None:
    bus, gate = AskedBus(), threading.Event()
    calls = CallRegistry(
        Rig({"writer": {"backends": [backend("a")]}}, a=hangs()).calls,
        GatewayMetrics(CollectorRegistry()),
    )
    peers = Peers(cast(Bus, bus), calls, lambda *_: None, cast(Any, SimpleNamespace(name="g1")))
    await peers.open()
    text = ChatMessage(role="user", content="x" * (LARGE_TOKENS * CHARS_PER_TOKEN))
    large = request("large").model_copy(update={"messages": (text,)})
    working = await large_work.begun(gate.wait)
    try:
        for one in (large, request("small")):
            calls.begin(one)
            await bus.ask(question(one, f"_INBOX.{one.call_id}"))
        await bus.until_answered("_INBOX.small")
    finally:
        gate.set()
        await working
    await bus.until_answered("_INBOX.small", "_INBOX.large")
    await calls.drain(drain_ms=0, flush_ms=5_000)
    await peers.close()
