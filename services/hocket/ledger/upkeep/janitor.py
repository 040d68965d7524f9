"""The janitor: deletes expired data, a little at a time.

Every ledger wakes every PASS_S, and the one that gets the advisory lock makes the pass. Each
statement is limited in rows and time, and followed by a pause as long as it took plus PAUSE_S, so
the janitor uses at most half of one connection. If one kind fails, the pass continues with the
next, and is repeated later; every deletion is a transaction of its own. What has expired is decided
by Postgres's clock (`pass_time.py`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from functools import partial

import asyncpg
import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram

from hocket.kit.postgres.database import said
from hocket.kit.postgres.errors import STATEMENT_ERRORS
from hocket.kit.postgres.session_cleanup import closed_on_failure, given_up
from hocket.kit.process.clock import monotonic_ms
from hocket.ledger.upkeep import (
    day_partitions,
    pass_time,
    retention,
    step_days,
    tenant_periods,
    usage_partitions,
)
from hocket.ledger.upkeep.pass_time import ClocksDiffer, OwnTime, expired_before
from hocket.ledger.upkeep.retention import KINDS, Periods
from hocket.ledger.upkeep.tenant_periods import TenantPeriods

PASS_S = 600.0
PAUSE_S = 0.02
LOCK = 0x686F636B6A616E
"""The advisory lock held by the ledger that makes a pass."""
TAKE = f"SELECT pg_try_advisory_lock({LOCK})"
LEAVE = f"SELECT pg_advisory_unlock({LOCK})"
BUCKETS_S = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 5.0)

log = structlog.get_logger(__name__)


class JanitorMetrics:
    """Rows deleted by kind, and durations of the statements."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.deleted = Counter(
            "hocket_retention_deleted",
            "Rows deleted at the end of their retention period (docs/how-to/retention.md).",
            ["kind"],
            registry=registry,
        )
        self.statement = Histogram(
            "hocket_retention_statement_seconds",
            "Duration of one of the janitor's statements.",
            buckets=BUCKETS_S,
            registry=registry,
        )


class Janitor:
    """Deletes expired data step by step."""

    def __init__(
        self,
        pool: asyncpg.Pool,
        periods: Periods,
        metrics: JanitorMetrics,
        of_tenants: TenantPeriods | None = None,
        own_time: OwnTime = pass_time.machine_time,
    ) -> None:
        self._pool = pool
        self._of_tenants = of_tenants or {}
        self._periods = periods
        self._own_time = own_time
        self._metrics = metrics
        self._paused_at_ms = 0.0
        self._failed: set[str] = set()
        """The kinds that could not be deleted in this pass."""

    async def run(self, stopping: asyncio.Event) -> None:
        """Make passes until `stopping`."""
        while not stopping.is_set():
            try:
                await self.make_pass()
            except STATEMENT_ERRORS as error:
                log.warning("retention_waits", reason=said(error))
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), PASS_S)

    async def make_pass(self) -> dict[str, int] | None:
        """Delete expired data; return the number of rows by kind, or None if another ledger is
        making a pass, or the clocks differ."""
        async with self._pool.acquire() as connection:
            timeout_s = retention.STATEMENT_TIMEOUT_S
            async with closed_on_failure(connection):
                taken = await connection.fetchval(TAKE, timeout=timeout_s)
            if not taken:
                return None
            async with given_up(connection, retention.MAY_NOT_DELETE, LEAVE, timeout_s=timeout_s):
                await connection.execute(retention.MAY_DELETE, timeout=timeout_s)
                await day_partitions.make_ahead(connection)
                await usage_partitions.make_ahead(connection, self._periods.usage)
                await step_days.make_ahead(connection, self._periods.runs)
                try:
                    now = await pass_time.agreed_time(connection, self._own_time)
                except ClocksDiffer as error:
                    log.warning(
                        "retention_waits", reason=str(error), cure="set the wrong one right"
                    )
                    return None
                return await self._passed(connection, now)

    async def _passed(self, connection: asyncpg.Connection, now: datetime) -> dict[str, int]:
        passed: dict[str, tuple[int, int]] = {}
        self._failed.clear()

        async def delete(
            name: str, period: str, deleting: Callable[[datetime], Awaitable[int]]
        ) -> None:
            if days := getattr(self._periods, period):
                delete_old = partial(deleting, expired_before(period, days, now))
                passed[name] = days, await self._deleted(connection, name, delete_old)

        pause = self._pause
        await delete("rejected", "rejected", partial(self._rejected, connection))
        await delete("runs", "runs", partial(self._runs, connection))
        for table, name in (("content", "content"), ("log_line", "log_lines")):
            await delete(name, "content", partial(day_partitions.drop_behind, connection, table))
        drop_usage = partial(usage_partitions.drop_behind, connection, pause=pause)
        await delete("usage", "usage", drop_usage)
        for kind in KINDS:
            delete_rows = partial(retention.deleted, connection, kind, pause=pause)
            await delete(kind.name, kind.period, delete_rows)
        passed |= await self._tenants(connection, now)
        await retention.note(connection, passed, self._failed)
        rows = {name: number for name, (_, number) in passed.items()}
        for name, number in rows.items():
            self._metrics.deleted.labels(name).inc(number)
        if any(rows.values()):
            log.info("retention_deleted", **rows)
        return rows

    async def _rejected(self, connection: asyncpg.Connection, cutoff: datetime) -> int:
        return await retention.deleted_runs(connection, cutoff, rejected=True, pause=self._pause)

    async def _runs(self, connection: asyncpg.Connection, cutoff: datetime) -> int:
        gone = await step_days.drop_behind(connection, cutoff)
        return gone + await retention.deleted_runs(
            connection, cutoff, rejected=False, pause=self._pause
        )

    async def _tenants(
        self, connection: asyncpg.Connection, now: datetime
    ) -> dict[str, tuple[int, int]]:
        """Delete what has expired for its tenant; return the days and the rows of each KIND:TENANT."""
        passed: dict[str, tuple[int, int]] = {}
        for tenant, periods in self._of_tenants.items():
            for kind in tenant_periods.NAMES:
                if days := periods.get(kind):
                    deleting = partial(
                        tenant_periods.delete_old,
                        connection,
                        tenant,
                        kind,
                        expired_before(kind, days, now),
                        pause=self._pause,
                    )
                    name = f"{kind}:{tenant}"
                    passed[name] = days, await self._deleted(connection, name, deleting)
        return passed

    async def _deleted(
        self, connection: asyncpg.Connection, name: str, deleting: Callable[[], Awaitable[int]]
    ) -> int:
        """Delete what has expired of one kind; return the number of rows, 0 if it fails while the
        connection lasts: the next kinds do not wait for it."""
        self._paused_at_ms = monotonic_ms()
        try:
            return await deleting()
        except STATEMENT_ERRORS as error:
            if connection.is_closed():
                raise
            self._failed.add(name)
            if isinstance(error, TimeoutError):
                after_s = round((monotonic_ms() - self._paused_at_ms) / 1000, 1)
                log.warning("retention_took_too_long", kind=name, after_s=after_s)
            else:
                log.warning("retention_of_kind_failed", kind=name, reason=said(error))
            return 0

    async def _pause(self) -> None:
        """Leave the database to others for as long as it was last used."""
        took_s = (monotonic_ms() - self._paused_at_ms) / 1000
        self._metrics.statement.observe(took_s)
        await asyncio.sleep(took_s + PAUSE_S)
        self._paused_at_ms = monotonic_ms()
