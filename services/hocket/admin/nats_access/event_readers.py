"""Creates the consumers from which tenants read the events of their runs: one per key that asks.

A tenant may pull from its consumer and acknowledge messages, but not create consumers, because their
creator chooses where the server sends the messages.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import Error as JetStreamError

from hocket.kit.access.key_book import KeyBook
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.streams import EVENTS_MAX_AGE_S
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
ACK_WAIT_S = 30.0
MAX_ACK_PENDING = 4_096

log = structlog.get_logger(__name__)


class EventReaders:
    """Creates consumers on request while `open`. The servers allow each guest to ask only for its own
    key's consumer."""

    def __init__(self, bus: Bus, book: KeyBook) -> None:
        self._bus = bus
        self._book = book

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Answer until the block ends."""
        asked = await self._bus.subscribe(f"{EVENTS_ASKED}.*", self._on_asked, queue=QUEUE)
        try:
            yield
        finally:
            await asked.unsubscribe()

    async def _on_asked(self, message: Msg) -> None:
        try:
            bearer = self._book.holder(message.subject.rpartition(".")[2])
            if not reads_events(bearer):
                return
            await self._bus.js.add_consumer(subjects.EVENTS, _config(bearer))
            answer = events_consumer(bearer.key_id)
        except (HocketError, NatsError, JetStreamError, OSError, TimeoutError) as error:
            log.warning("events_consumer_not_made", reason=str(error))
            answer = f"-ERR {error}"[:300]
        self._bus.respond(message.reply, answer.encode())


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
