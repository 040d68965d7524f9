"""Asking a durable consumer of a stream for messages: a few long-lived requests at the server.

Every request goes to one inbox, so the server tells about all of them there: messages, requests that
ended unfilled (404, 408), heartbeats (100). A fresh inbox withdraws what was asked before; messages sent
to the old one come again after the consumer's ack wait. How much is asked, and when, its owner decides.

Source: NATS ADR-13.
"""

import asyncio
from collections.abc import Callable, Mapping

from nats.aio.subscription import Subscription
from pydantic_core import to_json

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.protocol import RawCallback, RawMessage

_NS = 1_000_000_000
_HEARTBEAT = "100"
_ENDED = frozenset({"404", "408"})
_PENDING_MESSAGES = "Nats-Pending-Messages"


class PullConsumer:
    """The requests of one process to one durable consumer.

    `deliver` gets each message; `ended` how many messages of a request will not come; `refused` the
    status and the reason of a request that the server does not serve.
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
        """Whether there is an inbox to ask with."""
        return self._subscription is not None

    @property
    def silent_s(self) -> float:
        """How long the server has said nothing."""
        return asyncio.get_running_loop().time() - self._heard_at_s

    async def open(self, *, confirmed: bool, losses: int | None = None) -> None:
        """Listen on a fresh inbox; nothing is asked yet. With `losses` nothing is heard any more once
        the bus was lost more often than that."""
        inbox = self._inbox = self._bus.nc.new_inbox()

        def received(message: RawMessage) -> None:
            if inbox == self._inbox and (losses is None or losses == self._bus.losses):
                self._received(message)

        self._subscription = await self._bus.subscribe_raw(inbox, received, confirmed=confirmed)
        self.count_silence_from_now()

    def count_silence_from_now(self) -> None:
        """Say that the server had nothing to say until now."""
        self._heard_at_s = asyncio.get_running_loop().time()

    def ask(
        self,
        count: int,
        *,
        expires_s: float,
        heartbeat_s: float | None = None,
        max_bytes: int | None = None,
    ) -> None:
        """Request `count` messages, of at most `max_bytes` together, that come within `expires_s`."""
        request = {"batch": count, "expires": int(expires_s * _NS)}
        if max_bytes is not None:
            request["max_bytes"] = max_bytes
        if heartbeat_s is not None:
            request["idle_heartbeat"] = int(heartbeat_s * _NS)
        self._bus.publish_nowait(self._subject, to_json(request), reply=self._inbox)

    def ignore(self) -> None:
        """Hear nothing any more of what was asked."""
        self._inbox = ""

    async def unsubscribe(self) -> None:
        """Withdraw what was asked; messages on their way come again. Raises where the connection is
        gone, and with it the subscription."""
        self.ignore()
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            await subscription.unsubscribe()

    async def drain(self) -> None:
        """Withdraw what was asked; messages on their way are still delivered before this returns."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            await subscription.drain()  # type: ignore[no-untyped-call]

    def _received(self, message: RawMessage) -> None:
        self._heard_at_s = asyncio.get_running_loop().time()
        if message.reply:
            self._deliver(message)
            return
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
    """Return how many messages of an ended request did not come; None where it is not said."""
    count = headers.get(_PENDING_MESSAGES)
    return int(count) if count is not None and count.isdecimal() else None
