"""Takes what holders of keys have posted out of its stream, and hands it on.

A guest's post is stored in a stream of its own, of which each key has a small part: the server
refuses what exceeds it, and the guest sends it again. Any coordinator takes posts from there, never
more than TAKEN_AT_ONCE each TURN_S, and puts them where they belong. A post is acknowledged when it
is stored there, so that nothing that was accepted is lost; posts of a key that exceeds its rate
stay in their stream.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import structlog

from hocket.kit.logs.log_limits import Reporting
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.connection.post_answers import PubAck
from hocket.kit.nats.consumers.pull_consumer import PullConsumer
from hocket.kit.nats.errors import BusUnavailable, PublishRefused
from hocket.kit.nats.protocol import RawMessage
from hocket.schemas.errors import HocketError

DURABLE = "coordinators"
TAKEN_AT_ONCE = 64
TURN_S = 0.02
ACK_WAIT_S = 30.0
"""A post whose coordinator died is taken by another one after this time."""
LATER_S = 0.5
"""When a post comes again if its key exceeded its rate."""
MAX_ACK_PENDING = 65_536
EXPIRES_S = 30
HEARTBEAT_S = 1.0
SILENCE_S = 3.0 * HEARTBEAT_S
RETRY_S = 0.5
API_TIMEOUT_MS = 5_000.0
_NS = 1_000_000_000
_TERM = b"+TERM"
_LATER = b'-NAK {"delay": %d}' % int(LATER_S * _NS)

log = structlog.get_logger(__name__)


class TooEarly(Exception):
    """The key is beyond its rate: its post comes again."""


@dataclass(frozen=True, slots=True)
class Post:
    """A message to hand on."""

    subject: str
    body: bytes
    msg_id: str | None = None
    headers: dict[str, str] = field(default_factory=dict)


class Relay:
    """Hands on the posts of one stream inside `run`. `read` gets a key's id and a message, and
    returns what to hand on; it raises TooEarly, or ValueError if there is nothing to hand on."""

    def __init__(self, bus: Bus, stream: str, read: Callable[[str, RawMessage], Post]) -> None:
        self._bus = bus
        self._stream = stream
        self._read = read
        self._asked = 0
        self._on_their_way = 0
        self._broken = asyncio.Event()
        self._reporting = Reporting()
        self._pull = PullConsumer(
            bus,
            stream,
            DURABLE,
            deliver=self._delivered,
            ended=self._ended,
            refused=self._refused,
        )

    async def run(self) -> None:
        """Hand on posts; never returns, cancel to stop, which withdraws the requests."""
        self._bus.on_reconnect.append(self._broken.set)
        try:
            while True:
                self._broken.clear()
                try:
                    await self._ensure_consumer()
                    await self._pull.open(confirmed=False)
                    self._asked = 0
                    await self._ask_until_broken()
                except BusUnavailable as error:
                    if count := self._reporting.due("away"):
                        log.warning("guests_posts_not_asked", reason=str(error), count=count)
                    await asyncio.sleep(RETRY_S)
                await self._close()
        finally:
            self._bus.on_reconnect.remove(self._broken.set)
            await self._close()

    async def _close(self) -> None:
        try:
            await self._pull.unsubscribe()
        except Exception as error:  # the connection is gone, and the subscription with it
            log.debug("guests_posts_not_unsubscribed", error=str(error))

    async def _ask_until_broken(self) -> None:
        while not self._broken.is_set():
            wanted = TAKEN_AT_ONCE - self._asked - self._on_their_way
            if wanted > 0 and self._asked <= TAKEN_AT_ONCE // 2:
                if not self._asked:
                    self._pull.count_silence_from_now()
                self._asked += wanted
                self._pull.ask(wanted, expires_s=EXPIRES_S, heartbeat_s=HEARTBEAT_S)
            elif self._asked and self._pull.silent_s > SILENCE_S and self._bus.connected:
                return
            await asyncio.sleep(TURN_S)

    def _delivered(self, message: RawMessage) -> None:
        self._asked = max(self._asked - 1, 0)
        key = message.subject.rpartition(".")[2]
        try:
            post = self._read(key, message)
            future = self._bus.publish_durable(
                post.subject,
                post.body,
                msg_id=post.msg_id,
                headers=post.headers or None,
                reserve_bytes=0,
            )
        except TooEarly:
            self._bus.publish_nowait(message.reply, _LATER)
        except BusUnavailable:
            pass  # it comes again
        except (HocketError, ValueError) as error:
            self._drop(key, message.reply, error)
        else:
            self._on_their_way += 1
            future.add_done_callback(lambda stored: self._stored(key, message.reply, stored))

    def _stored(self, key: str, reply: str, stored: "asyncio.Future[PubAck]") -> None:
        self._on_their_way -= 1
        if stored.cancelled():
            return
        error = stored.exception()
        if error is None:
            self._bus.ack(reply)
        elif isinstance(error, PublishRefused):
            self._drop(key, reply, error)

    def _drop(self, key: str, reply: str, error: Exception) -> None:
        if count := self._reporting.due(key):
            reason = str(error)[:300]
            log.warning(
                "guests_post_refused", stream=self._stream, key=key, reason=reason, count=count
            )
        self._bus.publish_nowait(reply, _TERM)

    def _ended(self, missing: int) -> None:
        self._asked = max(self._asked - missing, 0)

    def _refused(self, status: str | None, reason: str | None) -> None:
        if count := self._reporting.due("pull"):
            log.warning("guests_posts_refused", status=status, reason=reason, count=count)
        self._broken.set()

    async def _ensure_consumer(self) -> None:
        config: dict[str, Any] = {
            "name": DURABLE,
            "durable_name": DURABLE,
            "ack_policy": "explicit",
            "ack_wait": int(ACK_WAIT_S * _NS),
            "max_ack_pending": MAX_ACK_PENDING,
            "max_deliver": -1,
        }
        request = {"stream_name": self._stream, "config": config, "action": ""}
        subject = f"CONSUMER.CREATE.{self._stream}.{DURABLE}"
        answer = await self._bus.api(subject, request, timeout_ms=API_TIMEOUT_MS)
        if "error" in answer:
            raise BusUnavailable(reason=answer["error"].get("description", "no consumer"))
