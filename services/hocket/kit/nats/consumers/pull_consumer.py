"""Pulls messages from a durable consumer of a stream, with a few long-lived requests at the server.

All requests share one inbox, where the server reports on all of them: messages, requests that ended
unfilled (404, 408), heartbeats (100). A fresh inbox withdraws earlier requests; messages sent to the old
one are redelivered after the consumer's ack wait. The owner decides when to ask, and for how much.

Source: NATS ADR-13.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress

from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from pydantic_core import to_json

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.protocol import RawCallback, RawMessage

_NS = 1_000_000_000
_HEARTBEAT = "100"
_ENDED = frozenset({"404", "408"})
_PENDING_MESSAGES = "Nats-Pending-Messages"


class PullConsumer:
    """The requests of one process to one durable consumer.

    `deliver` gets each message; `ended` gets the number of messages of a request that will not come;
    `refused` gets the status and the reason when the server does not serve a request.
    """

    def __init__(
        self,
        bus: Bus,
        stream: str,
        durable: str,
        *,
        deliver: RawCallback,
        ended: Callable[[int], None],
        refused: Callable[[str | None, str | None], None],
    ) -> None:
        self._bus = bus
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{durable}"
        self._deliver = deliver
        self._ended = ended
        self._refused = refused
        self._inbox = ""
        self._subscription: Subscription | None = None
        self._heard_at_s = 0.0

    @property
    def is_open(self) -> bool:
        """Whether there is an inbox for requests."""
        return self._subscription is not None

    @property
    def silent_s(self) -> float:
        """Seconds since the server last said anything."""
        return asyncio.get_running_loop().time() - self._heard_at_s

    async def open(self, *, confirmed: bool, losses: int | None = None) -> None:
        """Listen on a fresh inbox, without a request yet. With `losses`, messages are ignored as soon as
        the number of the bus's losses differs from it."""
        inbox, bus = self._bus.nc.new_inbox(), self._bus
        self._inbox = inbox
        loop = asyncio.get_running_loop()

        def received(message: RawMessage) -> None:
            if inbox != self._inbox or (losses is not None and losses != bus.losses):
                return
            self._heard_at_s = loop.time()
            if message.reply:
                self._deliver(message)
            else:
                self._told(message)

        self._subscription = await self._bus.subscribe_raw(inbox, received, confirmed=confirmed)
        self.count_silence_from_now()

    def count_silence_from_now(self) -> None:
        """Restart the count of `silent_s`: the server had no reason to say anything until now."""
        self._heard_at_s = asyncio.get_running_loop().time()

    def ask(
        self,
        count: int,
        *,
        expires_s: float,
        heartbeat_s: float | None = None,
        max_bytes: int | None = None,
    ) -> None:
        """Request up to `count` messages, of at most `max_bytes` together; the request ends after
        `expires_s`."""
        request = {"batch": count, "expires": int(expires_s * _NS)}
        if max_bytes is not None:
            request["max_bytes"] = max_bytes
        if heartbeat_s is not None:
            request["idle_heartbeat"] = int(heartbeat_s * _NS)
        self._bus.publish_nowait(self._subject, to_json(request), reply=self._inbox)

    def ignore(self) -> None:
        """Ignore all further messages for earlier requests."""
        self._inbox = ""

    async def unsubscribe(self) -> None:
        """Withdraw all requests; messages in transit are redelivered. Raises if the connection is gone,
        and with it the subscription."""
        self.ignore()
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            await subscription.unsubscribe()

    async def drain(self) -> None:
        """Withdraw all requests; messages in transit are still delivered before this returns, unless the
        server does not answer."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            with suppress(NatsError, OSError, TimeoutError):
                await subscription.drain()  # type: ignore[no-untyped-call]

    def _told(self, message: RawMessage) -> None:
        """Handle what the server says about a request."""
        headers = message.headers or {}
        status = headers.get("Status")
        if status == _HEARTBEAT:
            return
        missing = unfilled(headers)
        if status in _ENDED or missing is not None:
            self._ended(missing or 0)
        else:
            self._refused(status, headers.get("Description"))


def unfilled(headers: Mapping[str, str]) -> int | None:
    """Return how many messages of an ended request did not come; None if the headers do not say."""
    count = headers.get(_PENDING_MESSAGES)
    return int(count) if count is not None and count.isdecimal() else None
