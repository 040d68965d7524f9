"""A model call made in the console: sent to a gateway over NATS, streamed as server-sent events.

States: asking (an event `piece` for each piece of the answer), answered (`reply`: the whole answer, its
tokens and price), then explained (`decision`, once the ledger has booked the call), unless that takes
longer than EXPLAINED_S. If the caller disconnects while asking, the call is stopped; what it used is
still booked.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from typing import Annotated, Any
from uuid import uuid4

from nats.errors import Error as NatsError
from pydantic import Field, ValidationError

from hocket.admin.calls import reads
from hocket.admin.context import Context
from hocket.admin.live.streams import QUIET, QUIET_S
from hocket.admin.requests.identity import Caller
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.nats.protocol import RawMessage
from hocket.kit.process import clock
from hocket.schemas import subjects
from hocket.schemas.capabilities import sealed
from hocket.schemas.checks.bounded import Name
from hocket.schemas.errors import ErrorClass, HocketError
from hocket.schemas.labels import KEY_LABEL
from hocket.schemas.messages import (
    Attribution,
    CallCancelled,
    CallChunk,
    CallReply,
    CallRequest,
    ChatMessage,
    Priority,
    encoded,
)
from hocket.schemas.rest import Request as Body

REPLY_GRACE_MS = 2_000.0
"""How much longer than the call's timeout to wait for a reply, so that the gateway can report what went
wrong."""
EXPLAINED_S = 20.0
REFUSED_S = 3.0
"""How long to wait for the ledger, after an answer and (here) after an error: some errors are not
booked."""
LOOK_S = 0.25
MAX_PROMPT_CHARS = 100_000

Part = Callable[[str, Mapping[str, Any]], str]
"""Renders a part of a page."""


class ModelNotOfKey(HocketError):
    """Your key may not call the model `{model}`. Choose another one, or ask for a key that may."""

    code = "model_forbidden"
    error_class = ErrorClass.INVALID


class PlaygroundCall(Body):
    """What the form of the playground sends."""

    model: Annotated[Name, Field(min_length=1, max_length=200)]
    prompt: str = Field(min_length=1, max_length=MAX_PROMPT_CHARS)
    system: str = Field("", max_length=MAX_PROMPT_CHARS)
    max_tokens: int = Field(512, ge=1, le=32_768)
    temperature: float | None = Field(None, ge=0, le=2)
    priority: Priority = Priority.INTERACTIVE
    timeout_s: float = Field(60, ge=1, le=300)


def request_of(wanted: PlaygroundCall, caller: Caller, chunks_to: str) -> CallRequest:
    """Return the call request, for the caller's tenant and charged to the caller's key."""
    said = [("system", wanted.system), ("user", wanted.prompt)]
    return CallRequest(
        call_id=f"console:{uuid4().hex}",
        model=wanted.model,
        messages=tuple(
            ChatMessage.model_validate({"role": role, "content": text})
            for role, text in said
            if text
        ),
        max_tokens=wanted.max_tokens,
        temperature=wanted.temperature,
        chunks_to=chunks_to,
        deadline_at_ms=clock.now_ms() + wanted.timeout_s * 1_000,
        priority=wanted.priority,
        attribution=Attribution(tenant=caller.tenant, labels={KEY_LABEL: caller.bearer.key_id}),
    )


def check_model(caller: Caller, model: str) -> None:
    """Raise ModelNotOfKey if the key is restricted to other models."""
    if caller.bearer.models is not None and model not in caller.bearer.models:
        raise ModelNotOfKey(model=model)


async def stream(
    context: Context, caller: Caller, wanted: PlaygroundCall, prices: Any, part: Part
) -> AsyncGenerator[bytes, None]:
    """Yield a call's answer as it is generated, then its cost, then its routing decision. `prices` are
    the prices of each backend, by name."""
    inbox = context.bus.nc.new_inbox()
    call = request_of(wanted, caller, inbox)
    pieces: asyncio.Queue[str] = asyncio.Queue()

    def take(message: RawMessage) -> None:
        with suppress(ValidationError):  # the reply contains the whole answer
            pieces.put_nowait(CallChunk.model_validate_json(message.data).text)

    subscription = await context.bus.subscribe_raw(inbox, take)
    asking = asyncio.create_task(_asked(context, call, wanted.timeout_s * 1_000))
    try:
        yield QUIET
        while not asking.done():
            yield await _next(pieces, asking)
        reply = asking.result()
    finally:
        if not asking.done():
            asking.cancel()
            gone = CallCancelled(tenant=caller.tenant, call_id=call.call_id)
            context.bus.publish_nowait(subjects.GATEWAY_CANCEL, encoded(gone))
        with suppress(NatsError):  # the connection is closed
            await subscription.unsubscribe()
    values = {"reply": reply, "asked": wanted, "prices": prices.get(reply.backend)}
    yield _event("reply", text=reply.text, html=part("playground_reply.html", values))
    found = await _explained(context, caller.tenant, call.call_id, failed=reply.error is not None)
    yield _event("decision", html=part("playground_decision.html", {"call": found, "reply": reply}))


async def _next(pieces: "asyncio.Queue[str]", asking: "asyncio.Task[CallReply]") -> bytes:
    """Return the pieces that have arrived, or a comment if the call ends first or nothing arrives."""
    getting = asyncio.create_task(pieces.get())
    try:
        await asyncio.wait({getting, asking}, timeout=QUIET_S, return_when=asyncio.FIRST_COMPLETED)
        if not getting.done():
            return QUIET
        text = getting.result()
    finally:
        getting.cancel()
    while not pieces.empty():
        text += pieces.get_nowait()
    return _event("piece", text=text)


async def _asked(context: Context, call: CallRequest, timeout_ms: float) -> CallReply:
    """Return a gateway's reply; if there is none, a reply that says so."""
    payload = encoded(call)
    try:
        answer = await context.bus.request(
            subjects.GATEWAY_CALL,
            payload,
            timeout_ms=timeout_ms + REPLY_GRACE_MS,
            headers=sealed(context.capabilities, subjects.GATEWAY_CALL, payload),
        )
        return CallReply.model_validate_json(answer.data)
    except BusUnavailable as error:
        return _failed(call, GatewaySilent(reason=str(error)))
    except ValidationError as error:
        reason = f"its reply cannot be read ({error.error_count()} faults)"
        return _failed(call, GatewaySilent(reason=reason))


class GatewaySilent(HocketError):
    """No gateway answered: {reason}. Start one (`hocket up`), or try again."""

    code = "gateway_away"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True


def _failed(call: CallRequest, error: HocketError) -> CallReply:
    return CallReply(call_id=call.call_id, model=call.model, error=error.info())


async def _explained(context: Context, tenant: str, call_id: str, *, failed: bool) -> Any:
    """Return the ledger's record of a call once it is booked, or None if that takes too long."""
    until_s = clock.monotonic_ms() / 1_000 + (REFUSED_S if failed else EXPLAINED_S)
    while True:
        found = await reads.explain(context.pool, tenant, call_id)
        if found.attempts or found.refused is not None:
            return found
        if clock.monotonic_ms() / 1_000 >= until_s or context.stopping.is_set():
            return None
        await asyncio.sleep(LOOK_S)


def _event(name: str, **data: str) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()
