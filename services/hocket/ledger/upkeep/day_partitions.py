"""Tables partitioned by day: the janitor creates partitions ahead of time and drops old ones.

A partition `content_20260504` holds the rows of that day (UTC). It is created as a separate table
and then attached, and detached before it is dropped, so that readers and writers of other
partitions never wait. The next pass finishes what a killed process left half done.
"""

from datetime import date, datetime, timedelta

import asyncpg

from hocket.kit.postgres.session_cleanup import given_up
from hocket.ledger.upkeep.pass_time import postgres_time

AHEAD_DAYS = 3
"""For how many days after today partitions exist."""
TIMEOUT_S = 10.0
TABLES = ("content", "log_line")
LOCK = 0x686F636B706172
"""The advisory lock held by the ledger that manages partitions."""
TAKE = f"SELECT pg_advisory_lock({LOCK})"
LEAVE = f"SELECT pg_advisory_unlock({LOCK})"
NAMES = """
SELECT child.relname AS name, inherits.inhrelid IS NOT NULL AS attached,
       coalesce(inherits.inhdetachpending, false) AS pending
FROM pg_class child
LEFT JOIN pg_inherits inherits ON inherits.inhrelid = child.oid
WHERE child.relnamespace = 'hocket'::regnamespace AND child.relkind = 'r'
  AND child.relname ~ ('^' || $1 || '_[0-9]{8}$')
ORDER BY child.relname
"""

_ESTIMATE = "SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = $1::text::regclass"


async def make_ahead(connection: asyncpg.Connection) -> None:
    """Create the missing partitions of today and of the coming days."""
    today = (await postgres_time(connection)).date()
    async with given_up(connection, LEAVE, timeout_s=TIMEOUT_S):
        await connection.execute(TAKE, timeout=TIMEOUT_S)
        for table in TABLES:
            rows = await connection.fetch(NAMES, table, timeout=TIMEOUT_S)
            known = {row["name"] for row in rows if row["attached"]}
            for ahead in range(AHEAD_DAYS + 1):
                day = today + timedelta(days=ahead)
                if _name(table, day) not in known:
                    await _make(connection, table, day)


async def drop_behind(connection: asyncpg.Connection, table: str, cutoff: datetime) -> int:
    """Drop the partitions of the days before that of `cutoff`; return how many rows they had, estimated
    where counting takes too long."""
    oldest = _name(table, cutoff.date())
    gone = 0
    for row in await connection.fetch(NAMES, table, timeout=TIMEOUT_S):
        name = row["name"]
        if name >= oldest:
            break
        gone += await _rows_in(connection, name)
        if row["attached"]:
            how = "FINALIZE" if row["pending"] else "CONCURRENTLY"
            await connection.execute(
                f"ALTER TABLE hocket.{table} DETACH PARTITION hocket.{name} {how}",
                timeout=TIMEOUT_S,
            )
        await connection.execute(f"DROP TABLE hocket.{name}", timeout=TIMEOUT_S)
    return gone


async def _rows_in(connection: asyncpg.Connection, name: str) -> int:
    """Return how many rows a partition has; if it has too many to count, what Postgres believes."""
    try:
        number = await connection.fetchval(f"SELECT count(*) FROM hocket.{name}", timeout=TIMEOUT_S)
    except TimeoutError:
        number = await connection.fetchval(_ESTIMATE, f"hocket.{name}", timeout=TIMEOUT_S)
    return int(number)


async def _make(connection: asyncpg.Connection, table: str, day: date) -> None:
    name = _name(table, day)
    await connection.execute(
        f"CREATE TABLE IF NOT EXISTS hocket.{name} (LIKE hocket.{table} INCLUDING ALL)",
        timeout=TIMEOUT_S,
    )
    after = day + timedelta(days=1)
    await connection.execute(
        f"ALTER TABLE hocket.{table} ATTACH PARTITION hocket.{name} "
        f"FOR VALUES FROM ('{day} 00:00+00') TO ('{after} 00:00+00')",
        timeout=TIMEOUT_S,
    )


def _name(table: str, day: date) -> str:
    return f"{table}_{day:%Y%m%d}"
