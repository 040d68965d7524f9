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

from hocket.ledger.records.record import COLUMNS, Record

SETTLED_S = 120.0
"""How old a note must be before it is processed; longer than any booking may take."""
LATE_S = 60.0
"""A call that began this long before its booking may belong
to an attempt whose note is already gone."""
MAX_RUNS = 100
"""The most runs in one transaction."""
TIMEOUT_S = 30.0
LOCK = 0x686F636B6B6E64
"""The advisory lock held by the ledger that writes kinds."""

_TAKE = f"SELECT pg_try_advisory_xact_lock({LOCK})"
_DUE = """
SELECT DISTINCT run_id FROM (
    SELECT run_id FROM hocket.kind_change WHERE noted_at < now() - $1 * interval '1 second'
    ORDER BY noted_at LIMIT $2
) due
"""
_WRITE = """
WITH RECURSIVE below(run_id) AS (
    SELECT unnest($1::text[])
    UNION
    SELECT r.run_id FROM below JOIN hocket.run r ON r.parent ->> 'run_id' = below.run_id
    WHERE r.parent IS NOT NULL
), told AS MATERIALIZED (
    SELECT u.call_id, u.started_at, u.kind AS stored,
           hocket.kind_of(u.tenant, u.run_id, u.step, u.attempt, u.kind) AS kind
    FROM below JOIN hocket.usage u ON u.run_id = below.run_id
)
UPDATE hocket.usage u SET kind = told.kind
FROM told
WHERE u.call_id = told.call_id AND u.started_at = told.started_at AND told.kind <> told.stored
"""
_FORGET = """
DELETE FROM hocket.kind_change
WHERE run_id = ANY ($1::text[]) AND noted_at < now() - $2 * interval '1 second'
"""

_RUN, _STARTED = (
    [column.name for column in COLUMNS].index(name) for name in ("run_id", "started_at")
)


def late_runs(calls: Iterable[Record]) -> Sequence[str]:
    """Return the runs of calls that reach the ledger late."""
    since = datetime.now(UTC) - timedelta(seconds=LATE_S)
    return list({one.row[_RUN] for one in calls if one.row[_STARTED] < since} - {None})


async def settle(pool: asyncpg.Pool, *, settled_s: float = SETTLED_S) -> int:
    """Write the kinds of all calls of runs whose notes are at least `settled_s` old; return how
    many rows changed.

    Raises one of STATEMENT_ERRORS.
    """
    changed = 0
    while True:
        async with pool.acquire() as connection, connection.transaction():
            if not await connection.fetchval(_TAKE, timeout=TIMEOUT_S):
                return changed
            found = await connection.fetch(_DUE, settled_s, MAX_RUNS, timeout=TIMEOUT_S)
            runs = [row["run_id"] for row in found]
            if not runs:
                return changed
            status = await connection.execute(_WRITE, runs, timeout=TIMEOUT_S)
            changed += int(status.rsplit(" ", 1)[1])
            await connection.execute(_FORGET, runs, settled_s, timeout=TIMEOUT_S)
