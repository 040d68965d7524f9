"""Records of a stream (USAGE, or CALLS) into Postgres: once each, acknowledged after the commit.

A message holds one record or several. A batch is what waits in the stream (`record_pull.py`); one is
written at a time and one more may wait here, so the stream is the queue and memory stays bounded.
States: reading, writing, and waiting (Postgres is away: the batch is kept and written when it is
back; NATS is away: nothing is read). A crash after the commit and before the ack means that the
batch comes again and changes nothing. A record that cannot be read or that Postgres refuses goes to
the dead letters, alone: its batch is split until the others are in, and what it spent is booked without
what makes it so (`amended.py`). With a key, a message that no gateway sealed is not read at all
(`unsealed.py`).

Two streams are read, each by an Intake of its own; `writing`, which they share, keeps the opening of a
call and its booking from passing by each other unseen.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import asyncpg
import structlog

from hocket.kit.nats import dead_letters
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.consumers.delivery import parse_ack_subject
from hocket.kit.nats.consumers.record_pull import RecordPull
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.nats.protocol import RawMessage
from hocket.kit.postgres.errors import STATEMENT_ERRORS, is_row_fault
from hocket.kit.process.lifecycle import Health
from hocket.kit.process.task_stop import stop_tasks
from hocket.ledger.amended import amended, shortened
from hocket.ledger.metrics import LedgerMetrics
from hocket.ledger.prices import KnownPrices
from hocket.ledger.record import (
    MAX_RECORDS,
    SEPARATOR,
    Record,
    UsageMalformed,
    UsageRefused,
    booked,
    record_of,
)
from hocket.ledger.store import insert
from hocket.ledger.unsealed import Unsealed
from hocket.schemas import subjects
from hocket.schemas.capabilities import SEAL, Capabilities
from hocket.schemas.errors import HocketError

MAX_ROWS = 2_000
"""Records in one transaction."""
ACK_WAIT_MS = 10_000.0
"""After this a record that was delivered and not acknowledged comes again; harmless, so kept short."""
IDLE_FETCH_MS = 2_000.0
"""How long one request for records waits; also how soon reading goes on after NATS was away."""
GATHER_MS = 10.0
"""How long the first record of a batch waits for others, before they are fetched together."""
BUSY_GATHER_MS = 90.0
BUSY_RECORDS = 25
"""After a batch of so many records the next gathers for BUSY_GATHER_MS: fewer, fuller transactions."""
BACKLOG_BATCH = 100
"""After a batch of so many messages the next does not gather: more than enough are there."""
FIRST_PAUSE_MS = 100.0
MAX_PAUSE_MS = 5_000.0
DRAIN_MS = 5_000.0
"""How long a stopping ledger goes on with what waits in the stream."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Source:
    """A stream of records, and its subject."""

    stream: str
    subject: str


BOOKED = Source(subjects.USAGE, subjects.USAGE_SUBJECT)
ANNOUNCED = Source(subjects.CALLS, subjects.CALL_FILTER)


@dataclass(frozen=True, slots=True)
class RecordDelivery:
    """A record, how it was encoded, and the message that holds it."""

    message: RawMessage
    line: bytes
    record: Record
    buried: bool = False
    """Whether it is a dead letter already, and written as far as it can be."""


class Intake:
    """Moves usage records; `run` it until it is asked to stop."""

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
        self._metrics = metrics
        self._seals = seals
        self._unsealed = Unsealed(bus, metrics)
        self._source = source
        self._component = f"{source.stream.lower()}_stream"
        self._writing = writing or asyncio.Lock()
        self._acknowledge = acknowledge or bus.ack
        self._pull = RecordPull(bus, source.stream, source.subject, ack_wait_ms=ack_wait_ms)
        self._gather_ms = GATHER_MS
        self._prices = KnownPrices()

    async def run(self, stopping: asyncio.Event) -> None:
        """Move records until `stopping`, then what still waits, within DRAIN_MS."""
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
        """Return what waits in the stream; nothing where nothing came within `wait_ms`."""
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
        entries: list[RecordDelivery] = []
        unsealed: list[RawMessage] = []
        for message in batch or ():
            if self._is_sealed(message):
                entries += await self._read(message)
            else:
                unsealed.append(message)
        if unsealed:
            await self._unsealed.keep(unsealed)
        if batch:
            self._gather_ms = _gather_ms(len(batch), len(entries))
        for begin in range(0, len(entries), MAX_ROWS):
            if not await self._written(entries[begin : begin + MAX_ROWS], stopping):
                return
        for message in batch or ():
            self._acknowledge(message.reply)

    def _is_sealed(self, message: RawMessage) -> bool:
        """Tell whether a message is a gateway's, as far as that is asked for."""
        if self._seals is None:
            return True
        seal = (message.headers or {}).get(SEAL, "")
        return self._seals.is_sealed(seal, message.subject, message.data)

    async def _written(self, entries: Sequence[RecordDelivery], stopping: asyncio.Event) -> bool:
        """Write entries; false where we must stop before they are in, so that they must come again."""
        pause_ms = FIRST_PAUSE_MS
        while True:
            try:
                async with self._writing:
                    records = [entry.record for entry in entries]
                    new = await insert(self._pool, records, self._prices)
            except STATEMENT_ERRORS as error:
                if is_row_fault(error):
                    return await self._split(entries, error, stopping)
                self._health.report("postgres", False, repr(error))
                log.warning("ledger_waits", reason=repr(error), records=len(entries))
                if stopping.is_set():
                    return False
                pause_ms = await _paused(pause_ms, stopping)
                continue
            self._health.report("postgres", True, "")
            opened = sum(entry.record.opened for entry in entries)
            refused = sum(entry.record.refused for entry in entries)
            warm = sum(entry.record.warm for entry in entries)
            repeated = len(entries) - opened - refused - warm - new
            self._metrics.observe(new=new, repeated=repeated, opened=opened, refused=refused)
            return True

    async def _split(
        self, entries: Sequence[RecordDelivery], error: Exception, stopping: asyncio.Event
    ) -> bool:
        if len(entries) == 1:
            return await self._set_aside(entries[0], error, stopping)
        middle = len(entries) // 2
        return await self._written(entries[:middle], stopping) and await self._written(
            entries[middle:], stopping
        )

    async def _read(self, message: RawMessage) -> Sequence[RecordDelivery]:
        """Return the records of a message; what is none is a dead letter, and booked as far as it can
        be."""
        if message.data.count(SEPARATOR) >= MAX_RECORDS:
            reason = f"it has more than {MAX_RECORDS} records"
            await self._bury(message, message.data, UsageMalformed(field="body", reason=reason))
            return ()
        entries: list[RecordDelivery] = []
        for line in message.data.split(SEPARATOR):
            try:
                entries.append(RecordDelivery(message, line, record_of(line)))
            except UsageMalformed as error:
                await self._bury(message, line, error)
                # the same if it comes again
                sent_ms = parse_ack_subject(message.reply).stored_at_ms
                if (found := amended(line, sent_ms)) is not None:
                    entries.append(RecordDelivery(message, line, booked(*found)))
        return entries

    async def _set_aside(
        self, entry: RecordDelivery, error: Exception, stopping: asyncio.Event
    ) -> bool:
        """Bury a record that Postgres refuses, and book what was spent without what it may refuse."""
        usage = entry.record.usage
        if not entry.buried:
            refused = UsageRefused(call_id=entry.record.call_id, reason=str(error))
            await self._bury(entry.message, entry.line, refused)
            if usage is not None and usage.cost_usd:
                plain, changed = shortened(usage)
                record = booked(plain, (*entry.record.amended, *changed))
                again = RecordDelivery(entry.message, entry.line, record, buried=True)
                return await self._written([again], stopping)
        elif usage is not None:
            cost_usd = str(usage.cost_usd)
            log.error("usage_not_booked", call_id=usage.call_id, cost_usd=cost_usd)
        return True

    async def _bury(self, message: RawMessage, line: bytes, error: HocketError) -> None:
        await dead_letters.bury(
            self._bus,
            "usage",
            subject=message.subject,
            payload=line,
            headers=dict(message.headers or {}),
            error=error.info(),
        )
        self._metrics.buried.inc()
        log.error("usage_buried", code=error.code, reason=str(error))


def _gather_ms(messages: int, records: int) -> float:
    """Return how long the batch after one of that size gathers."""
    if messages >= BACKLOG_BATCH:
        return 0.0
    return BUSY_GATHER_MS if records >= BUSY_RECORDS else GATHER_MS


async def _until(
    stopping: asyncio.Event, fetching: Awaitable[Sequence[RawMessage]]
) -> Sequence[RawMessage] | None:
    """Return what `fetching` returns, or None as soon as `stopping` is set."""
    fetch = asyncio.ensure_future(fetching)
    stop = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait({fetch, stop}, return_when=asyncio.FIRST_COMPLETED)
        return fetch.result() if fetch.done() else None
    finally:
        await stop_tasks([fetch, stop])


async def _paused(pause_ms: float, stopping: asyncio.Event) -> float:
    """Wait `pause_ms` or until `stopping`; return the next pause."""
    stop = asyncio.ensure_future(stopping.wait())
    await asyncio.wait({stop}, timeout=pause_ms / 1000)
    stop.cancel()
    return min(2 * pause_ms, MAX_PAUSE_MS)
