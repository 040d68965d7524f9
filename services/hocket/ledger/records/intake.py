"""Moves records of a stream (USAGE or CALLS) into Postgres: once each, acknowledged after the
commit.

A message holds one or more records. A batch is whatever waits in the stream (`record_pull.py`); one
batch is written at a time and one more may wait here, so the stream is the queue and memory stays
bounded. States: reading, writing, and waiting (Postgres is unreachable: the batch is kept and
written later; NATS is unreachable: nothing is read). After a crash between commit and
acknowledgement, the batch is delivered again and changes nothing.

The two streams are read by an Intake each. They share the lock `writing`, so that the opening of a
call and its booking cannot pass each other unnoticed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import asyncpg
import structlog

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.consumers.record_pull import RecordPull
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.nats.protocol import RawMessage
from hocket.kit.process.lifecycle import Health
from hocket.kit.process.task_stop import stop_tasks
from hocket.ledger.metrics import LedgerMetrics
from hocket.ledger.records.dead_records import LETTER_ERRORS, DeadRecords
from hocket.ledger.records.reader import RecordReader
from hocket.ledger.records.writer import RecordWriter
from hocket.schemas import subjects
from hocket.schemas.capabilities import Capabilities

ACK_WAIT_MS = 10_000.0
"""After this time, an unacknowledged record is delivered again; harmless, so it is kept short."""
IDLE_FETCH_MS = 2_000.0
"""How long one request for records waits; also how soon reading resumes after an outage of NATS."""
GATHER_MS = 10.0
"""How long the first record of a batch waits for others before they are fetched together."""
BUSY_GATHER_MS = 90.0
BUSY_RECORDS = 25
"""After a batch of this many records, the next one gathers for BUSY_GATHER_MS: fewer,
fuller transactions."""
BACKLOG_BATCH = 100
"""After a batch of this many messages, the next one does not gather,
because enough messages are waiting."""
FIRST_PAUSE_MS = 100.0
DRAIN_MS = 5_000.0
"""How long a stopping ledger continues with what waits in the stream."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Source:
    """A stream of records, and its subject."""

    stream: str
    subject: str


BOOKED = Source(subjects.USAGE, subjects.USAGE_SUBJECT)
ANNOUNCED = Source(subjects.CALLS, subjects.CALL_FILTER)


class Intake:
    """Moves records of one stream; call `run`."""

    def __init__(
        self,
        bus: Bus,
        pool: asyncpg.Pool,
        health: Health,
        metrics: LedgerMetrics,
        source: Source = BOOKED,
        *,
        writing: asyncio.Lock | None = None,
        seals: Capabilities | None = None,
        ack_wait_ms: float = ACK_WAIT_MS,
        acknowledge: Callable[[str], None] | None = None,
    ) -> None:
        self._bus = bus
        self._pool = pool
        self._health = health
        self._source = source
        self._component = f"{source.stream.lower()}_stream"
        self._acknowledge = acknowledge or bus.ack
        self._pull = RecordPull(bus, source.stream, source.subject, ack_wait_ms=ack_wait_ms)
        self._gather_ms = GATHER_MS
        letters = DeadRecords(bus, metrics)
        self._reader = RecordReader(bus, metrics, letters, seals)
        self._writer = RecordWriter(pool, health, metrics, letters, writing or asyncio.Lock())

    async def run(self, stopping: asyncio.Event) -> None:
        """Move records until `stopping`, and then whatever still waits, within DRAIN_MS."""
        while not stopping.is_set():
            await self._move(await _until(stopping, self._fetch(IDLE_FETCH_MS)), stopping)
        try:
            async with asyncio.timeout(DRAIN_MS / 1000):
                while batch := await self._fetch(BUSY_GATHER_MS):
                    await self._move(batch, stopping)
        except TimeoutError:
            log.warning("ledger_drain_incomplete", drain_ms=DRAIN_MS)
        await self._pull.close()

    async def _fetch(self, wait_ms: float) -> Sequence[RawMessage]:
        """Return the messages waiting in the stream; none if nothing arrives within `wait_ms`."""
        try:
            batch = await self._pull.batch(wait_ms, self._gather_ms)
        except BusUnavailable as error:
            self._health.report(self._component, False, repr(error))
            await asyncio.sleep(FIRST_PAUSE_MS / 1000)
            return ()
        if batch:
            self._health.report(self._component, True, "reading")
        else:
            self._health.report(self._component, self._bus.connected, "idle")
        return batch

    async def _move(self, batch: Sequence[RawMessage] | None, stopping: asyncio.Event) -> None:
        try:
            entries = await self._reader.records_of(batch or ())
            if batch:
                self._gather_ms = _gather_ms(len(batch), len(entries))
            if not await self._writer.write(entries, stopping):
                return
        except LETTER_ERRORS as error:  # the batch is delivered again
            self._health.report(self._component, False, repr(error))
            log.warning("ledger_letters_wait", messages=len(batch or ()), reason=str(error))
            return
        for message in batch or ():
            self._acknowledge(message.reply)


def _gather_ms(messages: int, records: int) -> float:
    """Return how long the batch after one of this size gathers."""
    if messages >= BACKLOG_BATCH:
        return 0.0
    return BUSY_GATHER_MS if records >= BUSY_RECORDS else GATHER_MS


async def _until(
    stopping: asyncio.Event, fetching: Awaitable[Sequence[RawMessage]]
) -> Sequence[RawMessage] | None:
    """Return the result of `fetching`, or None as soon as `stopping` is set."""
    fetch = asyncio.ensure_future(fetching)
    stop = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait({fetch, stop}, return_when=asyncio.FIRST_COMPLETED)
        return fetch.result() if fetch.done() else None
    finally:
        await stop_tasks([fetch, stop])
