"""The bus: one NATS connection, used to publish, to subscribe, and to send and answer requests.

States: connected, or away. While it is away, durable posts are kept (callers bound their number
with `wait_for_capacity`) and requests raise BusUnavailable. The parts of a connection are in
`connection/`: how it reconnects, the posts that it keeps, what it writes to the socket.
Acknowledgements, and messages for `subscribe_raw`, are handed over as they are parsed (`protocol.py`).
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Self

import structlog
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.js import JetStreamContext

from hocket.kit.nats.connection.answers import Answers
from hocket.kit.nats.connection.client import ReconnectingClient
from hocket.kit.nats.connection.commands import ack_commands, publish_command
from hocket.kit.nats.connection.connection import (
    CONNECT_TIMEOUT_S,
    PENDING_BYTES,
    Connection,
)
from hocket.kit.nats.connection.durable_publisher import DurablePublisher
from hocket.kit.nats.connection.post_answers import PubAck
from hocket.kit.nats.connection.socket_writer import SocketWriter
from hocket.kit.nats.errors import BusUnavailable, PublishRefused
from hocket.kit.nats.protocol import RawCallback, RawMessage
from hocket.schemas.errors import PayloadTooLarge

CLOSE_TIMEOUT_S = 5.0
SUBSCRIBE_TIMEOUT_S = 5.0
RESERVE_BYTES = 16 * 1024
"""Bytes that a message leaves free of the server's size limit, so that it can become a dead letter."""
OWN_SUBJECTS = ("hocket.", "$")
"""Prefixes of the subjects on which an answer could be mistaken for a message of the platform."""

log = structlog.get_logger(__name__)


class Bus:
    """A process's connection to NATS. Made by `connect`."""

    def __init__(
        self,
        connection: Connection,
        writer: SocketWriter,
        publisher: DurablePublisher,
        answers: Answers,
    ) -> None:
        self.nc = connection.client
        self.js: JetStreamContext = self.nc.jetstream(timeout=10)
        self.identity = connection.identity
        """Who this process is to NATS."""
        self.checks = connection.checks
        """Functions that are awaited after each reconnect; posts are held until they return."""
        self.on_reconnect = connection.on_reconnect
        """Functions that are called after each reconnect, in order."""
        self.publisher = publisher
        """Keeps the posts that wait for their acknowledgement."""
        self._connection = connection
        self._writer = writer
        self._answers = answers

    @classmethod
    async def connect(
        cls,
        url: str,
        *,
        name: str,
        window: int = 4096,
        prompt: bool = False,
        timeout_s: float = CONNECT_TIMEOUT_S,
    ) -> Self:
        """Connect within `timeout_s`, or raise BusUnavailable; the bus recovers from later losses by
        itself. With `prompt`, it does not wait for the end of an iteration of the event loop to send
        while traffic is low. `window` is the number of unacknowledged posts at which
        `wait_for_capacity` waits."""
        connection = Connection(url, name=name)
        await connection.open(timeout_s)
        client = connection.client
        writer = SocketWriter(client, prompt=prompt)
        publisher = DurablePublisher(client, writer, connection.reports, window=window)
        client.posts_inbox = publisher.inbox

        def hold() -> None:
            publisher.is_held = True

        connection.on_loss.append(hold)
        connection.on_reconnect.append(publisher.publish_again)
        answers = Answers(client, writer)
        for inbox, callback in (
            (publisher.inbox, publisher.acknowledged),
            (answers.inbox, answers.answered),
        ):
            subscription = await client.subscribe(inbox + ".*")
            client.wire.direct[subscription._id] = callback
        return cls(connection, writer, publisher, answers)

    @property
    def connected(self) -> bool:
        """Whether the server can be reached now."""
        return self.nc.is_connected

    @property
    def losses(self) -> int:
        """How often the connection was lost. Anything delivered before the last loss may be gone."""
        return self._connection.losses

    @property
    def lost_at_ms(self) -> float:
        """When the connection was last lost (epoch ms), 0 if never."""
        return self._connection.lost_at_ms

    def publish_durable(
        self,
        subject: str,
        payload: bytes,
        *,
        msg_id: str | None = None,
        headers: Mapping[str, str] | None = None,
        reserve_bytes: int = RESERVE_BYTES,
    ) -> asyncio.Future[PubAck]:
        """Publish to a stream without waiting; the future resolves to the acknowledgement, or fails with
        PublishRefused. Without a `msg_id`, one is made from this connection and the post's number.
        Raises PayloadTooLarge if fewer than `reserve_bytes` below the server's limit would stay free."""
        return self.publisher.publish(subject, payload, msg_id, headers, reserve_bytes)

    async def wait_for_capacity(self) -> None:
        """Wait while too many posts are unacknowledged."""
        await self.publisher.wait_for_capacity()

    async def publish(
        self,
        subject: str,
        payload: bytes,
        *,
        msg_id: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_ms: float = 30_000,
        reserve_bytes: int = RESERVE_BYTES,
    ) -> PubAck:
        """Publish to a stream and wait for its acknowledgement, or raise BusUnavailable."""
        future = None
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self.wait_for_capacity()
                future = self.publish_durable(
                    subject, payload, msg_id=msg_id, headers=headers, reserve_bytes=reserve_bytes
                )
                return await future
        except TimeoutError:
            refusal = self.publisher.refusal_of(future)
            why = f": {refusal}" if refusal else ""
            reason = f"no acknowledgement for {subject} in {timeout_ms:.0f} ms{why}"
            raise BusUnavailable(reason=reason) from None

    def publish_nowait(
        self,
        subject: str,
        payload: bytes,
        headers: Mapping[str, str] | None = None,
        *,
        reply: str = "",
    ) -> None:
        """Publish on core NATS, fire and forget. The message is dropped while the server is away or does
        not read."""
        if not self.nc.is_connected:
            return
        if self.nc.pending_data_size < PENDING_BYTES:
            self._writer.write(
                publish_command(subject, payload, reply, headers, self.nc.max_payload)
            )
        elif self._connection.reports.due("stuck"):
            log.warning("bus_does_not_drain", pending_bytes=self.nc.pending_data_size)

    def respond(
        self, reply_to: str, payload: bytes, headers: Mapping[str, str] | None = None
    ) -> None:
        """Answer a request on core NATS, if it wants an answer. The requester chooses the reply subject,
        so the platform's own subjects are refused: others would take the answer for a message of
        ours."""
        if reply_to and not reply_to.startswith(OWN_SUBJECTS) and reply_to.split() == [reply_to]:
            self.publish_nowait(reply_to, payload, headers)

    def ack(self, *ack_subjects: str) -> None:
        """Acknowledge JetStream messages by their ack subjects."""
        if not ack_subjects or not self.nc.is_connected:
            return
        if self.nc.pending_data_size < PENDING_BYTES:
            self._writer.write(ack_commands(ack_subjects))
        elif self._connection.reports.due("stuck"):
            log.warning("bus_does_not_drain", pending_bytes=self.nc.pending_data_size)

    def ask(
        self, subject: str, payload: bytes, headers: Mapping[str, str] | None = None
    ) -> asyncio.Future[RawMessage]:
        """Send a request on core NATS. The future resolves to the answer, or fails with BusUnavailable
        if nobody listens; cancel it to stop waiting. While the server is away, the request waits."""
        return self._answers.ask(subject, payload, headers)

    async def request(
        self,
        subject: str,
        payload: bytes,
        *,
        timeout_ms: float,
        headers: Mapping[str, str] | None = None,
    ) -> RawMessage:
        """Send a request on core NATS and return the answer, or raise BusUnavailable."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await self.ask(subject, payload, headers)
        except TimeoutError as error:
            reason = f"{subject}: no answer in {timeout_ms:.0f} ms"
            raise BusUnavailable(reason=reason) from error
        except (PublishRefused, PayloadTooLarge) as refused:
            raise BusUnavailable(reason=f"{subject}: {refused}") from refused

    async def subscribe(
        self,
        subject: str,
        callback: Callable[[Msg], Awaitable[None]],
        *,
        queue: str = "",
        confirmed: bool = True,
    ) -> Subscription:
        """Subscribe on core NATS; the callback is awaited message by message. When this returns, the
        subscription is active on the server, or becomes active when the server comes back. Without
        `confirmed`, it becomes active before the server reads what this connection sends next."""
        subscription = await self.nc.subscribe(subject, queue=queue, cb=callback)
        if confirmed:
            await _until_read(self.nc, subject)
        return subscription

    async def subscribe_raw(
        self, subject: str, callback: RawCallback, *, queue: str = "", confirmed: bool = True
    ) -> Subscription:
        """Subscribe like `subscribe`, with a function that gets each message as it is parsed, in
        order. The function must not block; what it raises is logged."""
        subscription = await self.nc.subscribe(subject, queue=queue)
        self.nc.wire.direct[subscription._id] = callback
        if confirmed:
            await _until_read(self.nc, subject)
        return subscription

    async def api(self, subject: str, request: Mapping[str, Any], *, timeout_ms: float) -> Any:
        """Call JetStream's JSON API (for fields that nats-py does not know) and return the decoded
        answer, which may hold an `error`."""
        payload = json.dumps(request).encode()
        message = await self.request(f"$JS.API.{subject}", payload, timeout_ms=timeout_ms)
        return json.loads(message.data)

    async def close(self) -> None:
        """Wait for unacknowledged posts, for at most CLOSE_TIMEOUT_S, and close."""
        self._connection.expect_close()
        self.publisher.stop_accepting()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                if self.nc.is_connected:
                    await self.nc.flush()
                    await self.publisher.until_acknowledged()
        except (NatsError, TimeoutError, OSError) as error:
            log.debug("bus_close", error=str(error))
        await self.nc.close()
        self.publisher.give_up()
        self._answers.give_up()


async def _until_read(client: ReconnectingClient, subject: str) -> None:
    """Wait until the server has read a subscription; do not wait if the server is away."""
    try:
        async with asyncio.timeout(SUBSCRIBE_TIMEOUT_S):
            if client.is_connected:
                await client.flush()
    except (NatsError, TimeoutError, OSError) as error:
        log.debug("bus_subscribed_while_away", subject=subject, error=str(error))
