"""The other gateways: whether one of them holds a call that came here again.

A caller that lost its reply asks again, and another gateway may get the question than the first time.
It asks all the others before it makes the call: who holds it answers the caller itself when it is made,
and says so at once. After connections to NATS were lost, gateways come back one after the other, so
they are asked HELD_TRIES times. If nobody says so by then, whoever had it is gone.
"""

import asyncio
from collections.abc import Callable

import structlog
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from pydantic import ValidationError

from hocket.gateway.calls.registry import CallRegistry
from hocket.kit.logs.log_limits import Reporting
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.schemas import subjects
from hocket.schemas.messages import CallReply, HeldCall

HELD_TIMEOUT_MS = 300.0
HELD_TRIES = 6
"""Each takes HELD_TIMEOUT_MS where nobody says that he holds the call: a call that is made twice is paid
twice, and one that comes again has lost more time than this."""
CLOSE_TIMEOUT_MS = 1_000.0

log = structlog.get_logger()
_reporting = Reporting()

Answer = Callable[[str, CallReply], None]
"""Sends a reply to a subject."""


class Peers:
    """Asks the other gateways, and answers them; open it, and close it when no call is held any more."""

    def __init__(self, bus: Bus, registry: CallRegistry, answer: Answer) -> None:
        self._bus = bus
        self._registry = registry
        self._answer = answer
        self._subscription: Subscription | None = None

    async def open(self) -> None:
        """Hear what the others ask."""
        self._subscription = await self._bus.subscribe(subjects.GATEWAY_HELD, self._on_asked)

    async def close(self) -> None:
        """Hear nothing any more."""
        if self._subscription is None:
            return
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_MS / 1000):
                await self._subscription.unsubscribe()
        except (NatsError, TimeoutError) as error:
            log.warning("peers_not_unsubscribed", reason=repr(error))

    async def hold(self, tenant: str, call_id: str, reply_to: str) -> bool:
        """Tell whether another gateway holds a tenant's call; if so it answers `reply_to`."""
        if not subjects.is_inbox(reply_to):
            return False
        held = HeldCall(tenant=tenant, call_id=call_id, reply_to=reply_to)
        asked = held.model_dump_json().encode()
        loop = asyncio.get_running_loop()
        for _ in range(HELD_TRIES):
            again_at = loop.time() + HELD_TIMEOUT_MS / 1000
            try:
                await self._bus.request(subjects.GATEWAY_HELD, asked, timeout_ms=HELD_TIMEOUT_MS)
            except BusUnavailable:  # at once where this connection is lost, too
                await asyncio.sleep(again_at - loop.time())
            else:
                return True
        return False

    async def _on_asked(self, message: Msg) -> None:
        try:
            asked = HeldCall.model_validate_json(message.data)
        except ValidationError as error:
            if count := _reporting.due("held_call_malformed"):
                log.warning("held_call_malformed", faults=error.error_count(), count=count)
            return
        if not subjects.is_inbox(asked.reply_to):
            return
        reply = self._registry.find(asked.tenant, asked.call_id)
        if reply is not None:
            self._bus.respond(message.reply, b"")
            reply.add_done_callback(lambda made: self._answer(asked.reply_to, made.result()))
