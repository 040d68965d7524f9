"""Marks calls in the ledger as retry or speculation once that is known.

That is known only after a call was booked, or before it is booked late: when its attempt fails, or
its branch loses a race. The database notes such runs (`hocket.kind_change`, by triggers), and the
ledger notes those whose calls it books late. Reports derive the kinds for noted runs themselves.
SETTLED_S later, when every booking that could have missed the change is complete, the kinds are
written and the notes deleted.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

import asyncpg
import structlog

from hocket.ledger.records.record import COLUMNS, Record

SETTLED_S = 120.0
"""How old a note must be before it is processed; longer than any booking may take."""
LATE_S = 60.0
"""A call that began this long before its booking may belong
to an attempt whose note is already gone."""
MAX_RUNS = 100
"""The most runs in one transaction."""
PORTION = 10
"""Runs that took too long together are tried again with so many times fewer."""
TIMEOUT_S = 30.0
ALONE_TIMEOUT_S = 300.0
"""The time limit for the calls of a single run."""
PUT_OFF_S = 3_600.0
LOCK = 0x686F636B6B6E64
"""The advisory lock held by the ledger that writes kinds."""

_TAKE = f"SELECT pg_try_advisory_xact_lock({LOCK})"
_DUE = """
SELECT DISTINCT run_id FROM (
    SELECT run_id FROM hocket.kind_change WHERE noted_at < now() - $1 * interval '1 second'
    ORDER BY noted_at LIMIT $2
) due
"""
_TOLD = """
WITH RECURSIVE below(run_id) AS (
    SELECT unnest($1::text[])
    UNION
    SELECT child.run_id FROM below CROSS JOIN LATERAL (
        SELECT r.run_id FROM hocket.run r
        WHERE r.parent ->> 'run_id' = below.run_id AND r.parent IS NOT NULL OFFSET 0) child
), told AS MATERIALIZED (
    SELECT u.call_id, u.started_at, u.kind AS stored,
           hocket.kind_in_run(
               u.tenant, u.run_id, u.step, u.attempt, u.kind, u.call_id, u.started_at) AS kind
    FROM below CROSS JOIN LATERAL (
        SELECT * FROM hocket.usage one WHERE one.run_id = below.run_id OFFSET 0) u
)
SELECT call_id, started_at, kind FROM told WHERE kind <> stored
"""
"""The calls of runs, and of those below them, whose kind has to be written. Rows are read run by run, as
in `kit/postgres/lookups.py`: Postgres would read the whole ledger instead."""
_WRITE = """
UPDATE hocket.usage u SET kind = told.kind
FROM unnest($1::text[], $2::timestamptz[], $3::text[]) AS told(call_id, started_at, kind)
WHERE u.call_id = told.call_id AND u.started_at = told.started_at
"""
_FORGET = """
DELETE FROM hocket.kind_change
WHERE run_id = ANY ($1::text[]) AND noted_at < now() - $2 * interval '1 second'
"""

_PUT_OFF = """
UPDATE hocket.kind_change SET noted_at = now() + $2 * interval '1 second'
WHERE run_id = (
    SELECT run_id FROM hocket.kind_change WHERE noted_at < now() - $1 * interval '1 second'
    ORDER BY noted_at LIMIT 1
)
RETURNING run_id
"""

_RUN, _STARTED = (
    [column.name for column in COLUMNS].index(name) for name in ("run_id", "started_at")
)

log = structlog.get_logger(__name__)


def late_runs(calls: Iterable[Record]) -> Sequence[str]:
    """Return the runs of calls that reach the ledger late."""
    since = datetime.now(UTC) - timedelta(seconds=LATE_S)
    return list({one.row[_RUN] for one in calls if one.row[_STARTED] < since} - {None})


async def settle(pool: asyncpg.Pool, *, settled_s: float = SETTLED_S) -> int:
    """Write the kinds of all calls of runs whose notes are at least `settled_s` old; return how
    many rows changed.

    Runs that take too long together are settled in smaller portions, and one that takes too long
    alone is put off, so that it keeps no other. Raises one of STATEMENT_ERRORS.
    """
    changed, most = 0, MAX_RUNS
    while True:
        try:
            rows = await _settle_some(pool, settled_s, most)
        except TimeoutError:
            if most == 1:
                await _put_off(pool, settled_s)
                return changed
            most = max(most // PORTION, 1)
            continue
        if rows is None:
            return changed
        changed += rows


async def _settle_some(pool: asyncpg.Pool, settled_s: float, most: int) -> int | None:
    """Settle runs with up to `most` notes; return how many rows changed, None if nothing is due."""
    async with pool.acquire() as connection, connection.transaction():
        if not await connection.fetchval(_TAKE, timeout=TIMEOUT_S):
            return None
        found = await connection.fetch(_DUE, settled_s, most, timeout=TIMEOUT_S)
        runs = [row["run_id"] for row in found]
        if not runs:
            return None
        changed = await _write(connection, runs, TIMEOUT_S if most > 1 else ALONE_TIMEOUT_S)
        await connection.execute(_FORGET, runs, settled_s, timeout=TIMEOUT_S)
    return changed


async def _write(connection: asyncpg.Connection, runs: Sequence[str], timeout_s: float) -> int:
    told = await connection.fetch(_TOLD, runs, timeout=timeout_s)
    if told:
        columns = ([row[place] for row in told] for place in range(3))
        await connection.execute(_WRITE, *columns, timeout=timeout_s)
    return len(told)


async def _put_off(pool: asyncpg.Pool, settled_s: float) -> None:
    """Let the run that is due first wait for PUT_OFF_S; reports derive its calls' kinds meanwhile."""
    run_ids = await pool.fetch(_PUT_OFF, settled_s, PUT_OFF_S, timeout=TIMEOUT_S)
    for run_id in {row["run_id"] for row in run_ids}:
        log.warning("kinds_put_off", run_id=run_id, reason=f"it took over {ALONE_TIMEOUT_S:g} s")
