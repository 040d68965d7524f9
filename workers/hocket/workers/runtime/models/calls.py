"""Model calls to the gateway: request and reply over NATS, sent again when a reply is lost.

A call keeps its id however often it is sent, so that the gateway can join duplicates. It is sent again,
with a header that says so, after a reconnect and when no reply has come for `ASK_AGAIN_MS`; while there
is no gateway it is retried for `NO_GATEWAY_MS`. The caller's deadline bounds all of this. If the caller
is cancelled, its call is cancelled at the gateway.
"""

import asyncio
from contextlib import suppress
from typing import Protocol

from pydantic import ValidationError

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.protocol import RawMessage
from hocket.kit.process.clock import now_ms
from hocket.schemas import subjects
from hocket.schemas.messages import CallCancelled, CallReply, CallRequest, encoded
from hocket.workers.errors import GatewayUnavailable, ModelTooSlow

ASK_AGAIN_MS = 15_000.0
NO_GATEWAY_MS = 10_000.0
NO_GATEWAY_PAUSE_MS = 100.0


class Calls(Protocol):
    """The way to the gateway."""

    async def make(self, request: CallRequest, headers: dict[str, str] | None = None) -> CallReply:
        """Return the gateway's reply, which may hold a typed error."""
        ...


class ModelCalls:
    """Makes calls over one bus, from `open` to `close`."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._asked: set[asyncio.Future[RawMessage]] = set()

    def open(self) -> None:
        """Start sending unanswered calls again after each reconnect."""
        self._bus.on_reconnect.append(self._ask_anew)

    def close(self) -> None:
        """Stop listening for reconnects."""
        with suppress(ValueError):
            self._bus.on_reconnect.remove(self._ask_anew)

    async def make(self, request: CallRequest, headers: dict[str, str] | None = None) -> CallReply:
        """Return the gateway's reply, which may hold a typed error.

        Raises GatewayUnavailable if no gateway answers, and ModelTooSlow if the request's deadline
        passes while a gateway works on the call."""
        try:
            return await self._until_answered(request, encoded(request), headers)
        except asyncio.CancelledError:
            cancelled = CallCancelled(
                tenant=request.attribution.tenant,
                call_id=request.call_id,
                capability=request.capability,
            )
            self._bus.publish_nowait(subjects.GATEWAY_CANCEL, encoded(cancelled))
            raise

    async def _until_answered(
        self, request: CallRequest, payload: bytes, headers: dict[str, str] | None
    ) -> CallReply:
        silent_since_ms: float | None = None
        while True:
            left_ms = request.deadline_at_ms - now_ms()
            if left_ms <= 0 and silent_since_ms is None:
                raise ModelTooSlow(model=request.model)
            if left_ms <= 0:
                raise GatewayUnavailable(reason="nobody answered in time", component="gateway")
            answer = self._ask(payload, headers)
            try:
                await asyncio.wait({answer}, timeout=min(left_ms, ASK_AGAIN_MS) / 1000)
            finally:
                in_time = answer.done()
                answer.cancel()
            headers = {**(headers or {}), subjects.ASKED_AGAIN: "1"}
            if not in_time:
                silent_since_ms = None
            elif not answer.cancelled():
                failure = answer.exception()
                if failure is None:
                    return _reply_in(answer.result())
                silent_since_ms = silent_since_ms or now_ms()
                if self._bus.connected and now_ms() - silent_since_ms >= NO_GATEWAY_MS:
                    raise GatewayUnavailable(reason=str(failure), component="gateway")
                await asyncio.sleep(NO_GATEWAY_PAUSE_MS / 1000)

    def _ask(self, payload: bytes, headers: dict[str, str] | None) -> asyncio.Future[RawMessage]:
        """Send the request; while NATS is disconnected return a future that the reconnect cancels, so
        that the request is sent then."""
        if self._bus.connected:
            answer = self._bus.ask(subjects.GATEWAY_CALL, payload, headers)
        else:
            answer = asyncio.get_running_loop().create_future()
        self._asked.add(answer)
        answer.add_done_callback(self._asked.discard)
        return answer

    def _ask_anew(self) -> None:
        for answer in list(self._asked):
            answer.cancel()


def _reply_in(message: RawMessage) -> CallReply:
    try:
        return CallReply.model_validate_json(message.data)
    except ValidationError as error:
        raise GatewayUnavailable(
            reason=f"its reply cannot be read ({error.error_count()} faults)",
            component="gateway",
        ) from None
