"""Model calls to the gateway: request and reply over NATS, asked again when a reply is lost.

A call keeps its id however often it is asked, so the gateway can join what is asked twice. It is
asked again, with a header that says so, after a reconnect and when no reply came for `ASK_AGAIN_MS`;
while there is no gateway it is tried for `NO_GATEWAY_MS`. The caller's deadline bounds all of it. A
cancelled caller cancels its call at the gateway.
"""

import asyncio
from contextlib import suppress

from pydantic import ValidationError

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.process.clock import now_ms
from hocket.schemas import subjects
from hocket.schemas.messages import CallCancelled, CallReply, CallRequest
from hocket.workers.errors import GatewayUnavailable, ModelTooSlow

ASK_AGAIN_MS = 15_000.0
NO_GATEWAY_MS = 10_000.0
NO_GATEWAY_PAUSE_MS = 100.0


class ModelCalls:
    """Makes calls over one bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._asked: set[asyncio.Task[CallReply]] = set()
        bus.on_reconnect.append(self._ask_again)

    async def make(self, request: CallRequest, headers: dict[str, str] | None = None) -> CallReply:
        """Return the gateway's reply, which may hold a typed error; before the request's deadline raise
        GatewayUnavailable where there is no gateway, at it ModelTooSlow where one works on the call."""
        payload = request.model_dump_json().encode()
        try:
            return await self._until_answered(request, payload, headers)
        except asyncio.CancelledError:
            cancelled = CallCancelled(
                tenant=request.attribution.tenant,
                call_id=request.call_id,
                capability=request.capability,
            )
            self._bus.publish_nowait(subjects.GATEWAY_CANCEL, cancelled.model_dump_json().encode())
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
            asking = asyncio.create_task(
                self._ask(payload, min(left_ms, ASK_AGAIN_MS), headers), name="model-call"
            )
            self._asked.add(asking)
            try:
                await asyncio.wait({asking})
            except asyncio.CancelledError:
                asking.cancel()
                raise
            finally:
                self._asked.discard(asking)
            headers = {**(headers or {}), subjects.ASKED_AGAIN: "1"}
            if asking.cancelled():
                continue
            failure = asking.exception()
            if failure is None:
                return asking.result()
            if not isinstance(failure, BusUnavailable):
                raise failure
            if isinstance(failure.__cause__, TimeoutError):
                silent_since_ms = None
                continue
            silent_since_ms = silent_since_ms or now_ms()
            if self._bus.connected and now_ms() - silent_since_ms >= NO_GATEWAY_MS:
                raise GatewayUnavailable(reason=str(failure), component="gateway")
            await asyncio.sleep(NO_GATEWAY_PAUSE_MS / 1000)

    async def _ask(
        self, payload: bytes, timeout_ms: float, headers: dict[str, str] | None
    ) -> CallReply:
        message = await self._bus.request(
            subjects.GATEWAY_CALL, payload, timeout_ms=timeout_ms, headers=headers
        )
        try:
            return CallReply.model_validate_json(message.data)
        except ValidationError as error:
            raise GatewayUnavailable(
                reason=f"its reply cannot be read ({error.error_count()} faults)",
                component="gateway",
            ) from None

    def _ask_again(self) -> None:
        for asking in self._asked:
            asking.cancel()

    def close(self) -> None:
        """Stop listening for reconnects."""
        with suppress(ValueError):
            self._bus.on_reconnect.remove(self._ask_again)
