"""The other gateways: whether one of them holds a call that came here again.

A caller that lost its reply asks again, and another gateway may get the question than the first time;
and NATS, after a crash, may give a step to a second worker, which asks what the first one did. So the
gateway asks all the others before it makes such a call: who holds it answers the caller itself when it
is made, and says so at once; who does not says its name. Once all that lived lately have said so, nobody
holds it. After connections to NATS were lost gateways come back one after the other: they are asked
HELD_TRIES times. Whoever has not answered by then is gone.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

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
HELD_TRIES = round(subjects.ASKED_AGAIN_MS / HELD_TIMEOUT_MS)
"""Each takes HELD_TIMEOUT_MS where not all have answered: a call that is made twice is paid twice, and
one that comes again has lost more time than this."""
LATELY_S = 5.0
"""A gateway that lived so lately is waited for: after a crash of NATS it may not be known yet that it
still does. One that was killed costs each such call its time for so long."""
CLOSE_TIMEOUT_MS = 1_000.0

log = structlog.get_logger()
_reporting = Reporting()

Answer = Callable[[str, CallReply], None]
"""Sends a reply to a subject."""


class Living(Protocol):
    """Which gateways live."""

    @property
    def name(self) -> str:
        """This one's."""
        ...

    @property
    def live(self) -> frozenset[str]:
        """All, this one included; empty where that is not known yet."""
        ...


class Peers:
    """Asks the other gateways, and answers them; open it, and close it when no call is held any more."""

    def __init__(self, bus: Bus, registry: CallRegistry, answer: Answer, living: Living) -> None:
        self._bus = bus
        self._registry = registry
        self._answer = answer
        self._living = living
        self._lived_at_s: dict[str, float] = {}
        self._subscription: Subscription | None = None

    async def open(self) -> None:
        """Hear what the others ask."""
        self._subscription = await self._bus.subscribe(subjects.GATEWAY_HELD, self._on_asked)

    async def close(self) -> None:
        """Hear nothing any more."""
        if self._subscription is not None:
            await _ended(self._subscription)

    def look(self) -> None:
        """Take note of who lives; to be called whenever that may have changed."""
        now_s = asyncio.get_running_loop().time()
        self._lived_at_s.update(dict.fromkeys(self._living.live, now_s))
        for name in [name for name, at in self._lived_at_s.items() if at < now_s - LATELY_S]:
            del self._lived_at_s[name]

    async def hold(self, tenant: str, call_id: str, reply_to: str) -> bool:
        """Tell whether another gateway holds a tenant's call; if so it answers `reply_to`."""
        if not subjects.is_inbox(reply_to):
            return False
        held = HeldCall(tenant=tenant, call_id=call_id, reply_to=reply_to, counts=True)
        asking = _Asking(self._bus, held, self._missing)
        try:
            return await asking.answer()
        except BusUnavailable:
            return False  # whoever asked comes again

    def _missing(self, answered: set[str]) -> bool:
        """Tell whether somebody may hold a call who has not answered."""
        self.look()
        others = self._lived_at_s.keys() - {self._living.name}
        return not self._living.live or not others <= answered

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
        elif asked.counts:
            self._bus.respond(message.reply, self._living.name.encode())


class _Asking:
    """One question to all, and what they say."""

    def __init__(self, bus: Bus, held: HeldCall, missing: Callable[[set[str]], bool]) -> None:
        self._bus = bus
        self._asked = held.model_dump_json().encode()
        self._missing = missing
        self._answered: set[str] = set()
        self._is_held = False
        self._changed = asyncio.Event()

    async def answer(self) -> bool:
        """Tell whether somebody says that he holds the call. Raises BusUnavailable."""
        inbox = self._bus.nc.new_inbox()
        heard = await self._bus.subscribe(inbox, self._on_answer)
        try:
            for _ in range(HELD_TRIES):
                self._bus.publish_nowait(subjects.GATEWAY_HELD, self._asked, reply=inbox)
                try:
                    async with asyncio.timeout(HELD_TIMEOUT_MS / 1000):
                        while not self._is_held and self._missing(self._answered):
                            await self._changed.wait()
                            self._changed.clear()
                except TimeoutError:
                    continue
                return self._is_held
            return False
        finally:
            await _ended(heard)

    async def _on_answer(self, message: Msg) -> None:
        if message.data:
            self._answered.add(message.data.decode(errors="replace"))
        else:
            self._is_held = True
        self._changed.set()


async def _ended(subscription: Subscription) -> None:
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_MS / 1000):
            await subscription.unsubscribe()
    except (NatsError, TimeoutError) as error:
        log.warning("peers_not_unsubscribed", reason=repr(error))
