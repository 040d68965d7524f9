"""The bus: one NATS connection, and JetStream publishing that loses nothing while the process lives.

A post is kept until the server acknowledges it; it is published again, with the same `Nats-Msg-Id`,
after a reconnect and when no acknowledgement came in `ACK_TIMEOUT_S` (the stream drops the repeat).
States: connected, or away; while away posts are kept (bounded by callers through `wait_for_capacity`)
and requests raise BusUnavailable. A post that a stream refuses for now (it is full, it has no leader, it
is not there yet) is tried again every REFUSED_RETRY_S and the refusal is logged; one that can never
succeed ends with PublishRefused. No error of the server and no server that hangs ends the connection for
good.

The hot path writes the protocol line itself into the client's buffer: a post with its acknowledgement
costs 9 us of CPU, `publish_async` of nats-py 21 us and no second try. What was written in one turn of
the event loop goes to the socket at its end, without the client's flusher as long as the socket takes
it; on a `prompt` bus, where little was written in the turn before, it goes there at once.
Acknowledgements, and messages for `subscribe_raw`, are handed over where they arrive (`protocol.py`).
Of the client it uses `_pending`, `_pending_data_size`, `_flush_queue`, `_transport` and what `client.py`
overrides, hence the pin on nats-py; `test_bus.py` and `test_bus_faults.py` in `tests/integration` would
notice a change.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import structlog
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError, SlowConsumerError
from nats.js import JetStreamContext
from pydantic_core import from_json

from hocket.kit.nats.client import RECONNECT_WAIT_S, ReconnectingClient
from hocket.kit.nats.protocol import RawCallback, RawMessage
from hocket.kit.nats.server_urls import server_urls, without_passwords
from hocket.schemas.errors import ErrorClass, HocketError, PayloadTooLarge

ACK_TIMEOUT_S = 5.0
"""How long a post waits for its acknowledgement before it is published again."""
REFUSED_RETRY_S = 0.5
"""How soon a post is published again that a stream refused for now."""
STALLED_S = 2 * ACK_TIMEOUT_S
"""How long a post may wait before its connection says that it does."""
SWEEP_S = 0.5
REPORT_S = 10.0
"""At most this often is the same trouble logged."""
PING_S = 10.0
MAX_PINGS = 2
"""Pings without an answer after which a server counts as away, though its connection stands."""
CONNECT_TIMEOUT_S = 30.0
CLOSE_TIMEOUT_S = 5.0
SUBSCRIBE_TIMEOUT_S = 5.0
PENDING_BYTES = 256 * 1024 * 1024
"""Bytes that may wait for the socket: beyond them `publish_nowait` drops its message; posts stay far
below, because their callers wait for capacity."""
RESERVE_BYTES = 16 * 1024
"""What a message leaves free of the server's limit, so that it can become a dead letter."""
QUIET = 3
"""Where no more messages than this were sent in a turn of the loop, those of the next one go to the
socket at once, up to MAX_AT_ONCE."""
MAX_AT_ONCE = 64
MAX_REPORTS = 64
OWN_SUBJECTS = ("hocket.", "$")
"""How the subjects begin on which an answer could be taken for a message of the platform's."""
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
    """Where a stream keeps a message; `duplicate` where it had the message id already, though where the
    post was `repeated` it may have had it from an earlier try of the same post."""

    stream: str
    seq: int
    duplicate: bool
    repeated: bool = False


@dataclass(slots=True)
class _Post:
    command: bytes
    subject: str
    future: asyncio.Future[PubAck]
    made_at: float
    due_at: float
    sent: bool
    repeated: bool = False
    refusal: str = ""


class Bus:
    """See the module. Made by `connect`."""

    def __init__(self, client: ReconnectingClient, *, window: int, prompt: bool) -> None:
        self.nc = client
        self.js: JetStreamContext = client.jetstream(timeout=10)
        self.on_reconnect: list[Callable[[], None]] = []
        self.losses = 0
        """How often the connection was lost: what was delivered under another number may be gone."""
        self._window = window
        self._inbox = client.new_inbox()
        self._posts: dict[str, _Post] = {}
        self._count = 0
        self._loop = asyncio.get_running_loop()
        self._sweeping: asyncio.TimerHandle | None = None
        self._flushing = False
        self._prompt = self._quiet = prompt
        self._sent = 0
        self._writing: Any = None
        """Where what is sent in this turn goes at once, if it does."""
        self._closing = False
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._reports = _Reports()

    @classmethod
    async def connect(
        cls, url: str, *, name: str, window: int = 4096, prompt: bool = False
    ) -> Self:
        """Connect within CONNECT_TIMEOUT_S, or raise BusUnavailable; later losses heal themselves. A
        `prompt` bus does not wait for the end of a turn of the loop where little is sent."""
        servers = server_urls(url)
        client = ReconnectingClient()
        holder: list[Self] = []
        last: list[str] = ["no answer"]
        reports = _Reports()

        async def reconnected() -> None:
            log.info("bus_reconnected", bus=name)
            for bus in holder:
                bus._reconnected()

        async def disconnected() -> None:
            for bus in holder:
                bus.losses += 1
            if not any(bus._closing for bus in holder):
                log.warning("bus_away", bus=name)

        async def failed(error: Exception) -> None:
            last[0] = str(error) or type(error).__name__
            if isinstance(error, SlowConsumerError):  # messages are lost
                if reports.due("dropped"):
                    log.error("bus_messages_dropped", bus=name, subject=error.subject)
            elif not holder and reports.due("unreachable"):  # it may take long, and tells no one
                log.warning("bus_unreachable", bus=name, url=without_passwords(url), error=last[0])
            elif isinstance(error, NatsError | OSError | TimeoutError):
                log.debug("bus_error", bus=name, error=last[0])
            else:
                log.error("bus_error", bus=name, exc_info=error)

        async def closed() -> None:
            if not all(bus._closing for bus in holder):
                log.error("bus_lost", bus=name, error=last[0])

        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await client.connect(
                    servers,
                    name=name,
                    max_reconnect_attempts=-1,
                    allow_reconnect=True,
                    reconnect_time_wait=RECONNECT_WAIT_S,  # type: ignore[arg-type]  # it takes fractions
                    connect_timeout=2,
                    ping_interval=PING_S,  # type: ignore[arg-type]  # likewise
                    max_outstanding_pings=MAX_PINGS,
                    pending_size=PENDING_BYTES,
                    reconnected_cb=reconnected,
                    disconnected_cb=disconnected,
                    error_cb=failed,
                    closed_cb=closed,
                )
        except (NatsError, TimeoutError, ValueError, OSError) as error:
            await client.close()
            reason = last[0] if isinstance(error, TimeoutError) else str(error)
            raise BusUnavailable(reason=f"{without_passwords(url)}: {reason}") from error
        bus = cls(client, window=window, prompt=prompt)
        bus._reports = reports
        holder.append(bus)
        acks = await client.subscribe(bus._inbox + ".*")
        client.wire.direct[acks._id] = bus._acknowledged
        return bus

    @property
    def connected(self) -> bool:
        """Whether the server can be reached now."""
        return self.nc.is_connected

    @property
    def unacknowledged(self) -> int:
        """Posts that wait for their acknowledgement."""
        return len(self._posts)

    @property
    def stalled(self) -> str:
        """What a post is waiting for that no stream acknowledged in STALLED_S; empty while all is well.
        A stream that met a full disk answers nobody, until its server is started again."""
        if not self._posts:
            return ""
        oldest = next(iter(self._posts.values()))
        waits_s = self._loop.time() - oldest.made_at
        if waits_s < STALLED_S:
            return ""
        why = oldest.refusal or (
            "its stream does not answer; where NATS met a full disk, make room and restart it"
        )
        return f"`{oldest.subject}` is not acknowledged for {waits_s:.0f} s: {why}"

    def publish_durable(
        self,
        subject: str,
        payload: bytes,
        *,
        msg_id: str | None = None,
        headers: Mapping[str, str] | None = None,
        reserve_bytes: int = RESERVE_BYTES,
    ) -> asyncio.Future[PubAck]:
        """Publish to a stream without waiting; the future ends with the acknowledgement, or with
        PublishRefused. Without a `msg_id` one is made from this connection and the post's number.
        Raises PayloadTooLarge where less than `reserve_bytes` of the server's limit stay free."""
        if self._closing:
            raise BusUnavailable(reason="the connection was closed")
        self._count += 1
        token = str(self._count)
        reply = f"{self._inbox}.{token}"
        headers = {"Nats-Msg-Id": msg_id or reply, **(headers or {})}
        command = _command(subject, payload, reply, headers, self.nc.max_payload - reserve_bytes)
        future: asyncio.Future[PubAck] = self._loop.create_future()
        made_at = self._loop.time()
        due_at = made_at + ACK_TIMEOUT_S
        connected = self.nc.is_connected
        self._posts[token] = _Post(command, subject, future, made_at, due_at, sent=connected)
        if len(self._posts) >= self._window:
            self._has_room.clear()
        if self._sweeping is None:
            self._sweeping = self._loop.call_later(SWEEP_S, self._sweep)
        if connected:
            self._send(command)
        return future

    async def wait_for_capacity(self) -> None:
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
        reserve_bytes: int = RESERVE_BYTES,
    ) -> PubAck:
        """Publish to a stream and wait for its acknowledgement, or raise BusUnavailable."""
        token = None
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self.wait_for_capacity()
                future = self.publish_durable(
                    subject, payload, msg_id=msg_id, headers=headers, reserve_bytes=reserve_bytes
                )
                token = str(self._count)
                return await future
        except TimeoutError:
            post = self._posts.get(token or "")
            why = f": {post.refusal}" if post is not None and post.refusal else ""
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
        """Publish on core NATS, fire and forget; dropped while the server is away or does not read."""
        if not self.nc.is_connected:
            return
        if self.nc.pending_data_size < PENDING_BYTES:
            self._send(_command(subject, payload, reply, headers, self.nc.max_payload))
        elif self._reports.due("stuck"):
            log.warning("bus_does_not_drain", pending_bytes=self.nc.pending_data_size)

    def respond(self, reply_to: str, payload: bytes) -> None:
        """Answer a request on core NATS, where it wants an answer. Whoever asks chooses where that goes:
        not to the platform's own subjects, on which others would take it for ours."""
        if reply_to and not reply_to.startswith(OWN_SUBJECTS) and reply_to.split() == [reply_to]:
            self.publish_nowait(reply_to, payload)

    def ack(self, ack_subject: str) -> None:
        """Acknowledge a JetStream message by its ack subject."""
        self.publish_nowait(ack_subject, b"+ACK")

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
        self,
        subject: str,
        callback: Callable[[Msg], Awaitable[None]],
        *,
        queue: str = "",
        confirmed: bool = True,
    ) -> Subscription:
        """Subscribe on core NATS; the callback is awaited message by message. When it returns, the
        server sends messages here, unless it is away: then it does when it comes back. Without
        `confirmed` it does before it reads what this connection sends next."""
        subscription = await self.nc.subscribe(subject, queue=queue, cb=callback)
        if confirmed:
            await self._until_read(subject)
        return subscription

    async def subscribe_raw(
        self, subject: str, callback: RawCallback, *, queue: str = "", confirmed: bool = True
    ) -> Subscription:
        """Subscribe like `subscribe`, with a function that gets each message where it is read, in
        order: it must not wait, and what it raises is logged."""
        subscription = await self.nc.subscribe(subject, queue=queue)
        self.nc.wire.direct[subscription._id] = callback
        if confirmed:
            await self._until_read(subject)
        return subscription

    async def _until_read(self, subject: str) -> None:
        try:
            async with asyncio.timeout(SUBSCRIBE_TIMEOUT_S):
                if self.nc.is_connected:
                    await self.nc.flush()
        except (NatsError, TimeoutError, OSError) as error:
            log.debug("bus_subscribed_while_away", subject=subject, error=str(error))

    async def api(self, subject: str, request: Mapping[str, Any], *, timeout_ms: float) -> Any:
        """Call JetStream's JSON API (for fields that nats-py does not know) and return the answer."""
        payload = json.dumps(request).encode()
        message = await self.request(f"$JS.API.{subject}", payload, timeout_ms=timeout_ms)
        return json.loads(message.data)

    async def close(self) -> None:
        """Wait for what is unacknowledged and close, within CLOSE_TIMEOUT_S."""
        self._closing = True
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                if self.nc.is_connected:
                    await self.nc.flush()
                    await self._until_acknowledged()
        except (NatsError, TimeoutError, OSError) as error:
            log.debug("bus_close", error=str(error))
        if self._sweeping is not None:
            self._sweeping.cancel()
        await self.nc.close()
        self._give_up()

    async def _until_acknowledged(self) -> None:
        futures = [post.future for post in self._posts.values() if not post.future.done()]
        if futures:
            await asyncio.wait(futures)

    def _give_up(self) -> None:
        lost = [post.future for post in self._posts.values() if not post.future.done()]
        if lost:
            log.warning("bus_closed_with_posts", unacknowledged=len(lost))
        for future in lost:
            future.set_exception(BusUnavailable(reason="the connection was closed"))
            future.exception()  # who does not wait for it need not hear of it twice
        self._posts.clear()
        self._has_room.set()

    def _send(self, command: bytes) -> None:
        """Write at once where little is written, for then nothing would share the write; else at the end
        of this turn of the loop. What is sent side by side arrives side by side either way."""
        client: Any = self.nc
        if not self._flushing:
            self._loop.call_soon(self._flush)
            self._flushing = True
            self._writing = None if client._pending or not self._quiet else self._ready_writer()
            self._sent = 0
        self._sent += 1
        if self._writing is not None:
            self._writing.write(command)
            if self._sent >= MAX_AT_ONCE:
                self._writing = None
            return
        client._pending.append(command)
        client._pending_data_size += len(command)

    def _flush(self) -> None:
        """Give to the socket what waits, or to the client's flusher where the socket is behind."""
        self._flushing = False
        self._writing = None
        self._quiet = self._prompt and self._sent <= QUIET
        client: Any = self.nc
        if not client._pending or not client.is_connected:
            return
        writer = self._ready_writer()
        if writer is not None:
            waiting, client._pending, client._pending_data_size = client._pending, [], 0
            self._write(writer, waiting)
        elif client._flush_queue is not None and client._flush_queue.empty():
            client._flush_queue.put_nowait(self._loop.create_future())

    def _write(self, writer: Any, commands: list[bytes]) -> None:
        try:
            writer.writelines(commands)
        except Exception as error:  # what is asked and told would wait for an answer for ever
            log.warning("bus_not_written", error=repr(error))
            writer.transport.abort()  # with a new connection all of it is asked anew

    def _ready_writer(self) -> Any:
        """Return where to write, None while the socket is behind or gone."""
        client: Any = self.nc
        writer: Any = getattr(client._transport, "_io_writer", None)
        ready = writer is not None and not writer.is_closing()
        return writer if ready and not writer.transport.get_write_buffer_size() else None

    def _acknowledged(self, frame: RawMessage) -> None:
        token, data = frame.subject.rsplit(".", 1)[1], frame.data
        post = self._posts.get(token)
        if post is None:
            return
        if not data:  # "no responders"
            self._refused_for_now(post, "no stream takes this subject")
            return
        answer = from_json(data)
        error = answer.get("error")
        if error is not None and error.get("code") in TEMPORARY:
            self._refused_for_now(post, error.get("description", ""))
            return
        self._forget(token)
        if post.future.done():
            return
        if error is not None:
            refused = PublishRefused(
                subject=post.subject,
                reason=error.get("description", ""),
                err_code=error.get("err_code", 0),
            )
            post.future.set_exception(refused)
        else:
            duplicate = answer.get("duplicate", False)
            post.future.set_result(
                PubAck(answer["stream"], answer["seq"], duplicate, post.repeated)
            )

    def _refused_for_now(self, post: _Post, reason: str) -> None:
        post.due_at = self._loop.time() + REFUSED_RETRY_S
        post.refusal = reason
        if self._reports.due(reason):
            log.warning("bus_post_refused_for_now", subject=post.subject, reason=reason)

    def _forget(self, token: str) -> None:
        self._posts.pop(token, None)
        if len(self._posts) < self._window:
            self._has_room.set()

    def _reconnected(self) -> None:
        self._publish_again(list(self._posts.values()))
        for callback in self.on_reconnect:
            try:
                callback()
            except Exception:  # the others want to hear of it too
                log.exception("bus_reconnect_callback_failed")

    def _sweep(self) -> None:
        self._sweeping = None
        try:
            for token in [t for t, post in self._posts.items() if post.future.cancelled()]:
                self._forget(token)
            now = self._loop.time()
            if self.nc.is_connected and not self._is_stuck():
                self._publish_again([post for post in self._posts.values() if post.due_at <= now])
        finally:  # though there was no memory for it now
            if self._posts and not self.nc.is_closed:
                self._sweeping = self._loop.call_later(SWEEP_S, self._sweep)

    def _is_stuck(self) -> bool:
        """Whether what was sent before has not even left: sending it again would only pile up."""
        client: Any = self.nc
        return bool(client._pending)

    def _publish_again(self, posts: list[_Post]) -> None:
        due_at = self._loop.time() + ACK_TIMEOUT_S
        for post in posts:
            post.due_at, post.sent, post.repeated = due_at, True, post.sent
            self._send(post.command)


class _Reports:
    """Which trouble was logged when, so that none is logged more often than every REPORT_S."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}

    def due(self, trouble: str) -> bool:
        now = asyncio.get_running_loop().time()
        if now - self._at.get(trouble, -REPORT_S) < REPORT_S:
            return False
        if len(self._at) >= MAX_REPORTS:
            self._at.clear()
        self._at[trouble] = now
        return True


def _command(
    subject: str, payload: bytes, reply: str, headers: Mapping[str, str] | None, limit_bytes: int
) -> bytes:
    """Return the protocol's PUB or HPUB (headers) of a message. What the server could not read, or
    would close the connection for, is refused here."""
    if subject.split() != [subject]:
        raise PublishRefused(subject=subject, reason="that is not a subject")
    if not headers:
        size = len(payload)
        if size > limit_bytes:
            raise PayloadTooLarge(size_bytes=size, limit_bytes=limit_bytes)
        return b"%b%b\r\n" % (f"PUB {subject} {reply} {size}\r\n".encode(), payload)
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if lines.count("\n") != len(headers) or lines.count("\r") != len(headers):
        raise PublishRefused(subject=subject, reason="a header has a line break")
    head = f"NATS/1.0\r\n{lines}\r\n".encode()
    size = len(head) + len(payload)
    if size > limit_bytes:
        raise PayloadTooLarge(size_bytes=size, limit_bytes=limit_bytes)
    return b"%b%b%b\r\n" % (
        f"HPUB {subject} {reply} {len(head)} {size}\r\n".encode(),
        head,
        payload,
    )
