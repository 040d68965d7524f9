"""The daily tables of steps and attempts: created ahead of time, and dropped with their runs.

`hocket.cover_steps` (migration 0051) creates them. When all runs of a span have expired, one
statement deletes the runs, and the tables are dropped. The steps of a few runs that are needed
longer move to the parent tables, which hold runs of no particular day. If there are too many of
these, or a statement takes too long, rows are deleted one by one (`retention.py`) until there are
few. A table is locked for at most LOCK_TIMEOUT at a time, because readers of steps wait meanwhile.
The next pass finishes what a killed process left half done.
"""

import asyncio
from datetime import datetime, timedelta

import asyncpg
import structlog

from hocket.kit.process.clock import monotonic_ms
from hocket.ledger.upkeep import retention
from hocket.ledger.upkeep.day_partitions import AHEAD_DAYS, TIMEOUT_S
from hocket.ledger.upkeep.pass_time import postgres_time
from hocket.ledger.upkeep.usage_partitions import LONG_TIMEOUT_S, width_days

MAX_MOVED = 1_000
"""The most runs moved to the parent tables."""
LOCK_TIMEOUT = "100ms"
LOCK_TRIES = 100
LOCK_PAUSE_S = 0.5
NEWEST_DAYS = 2
"""Tables of this many latest days are not dropped,
because `hocket.cover_steps` would create them again."""

log = structlog.get_logger(__name__)

_COVER = "SELECT hocket.cover_steps($1, $2)"
_ENDS = "SELECT to_at FROM hocket.step_days WHERE from_at <= $1 AND $1 < to_at"
_OVER = """
SELECT suffix, from_at, to_at FROM hocket.step_days
WHERE to_at <= $1 AND to_at <= date_trunc('day', clock_timestamp(), 'UTC') - make_interval(days => $2)
  AND suffix <> ''
ORDER BY to_at
"""
_NEEDED = """
WITH RECURSIVE needed(run_id, parent) AS (
    SELECT r.run_id, r.parent FROM hocket.run r
    WHERE r.accepted_at >= $1 AND r.accepted_at < $2 AND (
        r.finished_at IS NULL OR r.finished_at >= $3 OR r.run_id = ANY ($4::text[])
        OR r.parent IS NOT NULL AND EXISTS (
            SELECT FROM hocket.run above
            WHERE above.run_id = r.parent ->> 'run_id' AND above.finished_at IS NULL
        )
        OR EXISTS (
            SELECT FROM hocket.run child
            WHERE child.parent ->> 'run_id' = r.run_id
              AND NOT (child.accepted_at >= $1 AND child.accepted_at < $2)
        )
    )
    UNION
    SELECT r.run_id, r.parent FROM needed
    JOIN hocket.run r ON r.run_id = needed.parent ->> 'run_id'
    WHERE r.accepted_at >= $1 AND r.accepted_at < $2
)
SELECT run_id FROM needed LIMIT $5
"""
"""The runs of a span that have not expired, or are needed by runs that stay: those in flight,
repeated by a run in flight, below a run in flight, or above a run of another span or one that
stays."""
_NOTED = """
SELECT run_id FROM hocket.kind_change WHERE run_id IN (
    SELECT run_id FROM hocket.run WHERE accepted_at >= $1 AND accepted_at < $2
)
"""
_STEPS_OF_SPAN = "(SELECT * FROM hocket.step_{suffix} UNION ALL SELECT * FROM ONLY hocket.step)"
_RUNS = f"""
WITH RECURSIVE repeated(run_id, parent) AS (
    SELECT r.run_id, r.parent FROM hocket.run again
    JOIN hocket.run r ON r.run_id = again.facts #>> '{{{{origin,run_id}}}}'
    WHERE again.facts ? 'origin' AND again.finished_at IS NULL
    UNION
    SELECT r.run_id, r.parent FROM repeated JOIN hocket.run r ON r.run_id = repeated.parent ->> 'run_id'
), gone AS (
    DELETE FROM hocket.run r
    WHERE accepted_at >= $1 AND accepted_at < $2 AND finished_at < $3 AND run_id <> ALL ($4::text[])
      AND NOT EXISTS (SELECT FROM repeated WHERE repeated.run_id = r.run_id)
    RETURNING run_id, tenant, pipeline, version, labels, finished_at
), kept AS ({retention.KEEP_CHARGES.format(steps=_STEPS_OF_SPAN, runs="gone")}), late AS (
    INSERT INTO hocket.stale_day (tenant, day)
    SELECT DISTINCT gone.tenant, hocket.day_of(u.started_at)
    FROM gone
    JOIN hocket.usage u ON u.tenant = gone.tenant AND u.run_id = gone.run_id
    WHERE u.call_id LIKE 'http:%' AND u.started_at >= $1 AND u.started_at >= gone.finished_at
)
SELECT count(*) FROM gone
"""
"""Deletes the runs of a span, and keeps what their steps charged; their tables are dropped later. A run
that began to be repeated since the needed ones were looked for stays, with those above it. The days of
calls that were made after a run had ended are noted: as costs of a deleted run, they are of their own
day."""
_LEFT = "SELECT run_id FROM hocket.run WHERE accepted_at >= $1 AND accepted_at < $2"
_DAYS = """
INSERT INTO hocket.stale_day (tenant, day)
SELECT DISTINCT tenant, hocket.day_of(finished_at) FROM hocket.step_{suffix}
WHERE finished_at IS NOT NULL AND tenant IS NOT NULL
"""
_MOVE = (
    "INSERT INTO hocket.{kind} SELECT * FROM hocket.{kind}_{suffix} WHERE run_id = ANY ($1::text[])"
)


async def make_ahead(connection: asyncpg.Connection, keep_days: int) -> None:
    """Create the missing tables of today and of the coming days."""
    at = await postgres_time(connection)
    until = at + timedelta(days=AHEAD_DAYS)
    while at <= until:
        await connection.execute(_COVER, at, width_days(keep_days), timeout=TIMEOUT_S)
        at = await connection.fetchval(_ENDS, at, timeout=TIMEOUT_S)


async def drop_behind(connection: asyncpg.Connection, cutoff: datetime) -> int:
    """Drop the tables whose runs, except a few, ended before `cutoff` and are not needed; return the
    runs deleted.

    If a statement takes too long, this table and later ones are left to the next pass.
    """
    gone = 0
    for span in await connection.fetch(_OVER, cutoff, NEWEST_DAYS, timeout=TIMEOUT_S):
        began_ms = monotonic_ms()
        try:
            number = await _delete_runs(connection, span, cutoff)
            if number is not None:
                gone += number
                await _drop_tables(connection, span)
        except TimeoutError:
            after_s = round((monotonic_ms() - began_ms) / 1000, 1)
            log.warning(
                "retention_goes_run_by_run", table=f"step_{span['suffix']}", after_s=after_s
            )
            break
    return gone


async def _delete_runs(
    connection: asyncpg.Connection, span: asyncpg.Record, cutoff: datetime
) -> int | None:
    """Delete the runs of a span; return their number, or None if too many are needed longer."""
    bounds = (span["from_at"], span["to_at"])
    in_use = [row[0] for row in await connection.fetch(retention.REPEATED, timeout=TIMEOUT_S)]
    rows = await connection.fetch(
        _NEEDED, *bounds, cutoff, in_use, MAX_MOVED + 1, timeout=LONG_TIMEOUT_S
    )
    if len(rows) > MAX_MOVED:
        return None
    noted = await connection.fetch(_NOTED, *bounds, timeout=LONG_TIMEOUT_S)
    for first in range(0, len(noted), retention.MAX_RUNS):
        some = [row[0] for row in noted[first : first + retention.MAX_RUNS]]
        await retention.name_spending(connection, some)
    needed = [row[0] for row in rows]
    async with connection.transaction():
        await connection.execute("SET LOCAL hocket.retention = 'on'", timeout=TIMEOUT_S)
        number = await connection.fetchval(
            _RUNS.format(suffix=span["suffix"]), *bounds, cutoff, needed, timeout=LONG_TIMEOUT_S
        )
    return int(number)


async def _drop_tables(connection: asyncpg.Connection, span: asyncpg.Record) -> None:
    """Drop the tables of a span as soon as nobody is reading them,
    after moving the rows of remaining runs."""
    for _ in range(LOCK_TRIES):
        try:
            async with connection.transaction():
                await _moved(connection, span)
            return
        except asyncpg.LockNotAvailableError:
            await asyncio.sleep(LOCK_PAUSE_S)


async def _moved(connection: asyncpg.Connection, span: asyncpg.Record) -> None:
    suffix = span["suffix"]
    await connection.execute(_DAYS.format(suffix=suffix), timeout=LONG_TIMEOUT_S)
    await connection.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'", timeout=TIMEOUT_S)
    await connection.execute(
        f"LOCK TABLE hocket.step_{suffix}, hocket.attempt_{suffix} IN ACCESS EXCLUSIVE MODE",
        timeout=TIMEOUT_S,
    )
    await connection.execute(
        "DELETE FROM hocket.step_days WHERE suffix = $1", suffix, timeout=TIMEOUT_S
    )
    bounds = (span["from_at"], span["to_at"])
    left = await connection.fetch(_LEFT, *bounds, timeout=TIMEOUT_S)
    run_ids = [row[0] for row in left]
    for kind in ("step", "attempt"):
        statement = _MOVE.format(kind=kind, suffix=suffix)
        await connection.execute(statement, run_ids, timeout=TIMEOUT_S)
    await connection.execute(
        f"DROP TABLE hocket.step_{suffix}, hocket.attempt_{suffix}", timeout=TIMEOUT_S
    )
