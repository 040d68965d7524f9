"""Writes records into Postgres.

If Postgres refuses a record, the batch is split until all others are stored; that record becomes a
dead letter, and its cost is booked without the parts that Postgres may refuse (`amended.py`). While
Postgres is unreachable, writing waits.
"""

import asyncio
from collections.abc import Sequence

import asyncpg
import structlog

from hocket.kit.postgres.errors import STATEMENT_ERRORS, is_row_fault
from hocket.kit.process.lifecycle import Health
from hocket.ledger.metrics import LedgerMetrics
from hocket.ledger.prices import KnownPrices
from hocket.ledger.records.amended import shortened
from hocket.ledger.records.dead_records import DeadRecords
from hocket.ledger.records.reader import RecordDelivery
from hocket.ledger.records.record import UsageRefused, booked
from hocket.ledger.store import insert

MAX_ROWS = 2_000
"""The most records in one transaction."""
FIRST_PAUSE_MS = 100.0
MAX_PAUSE_MS = 5_000.0

log = structlog.get_logger()


class RecordWriter:
    """Writes the records read from one stream, holding `writing` meanwhile."""

    def __init__(
        self,
        pool: asyncpg.Pool,
        health: Health,
        metrics: LedgerMetrics,
        letters: DeadRecords,
        writing: asyncio.Lock,
    ) -> None:
        self._pool = pool
        self._health = health
        self._metrics = metrics
        self._letters = letters
        self._writing = writing
        self._prices = KnownPrices()

    async def write(self, entries: Sequence[RecordDelivery], stopping: asyncio.Event) -> bool:
        """Write records; return False if stopped before all are stored,
        so that they must be delivered again."""
        for begin in range(0, len(entries), MAX_ROWS):
            if not await self._written(entries[begin : begin + MAX_ROWS], stopping):
                return False
        return True

    async def _written(self, entries: Sequence[RecordDelivery], stopping: asyncio.Event) -> bool:
        """Write entries; return False if stopped before they are stored,
        so that they must be delivered again."""
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

    async def _set_aside(
        self, entry: RecordDelivery, error: Exception, stopping: asyncio.Event
    ) -> bool:
        """Dead-letter a record that Postgres refuses,
        and book its cost without the parts it may refuse."""
        usage = entry.record.usage
        if not entry.buried:
            refused = UsageRefused(call_id=entry.record.call_id, reason=str(error))
            await self._letters.bury(entry.message, entry.line, refused)
            if usage is not None and usage.cost_usd:
                plain, changed = shortened(usage)
                record = booked(plain, (*entry.record.amended, *changed))
                again = RecordDelivery(entry.message, entry.line, record, buried=True)
                return await self._written([again], stopping)
        elif usage is not None:
            cost_usd = str(usage.cost_usd)
            log.error("usage_not_booked", call_id=usage.call_id, cost_usd=cost_usd)
        return True


async def _paused(pause_ms: float, stopping: asyncio.Event) -> float:
    """Wait `pause_ms` or until `stopping`; return the next pause."""
    stop = asyncio.ensure_future(stopping.wait())
    await asyncio.wait({stop}, timeout=pause_ms / 1000)
    stop.cancel()
    return min(2 * pause_ms, MAX_PAUSE_MS)
