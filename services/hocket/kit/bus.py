"""The bus: one NATS connection, and JetStream publishing that loses nothing while the process lives.

A post is kept until the server acknowledges it; it is published again, with the same `Nats-Msg-Id`,
after a reconnect and when no acknowledgement came in `ACK_TIMEOUT_S` (the stream drops the repeat).
States: connected, or away; while away posts are kept (bounded by callers through `room`) and requests
raise BusUnavailable.

The hot path writes the protocol line itself into the client's buffer: nats-py's own publish costs a
coroutine and a validation per message, three times as much. Acknowledgements are taken where the
client's parser hands them over, without a message object, a queue and a turn of the event loop each.
It uses `_pending`, `_pending_data_size`, `_flush_queue` and `_process_msg` of the client, hence the
pin on nats-py; `tests/integration/test_bus.py` would notice a change.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from nats.js import JetStreamContext
from pydantic_core import from_json

from hocket.schemas.errors import ErrorClass, HocketError, PayloadTooLarge
from hocket.schemas.ids import content_hash

ACK_TIMEOUT_S = 5.0
"""How long a post waits for its acknowledgement before it is published again."""
SWEEP_S = 0.5
CONNECT_TIMEOUT_S = 30.0
RECONNECT_WAIT_S = 0.1
CLOSE_TIMEOUT_S = 5.0
PENDING_BYTES = 256 * 1024 * 1024
"""Bytes the client buffers while it is away; `room` keeps posts far below."""
SUBSCRIPTION_MESSAGES = 1_000_000
SUBSCRIPTION_BYTES = 512 * 1024 * 1024
TEMPORARY = frozenset({503})
"""API error codes after which the same post may succeed: no leader, no space yet, restarting."""

log = structlog.get_logger(__name__)


class BusUnavailable(HocketError):
    """NATS did not answer ({reason}). Check that it runs and that NATS_URL is right: `hocket doctor`."""

    code = "bus_unavailable"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True


class PublishRefused(HocketError):
    """The stream behind `{subject}` refused a message: {reason}. Check that the streams exist:
    `hocket doctor`."""

    code = "publish_refused"


@dataclass(frozen=True, slots=True)
class PubAck:
    """Where a stream keeps a message; `duplicate` where it had the message id already."""

    stream: str
    seq: int
    duplicate: bool


@dataclass(slots=True)
class _Post:
    command: bytes
    subject: str
    future: asyncio.Future[PubAck]
    sent_at: float


class _Client(Client):
    """nats-py's client, with a short way for the subscriptions in `direct` (by their number)."""

    def __init__(self) -> None:
        super().__init__()
        self.direct: dict[int, Callable[[bytes, bytes], None]] = {}

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes
    ) -> None:
        take = self.direct.get(sid)
        if take is None:
            await super()._process_msg(sid, subject, reply, data, headers)
            return
        try:
            take(subject, data)
        except Exception:  # it would end the client's reading
            log.exception("bus_message_unreadable", subject=subject, data=data[:200])


class Bus:
    """See the module. Made by `connect`."""

    def __init__(self, client: _Client, *, window: int) -> None:
        self.nc = client
        self.js: JetStreamContext = client.jetstream(timeout=10)
        self.on_reconnect: list[Callable[[], None]] = []
        self._window = window
        self._inbox = client.new_inbox()
        self._posts: dict[str, _Post] = {}
        self._count = 0
        self._loop = asyncio.get_running_loop()
        self._sweeping: asyncio.TimerHandle | None = None
        self._closing = False
        self._has_room = asyncio.Event()
        self._has_room.set()

    @classmethod
    async def connect(cls, url: str, *, name: str, window: int = 4096) -> Self:
        """Connect within CONNECT_TIMEOUT_S, or raise BusUnavailable; later losses heal themselves."""
        client = _Client()
        holder: list[Self] = []

        async def reconnected() -> None:
            log.info("bus_reconnected", bus=name)
            for bus in holder:
                bus._reconnected()

        async def disconnected() -> None:
            if not any(bus._closing for bus in holder):
                log.warning("bus_away", bus=name)

        async def failed(error: Exception) -> None:
            log.debug("bus_error", bus=name, error=str(error) or type(error).__name__)

        loop = asyncio.get_running_loop()
        deadline = loop.time() + CONNECT_TIMEOUT_S
        while True:
            try:
                await client.connect(
                    url,
                    name=name,
                    max_reconnect_attempts=-1,
                    allow_reconnect=True,
                    reconnect_time_wait=RECONNECT_WAIT_S,  # type: ignore[arg-type]  # it takes fractions
                    connect_timeout=2,
                    pending_size=PENDING_BYTES,
                    reconnected_cb=reconnected,
                    disconnected_cb=disconnected,
                    error_cb=failed,
                )
                break
            except (OSError, NatsError, TimeoutError) as error:
                if loop.time() > deadline:
                    raise BusUnavailable(reason=f"{url}: {error}") from error
                client = _Client()
                await asyncio.sleep(RECONNECT_WAIT_S)
        bus = cls(client, window=window)
        holder.append(bus)
        acks = await client.subscribe(bus._inbox + ".*")
        client.direct[acks._id] = bus._acknowledged
        return bus

    @property
    def connected(self) -> bool:
        """Whether the server can be reached now."""
        return self.nc.is_connected

    @property
    def unacknowledged(self) -> int:
        """Posts that wait for their acknowledgement."""
        return len(self._posts)

    def post(
        self,
        subject: str,
        payload: bytes,
        *,
        msg_id: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> asyncio.Future[PubAck]:
        """Publish to a stream without waiting; the future ends with the acknowledgement, or with
        PublishRefused. Without a `msg_id` one is made from the message and its number."""
        if len(payload) > self.nc.max_payload - 4_096:
            raise PayloadTooLarge(size_bytes=len(payload), limit_bytes=self.nc.max_payload - 4_096)
        self._count += 1
        token = str(self._count)
        if msg_id is None:
            msg_id = content_hash([self._inbox, token])[:24]
        command = _command(
            subject, payload, f"{self._inbox}.{token}", {"Nats-Msg-Id": msg_id, **(headers or {})}
        )
        future: asyncio.Future[PubAck] = self._loop.create_future()
        self._posts[token] = _Post(command, subject, future, self._loop.time())
        if len(self._posts) >= self._window:
            self._has_room.clear()
        if self._sweeping is None:
            self._sweeping = self._loop.call_later(SWEEP_S, self._sweep)
        if self.nc.is_connected:
            self._send(command)
        return future

    async def room(self) -> None:
        """Wait while too many posts are unacknowledged."""
        while len(self._posts) >= self._window:
            await self._has_room.wait()

    async def publish(
        self,
        subject: str,
        payload: bytes,
        *,
        msg_id: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_ms: float = 30_000,
    ) -> PubAck:
        """Publish to a stream and wait for its acknowledgement, or raise BusUnavailable."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self.room()
                return await self.post(subject, payload, msg_id=msg_id, headers=headers)
        except TimeoutError:
            reason = f"no acknowledgement for {subject} in {timeout_ms:.0f} ms"
            raise BusUnavailable(reason=reason) from None

    def tell(self, subject: str, payload: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Publish on core NATS, fire and forget; dropped while the server is away."""
        if self.nc.is_connected:
            self._send(_command(subject, payload, "", headers))

    def ack(self, ack_subject: str) -> None:
        """Acknowledge a JetStream message by its ack subject."""
        self.tell(ack_subject, b"+ACK")

    async def request(
        self,
        subject: str,
        payload: bytes,
        *,
        timeout_ms: float,
        headers: Mapping[str, str] | None = None,
    ) -> Msg:
        """Ask on core NATS and return the answer, or raise BusUnavailable."""
        try:
            return await self.nc.request(
                subject,
                payload,
                timeout=timeout_ms / 1000,
                headers=dict(headers) if headers else None,
            )
        except NoRespondersError as error:
            raise BusUnavailable(reason=f"nobody listens on {subject}") from error
        except (NatsError, TimeoutError, OSError) as error:
            reason = f"{subject}: {error or type(error).__name__}"
            raise BusUnavailable(reason=reason) from error

    async def subscribe(
        self, subject: str, callback: Callable[[Msg], Awaitable[None]], *, queue: str = ""
    ) -> Subscription:
        """Subscribe on core NATS; the callback is awaited message by message."""
        return await self.nc.subscribe(
            subject,
            queue=queue,
            cb=callback,
            pending_msgs_limit=SUBSCRIPTION_MESSAGES,
            pending_bytes_limit=SUBSCRIPTION_BYTES,
        )

    async def api(self, subject: str, request: Mapping[str, Any], *, timeout_ms: float) -> Any:
        """Call JetStream's JSON API (for fields that nats-py does not know) and return the answer."""
        payload = json.dumps(request).encode()
        message = await self.request(f"$JS.API.{subject}", payload, timeout_ms=timeout_ms)
        return json.loads(message.data)

    async def close(self) -> None:
        """Send what is buffered and close, within CLOSE_TIMEOUT_S."""
        self._closing = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                if self.nc.is_connected:
                    await self.nc.flush()
        except (NatsError, TimeoutError, OSError) as error:
            log.debug("bus_close", error=str(error))
        await self.nc.close()

    def _send(self, command: bytes) -> None:
        client: Any = self.nc
        client._pending.append(command)
        client._pending_data_size += len(command)
        if client._flush_queue is not None and client._flush_queue.empty():
            client._flush_queue.put_nowait(self._loop.create_future())

    def _acknowledged(self, subject: bytes, data: bytes) -> None:
        token = subject.rsplit(b".", 1)[1].decode()
        post = self._posts.get(token)
        if post is None:
            return
        if not data:
            return  # no responders: the stream is not there yet; the sweep tries again
        answer = from_json(data)
        error = answer.get("error")
        if error is not None and error.get("code") in TEMPORARY:
            return
        self._forget(token)
        if post.future.done():
            return
        if error is not None:
            reason = error.get("description", "")
            post.future.set_exception(PublishRefused(subject=post.subject, reason=reason))
        else:
            ack = PubAck(answer["stream"], answer["seq"], answer.get("duplicate", False))
            post.future.set_result(ack)

    def _forget(self, token: str) -> None:
        self._posts.pop(token, None)
        if len(self._posts) < self._window:
            self._has_room.set()

    def _reconnected(self) -> None:
        self._publish_again(older_than_s=0.0)
        for callback in self.on_reconnect:
            callback()

    def _sweep(self) -> None:
        self._sweeping = None
        for token in [t for t, post in self._posts.items() if post.future.cancelled()]:
            self._forget(token)
        if self.nc.is_connected:
            self._publish_again(older_than_s=ACK_TIMEOUT_S)
        if self._posts and not self.nc.is_closed:
            self._sweeping = self._loop.call_later(SWEEP_S, self._sweep)

    def _publish_again(self, *, older_than_s: float) -> None:
        now = self._loop.time()
        for post in self._posts.values():
            if now - post.sent_at >= older_than_s:
                post.sent_at = now
                self._send(post.command)


def _command(subject: str, payload: bytes, reply: str, headers: Mapping[str, str] | None) -> bytes:
    """Return the protocol's PUB or HPUB (headers) of a message."""
    if not headers:
        return b"%b%b%b\r\n" % (f"PUB {subject} {reply} {len(payload)}\r\n".encode(), payload, b"")
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    if lines.count("\n") != len(headers):
        raise PublishRefused(subject=subject, reason="a header has a line break")
    head = f"NATS/1.0\r\n{lines}\r\n".encode()
    sizes = f"HPUB {subject} {reply} {len(head)} {len(head) + len(payload)}\r\n".encode()
    return b"%b%b%b\r\n" % (sizes, head, payload)
