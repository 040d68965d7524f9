"""Partitions of the ledger's rows by start time of calls: created ahead of time, and dropped when
expired.

`hocket.cover_usage` (migration 0041) creates a partition for a point in time. A ledger that books a
call for which none exists (because of a gateway's clock, or days without a ledger) has it created.
An expired partition is detached without blocking anyone; then, in one transaction, its days are
noted for reports and it is dropped, except for calls that were booked just before it was detached.
The next pass finishes what a killed process left half done.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

import asyncpg

from hocket.kit.postgres.session_cleanup import given_up
from hocket.ledger.upkeep.day_partitions import AHEAD_DAYS, LEAVE, TAKE, TIMEOUT_S
from hocket.ledger.upkeep.pass_time import postgres_time
from hocket.ledger.upkeep.retention import Pause, delete_rows

MAX_DAILY = 62
"""If rows are kept for up to this many days, a partition covers one day. A table has at most about
120 partitions, because each adds cost to every statement that may need it."""
MAX_WEEKLY = 800
WEEK_DAYS = 7
MONTH_DAYS = 30
LONG_TIMEOUT_S = 300.0
"""The time limit for reading a partition that is to be dropped."""
SHORTEST_PERIOD = timedelta(days=1)
"""What was booked since then has not expired, whatever the period."""

_COVER = "SELECT hocket.cover_usage($1, $2)"
_ENDS = "SELECT to_at FROM hocket.usage_partition WHERE from_at <= $1 AND $1 < to_at"
_OVER = """
SELECT name FROM hocket.usage_partition WHERE to_at <= $1 ORDER BY to_at
"""
_STRAGGLERS = """
SELECT name, from_at, to_at FROM hocket.usage_partition
WHERE to_at <= $1 OR from_at = '-infinity'
"""
_LEFT = """
SELECT c.relname AS name, coalesce(i.inhdetachpending, false) AS pending
FROM pg_class c
LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
WHERE c.relnamespace = 'hocket'::regnamespace AND c.relkind = 'r'
  AND c.relname ~ '^usage_([0-9]{8}([0-9]{4})?|before)$' AND (i.inhrelid IS NULL OR i.inhdetachpending)
"""
OLD_ROWS = """
DELETE FROM hocket.usage u USING (
    SELECT call_id, started_at FROM hocket.{name} WHERE recorded_at < $1 LIMIT $4
) old
WHERE u.call_id = old.call_id AND u.started_at = old.started_at
  AND u.started_at >= $2 AND u.started_at < $3
"""
_FIRST_LATE = "SELECT min(started_at) FROM hocket.{name} WHERE recorded_at >= $1"
_DROPPED = "usage_dropped"
"""What a table is called while its late calls are taken back: their new partition may get its name."""
_TAKE_BACK = f"""
INSERT INTO hocket.usage SELECT * FROM hocket.{_DROPPED} WHERE recorded_at >= $1
ON CONFLICT DO NOTHING
"""


def width_days(keep_days: int) -> int:
    """Return how many days a partition covers if rows are kept for `keep_days` (0: forever)."""
    if 0 < keep_days <= MAX_DAILY:
        return 1
    return WEEK_DAYS if 0 < keep_days <= MAX_WEEKLY else MONTH_DAYS


def is_uncovered(error: asyncpg.CheckViolationError) -> bool:
    """Tell whether rows were refused because there is no partition for them."""
    return error.table_name == "usage" and error.constraint_name is None


async def make_ahead(connection: asyncpg.Connection, keep_days: int) -> None:
    """Create the missing partitions of today and of the coming days."""
    at = await postgres_time(connection)
    until = at + timedelta(days=AHEAD_DAYS)
    while at <= until:
        await connection.execute(_COVER, at, width_days(keep_days), timeout=TIMEOUT_S)
        at = await connection.fetchval(_ENDS, at, timeout=TIMEOUT_S)


async def cover(pool: asyncpg.Pool, starts: Iterable[datetime]) -> None:
    """Create the partitions for calls that started at the given times."""
    async with pool.acquire() as connection, given_up(connection, LEAVE, timeout_s=TIMEOUT_S):
        await connection.execute(TAKE, timeout=TIMEOUT_S)
        await _finish(connection, await postgres_time(connection) - SHORTEST_PERIOD)
        for at in sorted(set(starts)):
            await connection.execute(_COVER, at, 1, timeout=TIMEOUT_S)


async def drop_behind(connection: asyncpg.Connection, cutoff: datetime, *, pause: Pause) -> int:
    """Drop the partitions whose calls all began, and were booked, before `cutoff`; return the rows
    deleted.

    In a partition with later bookings, and in the one without a lower bound, old rows are deleted
    instead, with a `pause` between statements.
    """
    async with given_up(connection, LEAVE, timeout_s=TIMEOUT_S):
        await connection.execute(TAKE, timeout=TIMEOUT_S)
        gone = await _finish(connection, cutoff)
        for row in await connection.fetch(_OVER, cutoff, timeout=TIMEOUT_S):
            later = f"SELECT EXISTS (SELECT FROM hocket.{row['name']} WHERE recorded_at >= $1)"
            if await connection.fetchval(later, cutoff, timeout=LONG_TIMEOUT_S):
                continue
            await _detach(connection, row["name"], "CONCURRENTLY")
            gone += await _drop(connection, row["name"], cutoff)
    for row in await connection.fetch(_STRAGGLERS, cutoff, timeout=TIMEOUT_S):
        bounds = (cutoff, row["from_at"], row["to_at"])
        gone += await delete_rows(
            connection, OLD_ROWS.format(name=row["name"]), *bounds, pause=pause, timeout_s=TIMEOUT_S
        )
    return gone


async def _finish(connection: asyncpg.Connection, since: datetime) -> int:
    """Drop partitions that were detached but not yet dropped, except for the calls booked since then;
    return the rows deleted."""
    gone = 0
    for row in await connection.fetch(_LEFT, timeout=TIMEOUT_S):
        if row["pending"]:
            await _detach(connection, row["name"], "FINALIZE")
        gone += await _drop(connection, row["name"], since)
    return gone


async def _detach(connection: asyncpg.Connection, name: str, how: str) -> None:
    statement = f"ALTER TABLE hocket.usage DETACH PARTITION hocket.{name} {how}"
    await connection.execute(statement, timeout=TIMEOUT_S)


async def _drop(connection: asyncpg.Connection, name: str, since: datetime) -> int:
    """Drop a table that is no longer a partition, noting its days for reports; return the rows deleted.
    Calls booked since then stay: nobody had looked for them before the table was detached."""
    async with connection.transaction():
        noted = "SELECT hocket.note_dropped_days($1)"
        number = await connection.fetchval(noted, name, timeout=LONG_TIMEOUT_S)
        late = _FIRST_LATE.format(name=name)
        first = await connection.fetchval(late, since, timeout=LONG_TIMEOUT_S)
        if first is not None:
            number -= await _take_back(connection, name, first, since)
            name = _DROPPED
        await connection.execute(f"DROP TABLE hocket.{name}", timeout=TIMEOUT_S)
    return int(number)


async def _take_back(
    connection: asyncpg.Connection, name: str, first: datetime, since: datetime
) -> int:
    """Rename a detached table to _DROPPED, and book its calls that were booked since then, of which
    `first` began first, in a new partition; return their number."""
    await connection.execute(f"ALTER TABLE hocket.{name} RENAME TO {_DROPPED}", timeout=TIMEOUT_S)
    await connection.execute(_COVER, first, 1, timeout=TIMEOUT_S)  # the whole gap
    status = await connection.execute(_TAKE_BACK, since, timeout=LONG_TIMEOUT_S)
    return int(status.rsplit(" ", 1)[1])
