"""Creates the consumers from which tenants read the events of their runs: one per key that asks.

A tenant may pull from its consumer and acknowledge messages, but not create consumers, because their
creator chooses where the server sends the messages.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import Error as JetStreamError

from hocket.kit.access.key_book import KeyBook
from hocket.kit.logs.log_limits import Reporting
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.streams import EVENTS_MAX_AGE_S
from hocket.kit.process.task_stop import stop_tasks
from hocket.schemas import subjects
from hocket.schemas.access.keys import Principal
from hocket.schemas.access.nats_table import (
    EVENTS_ASKED,
    PULL_EXPIRES_S,
    events_consumer,
    reads_events,
)
from hocket.schemas.errors import HocketError

QUEUE = "admin"
MAX_ANSWERING = 64
"""Keys whose consumers are created at once; requests of others are not answered."""
MAX_WAITING = 64
"""Requests of one key that wait for its consumer; of more, the latest are answered."""
ACK_WAIT_S = 30.0
MAX_ACK_PENDING = 4_096

log = structlog.get_logger(__name__)


class EventReaders:
    """Creates consumers on request while `open`. The servers allow each guest to ask only for its own
    key's consumer. What a key asks while its consumer is being created is answered together, so that no
    key delays the others by asking often."""

    def __init__(self, bus: Bus, book: KeyBook) -> None:
        self._bus = bus
        self._book = book
        self._waiting: dict[str, deque[str]] = {}  # where to answer, by the id of the key
        self._answering: set[asyncio.Task[None]] = set()
        self._reporting = Reporting()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Answer until the block ends."""
        asked = await self._bus.subscribe(f"{EVENTS_ASKED}.*", self._on_asked, queue=QUEUE)
        try:
            yield
        finally:
            await asked.unsubscribe()
            await stop_tasks(self._answering)

    async def _on_asked(self, message: Msg) -> None:
        key_id = message.subject.rpartition(".")[2]
        if (waiting := self._waiting.get(key_id)) is not None:
            waiting.append(message.reply)
            return
        if len(self._waiting) >= MAX_ANSWERING:
            if count := self._reporting.due("busy"):
                log.warning("events_consumers_not_made", limit=MAX_ANSWERING, count=count)
            return
        self._waiting[key_id] = deque([message.reply], maxlen=MAX_WAITING)
        task = asyncio.create_task(self._answer(key_id), name="events consumer asked")
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answer(self, key_id: str) -> None:
        try:
            answer = await self._made(key_id)
        finally:
            waiting = self._waiting.pop(key_id)
        if answer is not None:
            for reply in waiting:
                self._bus.respond(reply, answer.encode())

    async def _made(self, key_id: str) -> str | None:
        """Create a key's consumer; return its name or the error, or None if it may not read events."""
        try:
            bearer = self._book.holder(key_id)
            if not reads_events(bearer):
                return None
            await self._bus.js.add_consumer(subjects.EVENTS, _config(bearer))
            return events_consumer(bearer.key_id)
        except (HocketError, NatsError, JetStreamError, OSError, TimeoutError) as error:
            if count := self._reporting.due("failed"):
                log.warning("events_consumer_not_made", reason=str(error), count=count)
            return f"-ERR {error}"[:300]


class _BoundedPulls(ConsumerConfig):
    """Makes the server refuse pulls that would stay open for longer than it remembers where their
    answers go; nats-py lacks this field."""

    def as_dict(self) -> dict[str, object]:
        return super().as_dict() | {"max_expires": PULL_EXPIRES_S * 1_000_000_000}


def _config(bearer: Principal) -> ConsumerConfig:
    name = events_consumer(bearer.key_id)
    return _BoundedPulls(
        name=name,
        durable_name=name,
        filter_subject=f"hocket.event.{bearer.tenant or '*'}.>",
        deliver_policy=DeliverPolicy.NEW,
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=ACK_WAIT_S,
        max_ack_pending=MAX_ACK_PENDING,
        inactive_threshold=EVENTS_MAX_AGE_S,
    )
