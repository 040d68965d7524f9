"""Reads the facts of EVENTS in order: new ones for all clients, or a range of past ones for one client.
Nothing is read while there are no clients. After a gap, a silence or a reconnect, a new consumer
continues after the last fact read. If the stream ends before that position, it has lost its tail or was
recreated: `rewound` is called, and reading continues at the end of the stream.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

import structlog

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.consumers.ordered_consumer import MessageMissed, OrderedConsumer, Reading
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.nats.protocol import RawMessage
from hocket.schemas import subjects

HEARTBEAT_S = 2.0
SILENCE_S = 6.0
RETRY_S = 0.5
API_TIMEOUT_MS = 5_000.0
AT_ONCE = 256
"""Facts handed out before yielding to other tasks."""
PORTION_BYTES = 1024 * 1024
"""Roughly how much of the past is read for one client before others have their turn."""
TOKENS = 5

log = structlog.get_logger(__name__)


class Fact(NamedTuple):
    """A fact and its sequence number (`seq`) in EVENTS."""

    seq: int
    tenant: str
    pipeline: str
    kind: str
    data: bytes


class PastGone(Exception):
    """The requested facts are no longer in the stream, or are too many; the text says which."""


class EventFacts:
    """Reads new facts inside `run`, between calls of `want` and `rest`. `position` is the sequence
    number of the last fact passed to `heard`."""

    def __init__(self, heard: Callable[[Fact], None], rewound: Callable[[], None]) -> None:
        self._heard = heard
        self._rewound = rewound
        self.position = 0
        self.attached = asyncio.Event()
        """Set while facts are being read."""
        self._broken = asyncio.Event()
        self._wanted = asyncio.Event()

    def want(self) -> None:
        """Start reading, at the end of the stream, unless reading already."""
        self._wanted.set()

    def rest(self) -> None:
        """Stop reading, because there are no clients."""
        if self._wanted.is_set():
            self._wanted.clear()
            self._broken.set()

    async def run(self, bus: Bus) -> None:
        """Read until cancelled."""
        bus.on_reconnect.append(self._broken.set)
        try:
            while True:
                if not self._wanted.is_set():
                    self.position = 0  # no client has a position in the stream
                    await self._wanted.wait()
                self._broken.clear()
                try:
                    await self._read(bus)
                except (BusUnavailable, TimeoutError, MessageMissed, ValueError) as error:
                    log.warning("events_not_read", reason=str(error), position=self.position)
                self.attached.clear()
                await asyncio.sleep(RETRY_S)
        finally:
            bus.on_reconnect.remove(self._broken.set)

    async def _read(self, bus: Bus) -> None:
        start = await self._start(bus)
        async with _reading(bus, subjects.EVENT_FILTER, start) as (consumer, arrived, arrival):
            self.attached.set()
            while not self._broken.is_set():
                broken = asyncio.ensure_future(self._broken.wait())
                came = asyncio.ensure_future(arrival.wait())
                try:
                    done, _ = await asyncio.wait(
                        {broken, came}, timeout=SILENCE_S, return_when=asyncio.FIRST_COMPLETED
                    )
                finally:
                    broken.cancel()
                    came.cancel()
                if not done:
                    raise BusUnavailable(reason="EVENTS is silent")
                arrival.clear()
                while arrived:
                    for _ in range(min(AT_ONCE, len(arrived))):
                        self._take(consumer, arrived.popleft())
                    await asyncio.sleep(0)

    def _take(self, consumer: OrderedConsumer, message: RawMessage) -> None:
        delivery = consumer.delivery_of(message)
        if delivery is None:
            return
        fact = _fact(delivery.stream_seq, message)
        self.position = delivery.stream_seq
        if fact is not None:
            self._heard(fact)

    async def _start(self, bus: Bus) -> int:
        last = (await _bounds(bus))[1]
        if not self.position or last < self.position:
            if self.position:
                log.warning("events_rewound", position=self.position, last_seq=last)
                self._rewound()
            self.position = last
        return self.position + 1


async def past_portion(
    bus: Bus, subject: str, first: int, last: int, limit: int
) -> tuple[list[Fact], int | None]:
    """Return the facts of a subject between two positions of the stream, up to PORTION_BYTES, and the
    position at which the next portion begins, or None if this is the last. Raises PastGone (also if more
    than `limit` facts are left) and BusUnavailable."""
    await _check_kept(bus, first)
    facts: list[Fact] = []
    if first > last:
        return facts, None
    size = 0
    try:
        async with _reading(bus, subject, first) as (consumer, arrived, arrival):
            pending = consumer.pending
            if pending > limit:
                raise PastGone(f"more than {limit} facts arrived since")
            while pending:
                async with asyncio.timeout(SILENCE_S):
                    await arrival.wait()
                arrival.clear()
                while arrived:
                    message = arrived.popleft()
                    delivery = consumer.delivery_of(message)
                    if delivery is None:
                        continue
                    if delivery.stream_seq > last:
                        return facts, None
                    pending = delivery.pending
                    if (fact := _fact(delivery.stream_seq, message)) is not None:
                        facts.append(fact)
                    size += len(message.data)
                    if pending and size >= PORTION_BYTES:
                        return facts, delivery.stream_seq + 1
    except (MessageMissed, TimeoutError) as error:
        raise BusUnavailable(reason="EVENTS could not be read") from error
    return facts, None


async def _check_kept(bus: Bus, first: int) -> None:
    """Raise PastGone if the stream no longer has the facts from a position on."""
    kept, end = await _bounds(bus)
    if first < kept:
        raise PastGone(f"events before position {kept} are no longer kept")
    if first > end + 1:
        raise PastGone("the stream has lost its latest events")


class _Consumer(OrderedConsumer):
    pending = 0
    """How many facts were pending when the consumer was created."""


@asynccontextmanager
async def _reading(
    bus: Bus, subject: str, start: int
) -> AsyncIterator[tuple[_Consumer, deque[RawMessage], asyncio.Event]]:
    arrived, arrival = deque[RawMessage](), asyncio.Event()

    def received(message: RawMessage) -> None:
        arrived.append(message)
        arrival.set()

    reading = Reading(
        stream=subjects.EVENTS,
        name="live",
        filter_subject=subject,
        start={"deliver_policy": "by_start_sequence", "opt_start_seq": start},
        heartbeat_s=HEARTBEAT_S,
    )
    consumer = _Consumer(bus, reading, received)
    await consumer.subscribe()
    try:
        answer = await consumer.create()
        consumer.pending = answer["num_pending"] + answer["delivered"]["consumer_seq"]
        yield consumer, arrived, arrival
    finally:
        await _end(consumer)


async def _end(consumer: OrderedConsumer) -> None:
    try:
        await consumer.unsubscribe()
        await consumer.delete()
    except Exception as error:  # the connection is lost; the server removes the consumer by itself
        log.debug("events_not_unsubscribed", consumer=consumer.name, error=str(error))


async def _bounds(bus: Bus) -> tuple[int, int]:
    """Return the first and the last sequence number of the stream."""
    info = await bus.api(f"STREAM.INFO.{subjects.EVENTS}", {}, timeout_ms=API_TIMEOUT_MS)
    if "error" in info:
        raise BusUnavailable(reason=info["error"].get("description", "no stream EVENTS"))
    return info["state"]["first_seq"], info["state"]["last_seq"]


def _fact(seq: int, message: RawMessage) -> Fact | None:
    tokens = message.subject.split(".")
    if len(tokens) != TOKENS:
        return None
    return Fact(seq, tokens[2], tokens[3], tokens[4], message.data)
