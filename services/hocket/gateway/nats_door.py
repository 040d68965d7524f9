"""The door for workers: model calls as NATS requests.

A CallRequest on `hocket.gateway.call` gets its CallReply on the request's reply subject. The same call
delivered twice is made once: the second waits for the first, or gets the reply that was sent. More
calls than `max_calls` are refused with a typed error. `hocket.gateway.cancel` stops a call,
`hocket.gateway.models` lists the logical models.
"""

import asyncio
import json

import structlog
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from opentelemetry import context, trace
from pydantic import ValidationError

from hocket.gateway.calls import BUSY_RETRY_MS, Calls, Cancellation
from hocket.gateway.core.errors import CallMalformed, GatewayBroken, GatewayFull, ReplyTooLarge
from hocket.gateway.core.replies import RecentReplies
from hocket.gateway.metrics import GatewayMetrics
from hocket.kit import clock, telemetry
from hocket.kit.bus import Bus
from hocket.schemas import subjects
from hocket.schemas.errors import HocketError
from hocket.schemas.messages import CallCancelled, CallReply, CallRequest

QUEUE = "gateway"
MAX_CALLS = 1_024
"""Calls that one gateway holds at once, those waiting for a backend included."""
OPEN_TIMEOUT_S = 10
MAX_ID_CHARS = 512
MAX_ATTRIBUTION_CHARS = 16_384

log = structlog.get_logger()
tracer = trace.get_tracer("hocket.gateway")


class NatsDoor:
    """Takes calls from NATS; open it, and close it before the process ends."""

    def __init__(
        self,
        bus: Bus,
        calls: Calls,
        metrics: GatewayMetrics,
        *,
        exporting: bool = False,
        max_calls: int = MAX_CALLS,
    ) -> None:
        self._bus = bus
        self._calls = calls
        self._metrics = metrics
        self._max_calls = max_calls
        self._exporting = exporting
        self._subscriptions: list[Subscription] = []
        self._making: dict[str, tuple[asyncio.Task[bytes], Cancellation]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._replies = RecentReplies()

    async def open(self) -> None:
        """Subscribe; when it returns, the server sends calls here."""
        subscribe = self._bus.subscribe
        self._subscriptions = [
            await subscribe(subjects.GATEWAY_CALL, self._on_call, queue=QUEUE),
            await subscribe(subjects.GATEWAY_MODELS, self._on_models, queue=QUEUE),
            await subscribe(subjects.GATEWAY_CANCEL, self._on_cancel),
        ]
        await self._bus.nc.flush(timeout=OPEN_TIMEOUT_S)

    async def close(self, *, drain_ms: float, flush_ms: float) -> None:
        """Take no new calls, let those in flight end within `drain_ms`, then stop them and give
        `flush_ms` to book and answer what was stopped."""
        cancels = self._subscriptions.pop()
        for subscription in self._subscriptions:
            await self._take_no_more(subscription, flush_ms)
        await self._settle(drain_ms)
        for _, cancellation in self._making.values():
            cancellation.cancel("the gateway stops")
        await self._settle(flush_ms)
        await self._take_no_more(cancels, flush_ms)
        if self._answering:
            log.error("calls_abandoned", calls=len(self._answering))

    async def _take_no_more(self, subscription: Subscription, timeout_ms: float) -> None:
        """Unsubscribe, after what was delivered already has been taken."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await subscription.drain()  # type: ignore[no-untyped-call]
        except (NatsError, TimeoutError) as error:
            log.warning("drain_incomplete", subject=subscription.subject, reason=repr(error))

    async def _settle(self, timeout_ms: float) -> None:
        if self._answering:
            await asyncio.wait(set(self._answering), timeout=timeout_ms / 1000)

    async def _on_call(self, message: Msg) -> None:
        try:
            request = _checked(message.data)
        except CallMalformed as error:
            self._refuse(message, "", "", error)
            return
        if (sent := self._replies.find(request.call_id, clock.now_ms())) is not None:
            self._metrics.repeated.inc()
            self._answer(message, sent)
            return
        if (making := self._making.get(request.call_id)) is not None:
            self._metrics.repeated.inc()
            self._follow(message, making[0])
            return
        if len(self._making) >= self._max_calls:
            full = GatewayFull(
                limit=self._max_calls,
                component="gateway",
                retry_at_ms=clock.now_ms() + BUSY_RETRY_MS,
            )
            self._refuse(message, request.call_id, request.model, full)
            return
        self._follow(message, self._start(message, request))

    def _start(self, message: Msg, request: CallRequest) -> asyncio.Task[bytes]:
        cancellation = Cancellation()
        task = asyncio.create_task(
            self._made(request, cancellation, dict(message.headers or {})),
            name=f"call {request.call_id}",
        )
        self._making[request.call_id] = (task, cancellation)
        task.add_done_callback(lambda _: self._ended(request.call_id))
        self._count()
        return task

    def _ended(self, call_id: str) -> None:
        del self._making[call_id]
        self._count()

    def _count(self) -> None:
        self._metrics.in_flight.set(len(self._making))
        self._metrics.waiting.set(self._calls.places.waiting)

    async def _made(
        self, request: CallRequest, cancellation: Cancellation, headers: dict[str, str]
    ) -> bytes:
        """Make the call and return its encoded reply, remembered where a backend was asked."""
        token = context.attach(telemetry.extract(headers))
        try:
            if self._exporting:
                reply = await self._traced(request, cancellation)
            else:
                reply = await self._calls.make(request, cancellation)
        finally:
            context.detach(token)
        encoded = self._encoded(reply)
        if reply.backend:
            self._replies.keep(request.call_id, encoded, clock.now_ms())
        else:
            self._metrics.refused.labels(reply.error.code if reply.error else "").inc()
        return encoded

    async def _traced(self, request: CallRequest, cancellation: Cancellation) -> CallReply:
        """Make the call inside a span, after OpenTelemetry's conventions for generative AI."""
        operation = "embeddings" if request.embed else "chat"
        with tracer.start_as_current_span(
            f"{operation} {request.model}",
            kind=trace.SpanKind.CLIENT,
            attributes={
                "gen_ai.operation.name": operation,
                "gen_ai.request.model": request.model,
                "hocket.call_id": request.call_id,
                "hocket.run_id": request.attribution.run_id or "",
            },
        ) as span:
            reply = await self._calls.make(request, cancellation)
            span.set_attribute("hocket.backend", reply.backend)
            span.set_attribute("gen_ai.usage.input_tokens", reply.input_tokens)
            span.set_attribute("gen_ai.usage.output_tokens", reply.output_tokens)
            if reply.error is not None:
                span.set_status(trace.StatusCode.ERROR, reply.error.code)
            return reply

    def _encoded(self, reply: CallReply) -> bytes:
        encoded = reply.model_dump_json().encode()
        limit_bytes = self._bus.nc.max_payload
        if len(encoded) <= limit_bytes:
            return encoded
        error = ReplyTooLarge(size_bytes=len(encoded), limit_bytes=limit_bytes)
        bare = reply.model_copy(
            update={"text": "", "data": None, "embeddings": (), "error": error.info()}
        )
        return bare.model_dump_json().encode()

    def _follow(self, message: Msg, task: asyncio.Task[bytes]) -> None:
        answering = asyncio.create_task(self._answer_when_made(message, task))
        self._answering.add(answering)
        answering.add_done_callback(self._answering.discard)

    async def _answer_when_made(self, message: Msg, task: asyncio.Task[bytes]) -> None:
        try:
            self._answer(message, await asyncio.shield(task))
        except Exception as error:
            log.exception("call_crashed", call=task.get_name())
            self._refuse(message, "", "", GatewayBroken(reason=repr(error), component="gateway"))

    def _refuse(self, message: Msg, call_id: str, model: str, error: HocketError) -> None:
        self._metrics.refused.labels(error.code).inc()
        log.info("call_refused", call_id=call_id, model=model, code=error.code)
        reply = CallReply(call_id=call_id, model=model, error=error.info())
        self._answer(message, reply.model_dump_json().encode())

    def _answer(self, message: Msg, reply: bytes) -> None:
        if message.reply:
            self._bus.tell(message.reply, reply)

    async def _on_cancel(self, message: Msg) -> None:
        try:
            wanted = CallCancelled.model_validate_json(message.data)
        except ValidationError as error:
            log.warning("cancel_malformed", reason=str(_malformed(error)))
            return
        making = self._making.get(wanted.call_id)
        if making is not None:
            making[1].cancel("somebody asked to")

    async def _on_models(self, message: Msg) -> None:
        table = self._calls.routes.table
        models = [
            {
                "name": name,
                "backends": [spec.name for spec in backends],
                "priced": all(spec.prices.priced for spec in backends),
            }
            for name in table.names()
            for backends in [table.backends_of(name)]
        ]
        self._answer(message, json.dumps({"models": models}).encode())


def _checked(payload: bytes) -> CallRequest:
    """Return the request, or raise CallMalformed; what it asks to book must fit a usage record."""
    try:
        request = CallRequest.model_validate_json(payload)
    except ValidationError as error:
        raise _malformed(error) from error
    if not (0 < len(request.call_id) <= MAX_ID_CHARS and request.call_id.isprintable()):
        reason = f"it is not 1 to {MAX_ID_CHARS} printable characters"
        raise CallMalformed(field="call_id", reason=reason)
    if len(request.attribution.model_dump_json()) > MAX_ATTRIBUTION_CHARS:
        reason = f"it has more than {MAX_ATTRIBUTION_CHARS} characters"
        raise CallMalformed(field="attribution", reason=reason)
    return request


def _malformed(error: ValidationError) -> CallMalformed:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return CallMalformed(field=".".join(map(str, first["loc"])) or "body", reason=first["msg"])
