"""Asks the other gateways whether one of them holds a call that was repeated here.

A caller that lost its reply asks again, possibly at another gateway; and after a crash, NATS may
deliver a step to a second worker, which makes the same calls as the first. So before making such a
call, a gateway asks all the others. A gateway that holds the call confirms it at once and later
sends the reply to the caller itself; one that does not answers with its name. When every recently
live gateway has answered with its name, nobody holds the call. One that cannot tell in time, because
large calls are yet to be read, confirms it too: otherwise the call might be made twice, and if it is not
held after all, the caller asks again. After connections to NATS were lost,
gateways reconnect one by one, so they are asked HELD_TRIES times; those that have not answered by
then are considered gone.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol
from uuid import uuid4

import structlog
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from pydantic import ValidationError

from hocket.gateway.backends.large_requests import converted
from hocket.gateway.calls.registry import CallRegistry
from hocket.gateway.core.calls.call_key import CallKey, digest
from hocket.kit.logs.log_limits import Reporting
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.process.task_stop import stop_tasks
from hocket.schemas import subjects
from hocket.schemas.messages import CallReply, CallRequest, HeldCall

HELD_TIMEOUT_MS = 300.0
HELD_TRIES = round(subjects.ASKED_AGAIN_MS / HELD_TIMEOUT_MS)
"""Each try takes HELD_TIMEOUT_MS if not all gateways have answered. That is worth it, because a
call made twice is paid for twice, and a repeated call has already lost more time than this."""
LATELY_S = 5.0
"""A gateway that was alive this recently is waited for, because after a crash of NATS it may still
be alive without being known to be. The price is that for this long, a killed gateway delays every
such call."""
FIND_MS = 1_000.0
"""How long a gateway may take to find out whether it holds a call. The rest of the time that a question
has is for its way."""
CLOSE_TIMEOUT_MS = 1_000.0

log = structlog.get_logger()
_reporting = Reporting()

Answer = Callable[[str, CallReply], None]
"""Sends a reply to a subject."""


class Living(Protocol):
    """Which gateways are alive."""

    @property
    def name(self) -> str:
        """The name of this gateway."""
        ...

    @property
    def live(self) -> frozenset[str]:
        """All live gateways, including this one; empty if not known yet."""
        ...


async def _all_read(_call_id: str) -> None:
    """Wait for nothing: no call takes long to be read."""


class Peers:
    """Asks the other gateways and answers their questions;
    to be closed once no call is held any more."""

    def __init__(
        self,
        bus: Bus,
        registry: CallRegistry,
        answer: Answer,
        living: Living,
        until_read: Callable[[str], Awaitable[None]] = _all_read,
    ) -> None:
        """`until_read` waits for the calls that have arrived here, may have an id, and are still being
        read."""
        self._bus = bus
        self._registry = registry
        self._answer = answer
        self._living = living
        self._until_read = until_read
        self._mark = f".{uuid4().hex}"
        """The end of the inboxes of its questions, which it receives too."""
        self._lived_at_s: dict[str, float] = {}
        self._subscription: Subscription | None = None
        self._answering: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Start answering the others."""
        self._subscription = await self._bus.subscribe(subjects.GATEWAY_HELD, self._on_asked)

    async def close(self) -> None:
        """Stop answering."""
        if self._subscription is not None:
            await _ended(self._subscription)
        await stop_tasks(self._answering)

    def look(self) -> None:
        """Note which gateways are alive; to be called whenever that may have changed."""
        now_s = asyncio.get_running_loop().time()
        self._lived_at_s.update(dict.fromkeys(self._living.live, now_s))
        for name in [name for name, at in self._lived_at_s.items() if at < now_s - LATELY_S]:
            del self._lived_at_s[name]

    async def hold(self, request: CallRequest, reply_to: str) -> bool:
        """Tell whether another gateway holds a call; if so, it sends the reply to `reply_to`."""
        if not subjects.is_inbox(reply_to):
            return False
        who = request.attribution
        held = HeldCall(
            tenant=who.tenant,
            call_id=request.call_id,
            run_id=who.run_id,
            step=who.step,
            dispatched_at_ms=request.dispatched_at_ms,
            question=await converted(request, digest),
            reply_to=reply_to,
            counts=True,
        )
        asking = _Asking(self._bus, held, self._missing)
        try:
            return await asking.answer(self._bus.nc.new_inbox() + self._mark)
        except BusUnavailable:
            return False  # the caller will ask again

    def _missing(self, answered: set[str]) -> bool:
        """Tell whether a gateway that may hold the call has not answered yet."""
        self.look()
        others = self._lived_at_s.keys() - {self._living.name}
        return not self._living.live or not others <= answered

    async def _on_asked(self, message: Msg) -> None:
        if message.reply.endswith(self._mark):
            return
        try:
            asked = HeldCall.model_validate_json(message.data)
        except ValidationError as error:
            if count := _reporting.due("held_call_malformed"):
                log.warning("held_call_malformed", faults=error.error_count(), count=count)
            return
        if subjects.is_inbox(
            asked.reply_to
        ):  # one about a large call waits, and no other behind it
            answering = asyncio.create_task(self._tell(asked, message.reply), name="held call")
            self._answering.add(answering)
            answering.add_done_callback(self._answering.discard)

    async def _tell(self, asked: HeldCall, inbox: str) -> None:
        """Tell another gateway whether the call is held here, or may be; if it is, send its reply to the
        caller."""
        is_told = False
        try:
            async with asyncio.timeout(FIND_MS / 1000):
                reply = await self._found(asked)
        except TimeoutError:
            self._bus.respond(inbox, b"")
            is_told = True
            reply = await self._found(asked)
        if reply is not None:
            reply.add_done_callback(lambda made: self._answer(asked.reply_to, made.result()))
        if not is_told and (reply is not None or asked.counts):
            self._bus.respond(inbox, b"" if reply is not None else self._living.name.encode())

    async def _found(self, asked: HeldCall) -> "asyncio.Future[CallReply] | None":
        """Return the future reply of a call; None if it is not held here."""
        await self._until_read(asked.call_id)
        return await self._registry.find(CallKey.of_held(asked), asked.question)


class _Asking:
    """One question to all gateways, and their answers."""

    def __init__(self, bus: Bus, held: HeldCall, missing: Callable[[set[str]], bool]) -> None:
        self._bus = bus
        self._asked = held.model_dump_json().encode()
        self._missing = missing
        self._answered: set[str] = set()
        self._is_held = False
        self._changed = asyncio.Event()

    async def answer(self, inbox: str) -> bool:
        """Ask, and tell whether any other gateway holds the call. Raises BusUnavailable."""
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
