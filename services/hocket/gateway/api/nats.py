"""The door for workers: model calls as NATS requests.

A CallRequest sent to `hocket.gateway.call` gets its CallReply on the request's reply subject and,
with `chunks_to`, the pieces of its answer there as CallChunks. If a repeated call is not known
here, the other gateways are asked first whether one of them holds it. `hocket.gateway.cancel` stops
a call, `hocket.cancel` (which workers receive too) stops those of an attempt, and
`hocket.gateway.models` lists the logical models. An invalid call is answered with a typed error.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial

import structlog
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from hocket.gateway.api.arriving_calls import ArrivingCalls, ArrivingFull, is_repeat
from hocket.gateway.api.cancels import Cancels, drained
from hocket.gateway.api.peers import Living, Peers
from hocket.gateway.api.reply_messages import chunk_publisher, encoded_reply
from hocket.gateway.calls.cancellation import Cancellation
from hocket.gateway.calls.registry import CallRegistry
from hocket.gateway.calls.sought_calls import SoughtCalls
from hocket.gateway.core.errors import (
    CallIdReused,
    CallMalformed,
    CallNotAttributable,
    CallStopped,
    GatewayFull,
    ModelNotGranted,
)
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.protocol import RawMessage
from hocket.schemas import subjects
from hocket.schemas.access.nats_table import GUESTS_CALL
from hocket.schemas.capabilities import Capabilities
from hocket.schemas.errors import HocketError
from hocket.schemas.messages import CallReply, CallRequest

QUEUE = "gateway"
OPEN_TIMEOUT_S = 10
READ_TIMEOUT_S = 5
"""How long large calls may take to be read once no new ones are accepted."""

log = structlog.get_logger()


def _kept_in(tasks: "set[asyncio.Task[None]]", work: Coroutine[None, None, None]) -> None:
    """Do some work in a task, which the set holds until it ends."""
    task = asyncio.create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)


async def _as_told(request: CallRequest) -> CallRequest:
    return request


class NatsDoor:
    """Takes calls from NATS: call `open`, then `stop_accepting`,
    then `close` once those in flight are answered."""

    def __init__(
        self,
        bus: Bus,
        registry: CallRegistry,
        living: Living,
        capabilities: Capabilities | None = None,
        as_stored: Callable[[CallRequest], Awaitable[CallRequest]] = _as_told,
    ) -> None:
        self._bus = bus
        self._as_stored = as_stored
        self._registry = registry
        self._subscriptions: list[Subscription] = []
        self._sought = SoughtCalls()
        self._arriving = ArrivingCalls(capabilities)
        self._cancels = Cancels(bus, registry, self._sought, self._arriving)
        self._peers = Peers(bus, registry, self._tell, living, self._arriving.until_read)
        self.look = self._peers.look
        """To be called whenever other gateways may have joined or left."""
        self._reading: set[asyncio.Task[None]] = set()
        self._asking: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Subscribe; once it returns, the server delivers calls here."""
        self._subscriptions = [
            await self._bus.subscribe_raw(subjects.GATEWAY_CALL, self._on_call, queue=QUEUE),
            await self._bus.subscribe_raw(GUESTS_CALL, self._on_call, queue=QUEUE),
            await self._bus.subscribe(subjects.GATEWAY_MODELS, self._on_models, queue=QUEUE),
        ]
        await self._cancels.open()
        await self._peers.open()
        await self._bus.nc.flush(timeout=OPEN_TIMEOUT_S)

    async def stop_accepting(self) -> None:
        """Unsubscribe, after handling what was already delivered; calls can still be stopped."""
        for subscription in self._subscriptions:
            await drained(subscription)
        if self._reading:
            _, unread = await asyncio.wait(tuple(self._reading), timeout=READ_TIMEOUT_S)
            for task in unread:
                task.cancel()  # its caller asks again
        if self._asking:
            await asyncio.wait(self._asking)

    async def close(self) -> None:
        """Stop listening altogether."""
        await self._peers.close()
        await self._cancels.close()

    def _on_call(self, message: RawMessage) -> None:
        if self._arriving.is_large(message):
            _kept_in(self._reading, self._read(message, self._arriving.read_beside(message)))
            return
        try:
            request = self._arriving.read(message)
        except (CallMalformed, CallNotAttributable) as error:
            self._refuse(message, "", "", error)
        else:
            self._take(message, request)

    async def _read(
        self,
        message: RawMessage,
        reading: Coroutine[None, None, tuple[CallRequest, Cancellation]],
    ) -> None:
        """Begin a large call once it is read, unless it is stopped before."""
        try:
            request, stop = await reading
        except (CallMalformed, CallNotAttributable, ArrivingFull) as error:
            if isinstance(error, ArrivingFull) and is_repeat(message):
                log.info(
                    "repeat_dropped"
                )  # the call may be in progress here; its caller asks again
            else:
                self._refuse(message, "", "", error)
            return
        try:
            stop.check()
        except CallStopped as error:
            self._refuse(message, request.call_id, request.model, error)
        else:
            self._take(message, request)

    def _take(self, message: RawMessage, request: CallRequest) -> None:
        """Begin a call; ask others before, if they may know something of it."""
        of_guest = message.subject == GUESTS_CALL
        is_lost = is_repeat(message) and not self._registry.knows(request)
        if is_lost or of_guest:
            wanted = self._wanted(message, request, of_guest, is_lost)
            found = self._sought.seek(request, wanted)
            _kept_in(self._asking, self._begin_if_wanted(message, request, found))
        else:
            self._begin(message, request)

    async def _begin_if_wanted(
        self,
        message: RawMessage,
        request: CallRequest,
        wanted: Coroutine[None, None, CallRequest | None],
    ) -> None:
        """Begin a call once others have answered what it needs to know, unless it is stopped before."""
        try:
            to_make = await wanted
        except CallStopped as error:
            self._refuse(message, request.call_id, request.model, error)
            return
        if to_make is not None:
            self._begin(message, to_make)

    async def _wanted(
        self, message: RawMessage, request: CallRequest, of_guest: bool, is_lost: bool
    ) -> CallRequest | None:
        """Return the call to make; None if it is a repeated one (`is_lost`) that another gateway
        holds. A guest may have left out the budgets of its run."""
        if of_guest:
            request = await self._as_stored(request)
        if is_lost and await self._peers.hold(request, message.reply):
            log.info("call_held_elsewhere", call_id=request.call_id)
            return None
        return request

    def _begin(self, message: RawMessage, request: CallRequest) -> None:
        tell = partial(self._tell, message.reply)
        try:
            self._registry.begin(
                request, message.headers, chunk_publisher(self._bus, request), tell
            )
        except (CallIdReused, GatewayFull, ModelNotGranted) as error:
            self._refuse(message, request.call_id, request.model, error)

    def _tell(self, reply_to: str, reply: CallReply) -> None:
        if reply_to:
            self._bus.respond(reply_to, encoded_reply(reply, self._bus.nc.max_payload))

    def _refuse(self, message: RawMessage, call_id: str, model: str, error: HocketError) -> None:
        self._registry.refused(error.code)
        log.info("call_refused", call_id=call_id, model=model, code=error.code)
        reply = CallReply(call_id=call_id, model=model, error=error.info())
        self._answer(message, reply.model_dump_json().encode())

    def _answer(self, message: Msg | RawMessage, reply: bytes) -> None:
        if message.reply:
            self._bus.respond(message.reply, reply)

    async def _on_models(self, message: Msg) -> None:
        table = self._registry.table
        models = [
            {
                "name": name,
                "backends": [spec.name for spec in backends],
                "priced": all(spec.prices.priced for spec in backends),
            }
            for name in table.names()
            for backends in [table.serving(name)]
        ]
        prices = {
            spec.name: spec.prices.known
            for name in table.names()
            for spec in table.serving(name)
            if spec.prices.priced
        }
        told = {"models": models, "prices": prices}
        self._answer(message, json.dumps(told).encode())
