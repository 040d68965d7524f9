"""Reads the log of one partition in order, starting at a sequence, without acknowledgements.

After a gap, silence or a reconnect, a new ordered consumer is created behind the last message that
was applied. First the continuity of the log is checked: the message at that place must be the one
that was applied. If it is not, the server has lost the tail of its log and reuses its sequences
(power loss, a restored copy): `rewound` is awaited and the retained log is read from its beginning,
because the core is idempotent.
"""

import asyncio
from base64 import b64decode
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import NamedTuple

import structlog
from nats.js.errors import Error as JetStreamError

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.consumers.ordered_consumer import MessageMissed, OrderedConsumer, Reading
from hocket.kit.nats.consumers.silence import is_silent_before
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.nats.protocol import RawMessage, header_of
from hocket.kit.nats.repeated_requests import api_repeated
from hocket.kit.process.clock import now_ms
from hocket.kit.process.limits.memory import end_if_short
from hocket.schemas import subjects
from hocket.schemas.capabilities import SEAL

HEARTBEAT_S = 1.0
SILENCE_S = 3.0
RETRY_S = 0.25
API_TIMEOUT_MS = 5_000.0
NOT_FOUND = 404
MAX_ID_CHARS = 1_000
"""Our own ids are shorter; a longer one is kept as its hash."""
MAX_KIND_CHARS = 64
_MSG_ID = b"Nats-Msg-Id"
_SEAL = SEAL.encode()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

log = structlog.get_logger(__name__)


class LogMessage(NamedTuple):
    """An event of the log: its place, its time (epoch ms, the server's clock), kind and body.
    `msg_id` is its message id combined with its time, because a log that lost its tail may come to
    have the same message at the same place again, with others before it."""

    seq: int
    msg_id: str
    at_ms: float
    kind: str
    body: bytes
    seal: str = ""
    """The seal of its sender, if it has one (`schemas/capabilities.py`)."""


@dataclass(slots=True)
class LogPosition:
    """How far a log is applied; its reader advances it."""

    applied_seq: int
    applied_msg_id: str
    attached_at_ms: float = float("inf")
    """When reading (again) began, by the server's clock: tasks stored before that may be repeats."""
    applied_ms: float = 0.0
    """Every message stored before this time is applied (epoch ms, within the difference between
    clocks)."""


class LogReader:
    """Reads one partition's log. `handle` is awaited for each message, in order; it may wait
    (backpressure), and is cancelled if the connection breaks meanwhile: the message comes again, or the
    server has lost it. `resumes` is awaited before messages come. Reading begins behind `position`, and
    advances it."""

    def __init__(
        self,
        bus: Bus,
        partition: int,
        *,
        handle: Callable[[LogMessage], Awaitable[None]],
        rewound: Callable[[], Awaitable[None]],
        resumes: Callable[[], Awaitable[None]],
        position: LogPosition,
    ) -> None:
        self._bus = bus
        self._partition = partition
        self._handle = handle
        self._rewound = rewound
        self._resumes = resumes
        self._position = position
        self._quiet_since_ms = 0.0
        self._consumer: OrderedConsumer | None = None
        self._applying: asyncio.Task[None] | None = None
        self._arrived = deque[RawMessage]()
        self._generation = 0
        self._broken = asyncio.Event()
        self._handling = asyncio.Lock()
        self._deleting: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Read the log; never returns, cancel to stop."""
        self._bus.on_reconnect.append(self._broken.set)
        stopped: BaseException | None = None
        try:
            while True:
                self._broken.clear()
                consumer = await self._attached()
                if consumer is None:
                    await asyncio.sleep(RETRY_S)
                    continue
                await self._until_broken(consumer)
        except BaseException as error:
            stopped = error
        self._bus.on_reconnect.remove(self._broken.set)
        await self._detach()
        async with self._handling:  # so that the caller finds no event half applied
            pass
        if stopped is not None:
            raise stopped

    async def _attached(self) -> OrderedConsumer | None:
        try:
            return await self._attach()
        except (BusUnavailable, JetStreamError, TimeoutError) as error:
            log.warning("log_not_attached", partition=self._partition, error=str(error))
            return None

    async def _until_broken(self, consumer: OrderedConsumer) -> None:
        def silent_s() -> float:
            return 0.0 if self._handling.locked() else consumer.silent_s

        if await is_silent_before(self._broken, SILENCE_S, silent_s):
            log.warning("log_silent", partition=self._partition)

    async def _attach(self) -> OrderedConsumer:
        await self._detach()
        losses = self._bus.losses
        async with self._handling:  # a message that is being applied still changes `applied_seq`
            start = await self._start_seq()
            await self._resumes()
        self._generation += 1
        generation = self._generation
        self._quiet_since_ms = 0.0
        arrived = self._arrived = deque[RawMessage]()
        arrival = asyncio.Event()

        def received(frame: RawMessage) -> None:
            arrived.append(frame)
            arrival.set()

        reading = Reading(
            stream=subjects.LOG,
            name=f"log-{self._partition}",
            filter_subject=subjects.log_of(self._partition),
            start={"deliver_policy": "by_start_sequence", "opt_start_seq": start},
            heartbeat_s=HEARTBEAT_S,
        )
        consumer = self._consumer = OrderedConsumer(self._bus, reading, received)
        await consumer.subscribe()
        await consumer.create()
        if losses != self._bus.losses:  # the server may have lost what was checked before
            self._broken.set()
            return consumer
        applying = self._apply(consumer, arrived, arrival, generation)
        self._applying = asyncio.create_task(applying, name=f"log-{self._partition}")
        log.info("log_attached", partition=self._partition, from_seq=start)
        return consumer

    async def _apply(
        self,
        consumer: OrderedConsumer,
        arrived: deque[RawMessage],
        arrival: asyncio.Event,
        generation: int,
    ) -> None:
        """Apply what arrives, until its consumer is replaced. The backlog is bounded by the
        server's flow control, which is answered in order."""
        while generation == self._generation:
            await arrival.wait()
            arrival.clear()
            async with self._handling:
                while arrived and generation == self._generation:
                    failed = False
                    try:
                        await self._received(consumer, arrived.popleft())
                    except Exception as error:  # nothing after this message may be handed over
                        end_if_short(error)
                        log.exception("log_message_failed", partition=self._partition)
                        failed = True
                    if failed:
                        await asyncio.sleep(RETRY_S)
                        self._generation += 1
                        self._broken.set()

    async def _start_seq(self) -> int:
        """Return the sequence to continue from, after checking that the log is the one we know."""
        subject = f"STREAM.INFO.{subjects.LOG}"
        info = await api_repeated(self._bus, subject, {}, timeout_ms=API_TIMEOUT_MS)
        if "error" in info:
            raise BusUnavailable(reason=info["error"].get("description", "no log"))
        self._position.attached_at_ms = 1_000 * datetime.fromisoformat(info["ts"]).timestamp()
        if self._position.applied_seq == 0:
            return 1
        first_seq: int = info["state"]["first_seq"]
        if self._position.applied_seq < first_seq:
            return first_seq  # aged out meanwhile; nothing is missing
        found = await identity_at(self._bus, self._position.applied_seq)
        if found == self._position.applied_msg_id:
            return self._position.applied_seq + 1
        log.error(
            "log_rewound",
            partition=self._partition,
            applied_seq=self._position.applied_seq,
            last_seq=info["state"]["last_seq"],
            expected=self._position.applied_msg_id,
            found=found,
        )
        await self._rewound()
        return max(1, first_seq)

    async def _received(self, consumer: OrderedConsumer, message: RawMessage) -> None:
        try:
            delivery = consumer.delivery_of(message)
        except MessageMissed as missed:
            self._broken.set()
            if missed.seq is not None:
                log.warning("log_gap", partition=self._partition, seq=missed.seq)
                self._generation += 1
            return
        if delivery is None:
            if consumer.is_idle:
                self._is_quiet()
            return
        event = LogMessage(
            seq=delivery.stream_seq,
            msg_id=_identity(header_of(message.head, _MSG_ID), delivery.stored_ns // 1_000),
            at_ms=delivery.stored_at_ms,
            kind=message.subject.rsplit(".", 1)[1][:MAX_KIND_CHARS],
            body=message.data,
            seal=header_of(message.head, _SEAL),
        )
        self._quiet_since_ms = 0.0
        await self._handle(event)
        self._position.applied_seq = event.seq
        self._position.applied_msg_id = event.msg_id
        self._position.applied_ms = max(self._position.applied_ms, event.at_ms)

    def _is_quiet(self) -> None:
        """Note that the server had nothing more for us. What it had at the previous heartbeat is
        surely applied, unless both heartbeats came at once after this process was stalled."""
        since_ms, self._quiet_since_ms = self._quiet_since_ms, now_ms()
        apart = self._quiet_since_ms - since_ms > 500 * HEARTBEAT_S
        if since_ms and apart and not self._arrived:
            self._position.applied_ms = max(self._position.applied_ms, since_ms)

    async def _detach(self) -> None:
        self._generation += 1
        if self._applying is not None:
            self._applying.cancel()
            self._applying = None
        if self._consumer is None:
            return
        consumer, self._consumer = self._consumer, None
        try:
            await consumer.unsubscribe()
        except Exception as error:  # the connection is gone, and the subscription with it
            log.debug("log_not_unsubscribed", consumer=consumer.name, error=str(error))
        loop = (
            asyncio.get_running_loop()
        )  # raises before a coroutine is created that is never awaited
        deleting = loop.create_task(_delete(consumer))
        self._deleting.add(deleting)
        deleting.add_done_callback(self._deleting.discard)


async def _delete(consumer: OrderedConsumer) -> None:
    """Delete the consumer at the server, in the background."""
    try:
        await consumer.delete()
    except Exception as error:  # it expires by itself after a while
        log.debug("consumer_not_deleted", consumer=consumer.name, error=str(error))


async def identity_at(bus: Bus, seq: int) -> str | None:
    """Return the identity of the message at a place of the log; None if there is none."""
    subject = f"STREAM.MSG.GET.{subjects.LOG}"
    answer = await api_repeated(bus, subject, {"seq": seq}, timeout_ms=API_TIMEOUT_MS)
    if "error" in answer:
        if answer["error"].get("code") == NOT_FOUND:
            return None
        raise BusUnavailable(reason=answer["error"].get("description", "no message"))
    message = answer["message"]
    msg_id = header_of(b64decode(message.get("hdrs", "")), _MSG_ID)
    stored = datetime.fromisoformat(message["time"]) - _EPOCH
    return _identity(msg_id, stored // timedelta(microseconds=1))


def _identity(msg_id: str, at_us: int) -> str:
    """Return a message's identity; an id that Postgres could not store is replaced by its hash."""
    if len(msg_id) > MAX_ID_CHARS or not msg_id.isprintable():
        msg_id = sha256(msg_id.encode("utf-8", "replace")).hexdigest()
    return f"{msg_id}@{at_us}"
