"""Reads a stream in order, without acknowledgements, and detects every missed message.

This is an ephemeral push consumer: the server numbers the messages that it sends, so that a gap shows.
It sends as long as its flow control is answered, and its heartbeats say how far it has sent. An object
is one such consumer: after a gap, a silence or a reconnect, its owner makes another.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nats.aio.subscription import Subscription

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.consumers.delivery import ACK_PREFIX, Delivery, parse_ack_subject
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.nats.protocol import RawCallback, RawMessage
from hocket.kit.nats.repeated_requests import api_repeated

API_TIMEOUT_MS = 5_000.0
INACTIVE_S = 30
"""How long until the server forgets a consumer that nobody listens to."""
_NS = 1_000_000_000
_NOT_FOUND = 404


class StreamMissing(BusUnavailable):
    """The stream to be read is not there: {reason}. Check that the streams exist: `hocket doctor`."""


class MessageMissed(Exception):
    """The server sent a message that did not come. `seq` is the place of the one that came instead; None
    where a heartbeat tells of it."""

    def __init__(self, seq: int | None) -> None:
        super().__init__(seq)
        self.seq = seq


@dataclass(frozen=True, slots=True)
class Reading:
    """What is read: the subjects of a stream that match `filter_subject`, from where `start` says
    (fields of JetStream's consumer configuration). Consumers are named `name`, a hyphen and a token."""

    stream: str
    name: str
    filter_subject: str
    start: Mapping[str, Any]
    heartbeat_s: float


class OrderedConsumer:
    """One consumer. `received` gets every message as it is parsed, flow control included; pass each to
    `delivery_of`, in the order in which they arrived."""

    def __init__(self, bus: Bus, reading: Reading, received: RawCallback) -> None:
        self._bus = bus
        self._reading = reading
        self._received = received
        self._inbox = bus.nc.new_inbox()
        self.name = f"{reading.name}-{self._inbox.rsplit('.', 1)[1]}"
        self.is_idle = False
        """Whether the last message seen by `delivery_of` is a heartbeat which says that nothing is
        left."""
        self._seq = 0
        self._subscription: Subscription | None = None
        self._heard_at_s = asyncio.get_running_loop().time()

    @property
    def heard_at_s(self) -> float:
        """When `delivery_of` last saw a message, on the loop's clock."""
        return self._heard_at_s

    @property
    def silent_s(self) -> float:
        """Seconds since `delivery_of` last saw a message."""
        return asyncio.get_running_loop().time() - self._heard_at_s

    async def subscribe(self) -> None:
        """Listen on the inbox; the server sends nothing before `create`."""
        self._subscription = await self._bus.subscribe_raw(
            self._inbox, self._received, confirmed=False
        )

    async def create(self) -> Any:
        """Create the consumer on the server, which then begins to send; return the server's answer.
        Raises StreamMissing, and BusUnavailable if the server does not answer or refuses."""
        reading = self._reading
        config = {
            "name": self.name,
            "deliver_subject": self._inbox,
            **reading.start,
            "ack_policy": "none",
            "max_deliver": 1,
            "filter_subject": reading.filter_subject,
            "replay_policy": "instant",
            "flow_control": True,
            "idle_heartbeat": int(reading.heartbeat_s * _NS),
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": INACTIVE_S * _NS,
        }
        request = {"stream_name": reading.stream, "config": config, "action": "create"}
        subject = f"CONSUMER.CREATE.{reading.stream}.{self.name}"
        answer = await api_repeated(self._bus, subject, request, timeout_ms=API_TIMEOUT_MS)
        if "error" in answer:
            missing = answer["error"].get("code") == _NOT_FOUND
            reason = answer["error"].get("description", "no consumer")
            raise StreamMissing(reason=reason) if missing else BusUnavailable(reason=reason)
        return answer

    def delivery_of(self, message: RawMessage) -> Delivery | None:
        """Return what the server says about the next message; None for flow control, which is answered,
        and for heartbeats. Raises MessageMissed, and ValueError if the message is forged."""
        self._heard_at_s = asyncio.get_running_loop().time()
        self.is_idle = False
        if not message.reply.startswith(ACK_PREFIX):
            self._control(message)
            return None
        delivery = parse_ack_subject(message.reply)
        if delivery.consumer_seq != self._seq + 1:
            raise MessageMissed(delivery.stream_seq)
        self._seq += 1
        return delivery

    async def unsubscribe(self) -> None:
        """Stop listening. Raises if the connection is gone, and with it the subscription."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            await subscription.unsubscribe()

    async def delete(self) -> None:
        """Delete the consumer on the server, which otherwise removes it after INACTIVE_S."""
        subject = f"CONSUMER.DELETE.{self._reading.stream}.{self.name}"
        await self._bus.api(subject, {}, timeout_ms=API_TIMEOUT_MS)

    def _control(self, message: RawMessage) -> None:
        if message.reply:
            self._bus.publish_nowait(message.reply, b"")
            return
        headers: Mapping[str, str] = message.headers or {}
        stalled = headers.get("Nats-Consumer-Stalled")
        if stalled:
            self._bus.publish_nowait(stalled, b"")
        last = headers.get("Nats-Last-Consumer")
        if last is None:
            return
        if int(last) > self._seq:
            raise MessageMissed(None)
        self.is_idle = not stalled
