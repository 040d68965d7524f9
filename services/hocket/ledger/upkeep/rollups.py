"""Rolls up finished days for reports, so that a report over many days only adds up days that are
open or have changed since.

One ledger at a time (by an advisory lock) rolls up. A day is closed once it has been over for
CLOSE_S and every transaction that may have written to it without a note has ended; from then on,
triggers note each change to it in `hocket.dirty_day`. They go by the server's clock: a day that is
closed and is not over by that clock (it was wrong, or another server has taken over) is opened
again. A day is rolled up in one transaction with one snapshot, which also deletes the notes visible
in that snapshot; a change that the rollup does not include therefore keeps its note, and while a
day has a note the views read its rows. Days from which retention dropped rows (`hocket.stale_day`)
are shown as they were until they are rolled up again. Nothing waits for a rollup, and no other
figure is ever out of date.
"""

import asyncio
from contextlib import suppress
from datetime import date, timedelta

import asyncpg
import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram

from hocket.kit.postgres.database import said
from hocket.kit.postgres.errors import STATEMENT_ERRORS
from hocket.kit.postgres.rollup_tables import REPORTS, TABLES
from hocket.kit.postgres.session_cleanup import closed_on_failure, given_up
from hocket.kit.process.clock import monotonic_ms

PASS_S = 60.0
CLOSE_S = 300.0
"""How long a day must be over before it is closed: a server that takes over may be behind, and notes
no changes to a day that is not over by its own clock."""
REST = 4
"""After each day, the rollup rests this many times as long as the day took;
it thus uses a fifth of a connection."""
MAX_REST_S = 600.0
SETTLE_S = 1.0
MAX_SETTLES = 20
"""How often to check whether the transactions from before midnight have ended before leaving it to
the next pass."""
TIMEOUT_S = 300.0
"""The time limit of a statement over one day."""
BUCKETS_S = (0.02, 0.1, 0.5, 2.0, 5.0, 20.0, 60.0, 300.0)
LOCK = 0x686F636B726F6C
"""The advisory lock held by the ledger that rolls up."""

_TAKE = f"SELECT pg_try_advisory_lock({LOCK})"
_LEAVE = f"SELECT pg_advisory_unlock({LOCK})"
_OPEN = """
SELECT open_day, today, until_day,
       CASE WHEN open_day < until_day THEN pg_current_xact_id()::text END AS newest
FROM hocket.rollup_state
CROSS JOIN (
    SELECT hocket.day_of(at) AS today, hocket.day_of(at - $1 * interval '1 second') AS until_day
    FROM clock_timestamp() AS at
) clock
"""
"""The open day, today, the day up to which days may be closed and, if the open day is before it, a
transaction id newer than that of any transaction already writing at this time."""
_SETTLED = """
SELECT NOT EXISTS (
    SELECT FROM pg_snapshot_xip(pg_current_snapshot()) AS open(id)
    WHERE open.id < $1::text::xid8 AND NOT EXISTS (
        SELECT FROM pg_stat_activity a
        CROSS JOIN (SELECT relowner FROM pg_class WHERE oid = 'hocket.usage'::regclass) usage
        WHERE a.backend_xid = xid(open.id)
          AND pg_has_role(a.usesysid, 'hocket_report', 'MEMBER')
          AND NOT pg_has_role(a.usesysid, usage.relowner, 'MEMBER')))
"""
"""Whether all transactions before `$1` have ended, apart from those of report logins, which write
nothing: one that a login leaves open would keep the day open."""
_NEXT_DAY = """
SELECT hocket.day_of(least(
    (SELECT min(started_at) FROM hocket.usage
     WHERE started_at >= (SELECT open_from FROM hocket.rollup_state)),
    (SELECT min(accepted_at) FROM hocket.run
     WHERE accepted_at >= (SELECT open_from FROM hocket.rollup_state)),
    (SELECT min(finished_at) FROM hocket.run
     WHERE finished_at >= (SELECT open_from FROM hocket.rollup_state) AND finished_at IS NOT NULL)
))
"""
"""The first day with data that is not rolled up; steps belong to runs, which have `accepted_at`."""
_DIRTY = """
SELECT tenant, day FROM hocket.dirty_day
WHERE day < (SELECT open_day FROM hocket.rollup_state)
GROUP BY tenant, day ORDER BY day DESC, tenant
"""
_STALE = """
SELECT DISTINCT tenant, day FROM hocket.stale_day
WHERE day < (SELECT open_day FROM hocket.rollup_state) ORDER BY day DESC, tenant
"""
_NOTE = "INSERT INTO hocket.dirty_day (tenant, day) VALUES ($1, $2)"
"""Notes a stale day while it is rolled up, because the views add up the rows of noted days."""
_FRESH = "DELETE FROM hocket.stale_day WHERE tenant = $1 AND day = $2"
_MISSED = """
INSERT INTO hocket.dirty_day (tenant, day)
SELECT DISTINCT tenant, day
FROM (SELECT open_day FROM hocket.rollup_state) state
CROSS JOIN LATERAL (
    (SELECT tenant, hocket.day_of(accepted_at) AS day, status, count(*) AS runs
     FROM hocket.run
     WHERE accepted_at >= (open_day - 2)::timestamp AT TIME ZONE 'UTC'
       AND accepted_at < open_day::timestamp AT TIME ZONE 'UTC'
     GROUP BY 1, 2, 3)
    EXCEPT
    (SELECT tenant, day, status, sum(runs)::bigint FROM hocket.rollup_run_hours
     WHERE day >= open_day - 2 GROUP BY 1, 2, 3)
    UNION ALL
    (SELECT tenant, hocket.day_of(accepted_at) AS day, error ->> 'code' AS code, count(*) AS runs
     FROM hocket.run
     WHERE accepted_at >= (open_day - 2)::timestamp AT TIME ZONE 'UTC'
       AND accepted_at < open_day::timestamp AT TIME ZONE 'UTC' AND error IS NOT NULL
     GROUP BY 1, 2, 3
    EXCEPT
     SELECT tenant, day, code, sum(runs)::bigint FROM hocket.rollup_error_hours
     WHERE day >= open_day - 2 GROUP BY 1, 2, 3)
) missed
"""
"""Notes days that ledgers of an older release, without `run_hours` or `error_hours`,
closed during an upgrade."""
_BOUND = "UPDATE hocket.rollup_state SET ends = $1::date::timestamp AT TIME ZONE 'UTC'"
_BOUND_NOTHING = "UPDATE hocket.rollup_state SET ends = open_from"
_CLOSE = """
UPDATE hocket.rollup_state
SET open_day = $1, open_from = $1::date::timestamp AT TIME ZONE 'UTC', ends = 'infinity'
"""
_EMPTY_FROM = "DELETE FROM hocket.rollup_{name} WHERE day >= $1"
_UNBOUND = "UPDATE hocket.rollup_state SET ends = 'infinity'"
_FORGET_BEFORE = "DELETE FROM hocket.dirty_day WHERE day >= $1 AND day < $2"
_FORGET = "DELETE FROM hocket.dirty_day WHERE tenant = $1 AND day = $2"
_ANALYZE = "ANALYZE " + ", ".join(
    f"hocket.{table}" for table in (*TABLES, "usage", "step", "attempt")
)

log = structlog.get_logger(__name__)


class RollupMetrics:
    """Days rolled up, and how long one took."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.days = Counter(
            "hocket_rollup_days",
            "Days rolled up for reports: closed days, and changed days of a tenant.",
            ["reason"],
            registry=registry,
        )
        self.day = Histogram(
            "hocket_rollup_day_seconds",
            "Time taken to roll up a day.",
            buckets=BUCKETS_S,
            registry=registry,
        )


class Rollups:
    """Keeps the rollups of finished days up to date."""

    def __init__(self, pool: asyncpg.Pool, metrics: RollupMetrics) -> None:
        self._pool = pool
        self._metrics = metrics

    async def run(self, stopping: asyncio.Event) -> None:
        """Make passes until `stopping`."""
        try:
            await self.note_missed()
        except STATEMENT_ERRORS as error:
            log.warning("rollups_wait", reason=said(error))
        while not stopping.is_set():
            try:
                await self.make_pass(stopping)
            except STATEMENT_ERRORS as error:
                log.warning("rollups_wait", reason=said(error))
            await _rested(stopping, PASS_S)

    async def note_missed(self) -> None:
        """Note days recently closed by an older ledger without everything that is rolled up now."""
        await self._pool.execute(_MISSED, timeout=TIMEOUT_S)

    async def make_pass(self, stopping: asyncio.Event | None = None, *, rest: int = REST) -> int:
        """Roll up finished days and changed ones; return how many.

        Raises one of STATEMENT_ERRORS.
        """
        stopping = stopping or asyncio.Event()
        async with self._pool.acquire() as connection:
            async with closed_on_failure(connection):
                taken = await connection.fetchval(_TAKE, timeout=TIMEOUT_S)
            if not taken:
                return 0
            async with given_up(connection, _LEAVE, timeout_s=TIMEOUT_S):
                return await self._passed(connection, stopping, rest)

    async def _passed(
        self, connection: asyncpg.Connection, stopping: asyncio.Event, rest: int
    ) -> int:
        state = await connection.fetchrow(_OPEN, CLOSE_S, timeout=TIMEOUT_S)
        open_day, until, done = state["open_day"], state["until_day"], 0
        if open_day > state["today"]:
            await _open_again(connection, state["today"])
            log.warning(
                "days_opened_again", first=str(state["today"]), reason="the clock went back"
            )
        elif open_day < until and await _settled(connection, state["newest"]):
            while open_day < until and not stopping.is_set():
                found = await connection.fetchval(_NEXT_DAY, timeout=TIMEOUT_S)
                first = until if found is None else min(max(found, open_day), until)
                begun_ms = monotonic_ms()
                after = min(first + timedelta(days=1), until)
                await _close(connection, open_day, after)
                open_day, done = after, done + 1
                await self._told("closed", begun_ms, stopping, rest)
            await connection.execute(_ANALYZE, timeout=TIMEOUT_S)
        return done + await self._rolled_again(connection, stopping, rest)

    async def _rolled_again(
        self, connection: asyncpg.Connection, stopping: asyncio.Event, rest: int
    ) -> int:
        """Roll up changed days again; return how many. A day of a tenant that cannot be rolled up keeps
        its note, and does not keep the others."""
        changed = await connection.fetch(_DIRTY, timeout=TIMEOUT_S)
        noted = set(map(tuple, changed))
        stale = await connection.fetch(_STALE, timeout=TIMEOUT_S)
        done = 0
        for row in changed + [row for row in stale if tuple(row) not in noted]:
            if stopping.is_set():
                break
            begun_ms = monotonic_ms()
            tenant, day = row["tenant"], row["day"]
            try:
                await _roll_again(connection, tenant, day)
            except STATEMENT_ERRORS as error:
                if connection.is_closed():
                    raise
                log.warning("day_not_rolled_up", tenant=tenant, day=str(day), reason=said(error))
                await _rested(stopping, _rest_s(begun_ms, rest))
                continue
            done += 1
            await self._told("changed", begun_ms, stopping, rest)
        return done

    async def _told(self, reason: str, begun_ms: float, stopping: asyncio.Event, rest: int) -> None:
        took_s = (monotonic_ms() - begun_ms) / 1000
        self._metrics.days.labels(reason).inc()
        self._metrics.day.observe(took_s)
        await _rested(stopping, _rest_s(begun_ms, rest))


async def _settled(connection: asyncpg.Connection, newest: str) -> bool:
    """Wait until every transaction older than `newest` has ended; return whether that happened in
    time.

    Such a transaction may have written rows of a day that was not over then, but is now.
    """
    for _ in range(MAX_SETTLES):
        if await connection.fetchval(_SETTLED, newest, timeout=TIMEOUT_S):
            return True
        await asyncio.sleep(SETTLE_S)
    return False


async def _close(connection: asyncpg.Connection, open_day: date, after: date) -> None:
    """Roll up the days from the open one up to, but not including, `after`,
    which becomes the open day."""
    async with connection.transaction(isolation="repeatable_read"):
        await connection.execute(_BOUND, after, timeout=TIMEOUT_S)
        for name in REPORTS:
            await connection.execute(
                f"INSERT INTO hocket.rollup_{name} SELECT * FROM hocket.live_{name}"
                " WHERE day >= $1 AND day < $2",
                open_day,
                after,
                timeout=TIMEOUT_S,
            )
        await connection.execute(_FORGET_BEFORE, open_day, after, timeout=TIMEOUT_S)
        await connection.execute(_CLOSE, after, timeout=TIMEOUT_S)


async def _open_again(connection: asyncpg.Connection, day: date) -> None:
    """Make `day` the open day, and drop what was rolled up of it and of later ones."""
    async with connection.transaction(isolation="repeatable_read"):
        for name in REPORTS:
            await connection.execute(_EMPTY_FROM.format(name=name), day, timeout=TIMEOUT_S)
        await connection.execute(_CLOSE, day, timeout=TIMEOUT_S)


async def _roll_again(connection: asyncpg.Connection, tenant: str, day: date) -> None:
    """Roll up a tenant's day again after a change."""
    async with connection.transaction(isolation="repeatable_read"):
        await connection.execute(_BOUND_NOTHING, timeout=TIMEOUT_S)
        await connection.execute(_NOTE, tenant, day, timeout=TIMEOUT_S)
        for name in REPORTS:
            await connection.execute(
                f"DELETE FROM hocket.rollup_{name} WHERE tenant = $1 AND day = $2",
                tenant,
                day,
                timeout=TIMEOUT_S,
            )
            await connection.execute(
                f"INSERT INTO hocket.rollup_{name} SELECT * FROM hocket.live_{name}"
                " WHERE tenant = $1 AND day = $2",
                tenant,
                day,
                timeout=TIMEOUT_S,
            )
        await connection.execute(_FORGET, tenant, day, timeout=TIMEOUT_S)
        await connection.execute(_FRESH, tenant, day, timeout=TIMEOUT_S)
        await connection.execute(_UNBOUND, timeout=TIMEOUT_S)


def _rest_s(begun_ms: float, rest: int) -> float:
    """Return how long to rest after work that began then."""
    return min((monotonic_ms() - begun_ms) / 1000 * rest, MAX_REST_S)


async def _rested(stopping: asyncio.Event, rest_s: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(stopping.wait(), rest_s)
