"""What is deleted when, and the statements that do it, each limited in rows and time.

- Ended runs with their steps and attempts, `runs` days after their end, mostly by whole days
  (`step_days.py`); rejected runs after `rejected` days. A run is deleted after its sub-runs, a sub-run
  not before its parent has ended, and no run while a run in flight repeats it. The ledger's rows of a
  run stay; their kinds in reports (retry, speculation) follow from steps and attempts, so the kinds
  are written into the rows before those are deleted. What steps charged that call no model moves to
  `hocket.kept_charge` as they are deleted.
- The ledger, `usage` days after the call, but nothing of the current month: model calls (by whole
  partitions: `usage_partitions.py`), such charges, the time of warm replicas, lost calls.
- Kept prompts and answers, `content` days after the call, by whole days (`day_partitions.py`).
- Duration estimates of pipelines that were not used for `durations` days.
- Blobs in Postgres that were neither stored nor read for `blobs` days. Blobs in files are removed by
  the workers that have them, by the same rule (`kit/blobs.py`).
- Calls that no backend was asked for; keys that were revoked or have expired; ended bulk operations.

A period of 0 days means forever. Data not listed here has bounds of its own:
docs/reference/limits.md.
"""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from datetime import datetime

import asyncpg

from hocket.kit.postgres.lookups import HAS_CHARGE

STATEMENT_TIMEOUT_S = 5.0
"""The time limit of a statement; one that takes longer is aborted and tried again in the next pass."""
LONG_STATEMENT_TIMEOUT_S = 60.0
"""The time limit for naming the spending of a single run with too many calls for the usual limit."""
MAX_RUNS = 200
"""The most runs deleted together."""
MAX_ROWS = 2_000
"""The most rows of one statement."""

Pause = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Periods:
    """How many days each kind of data is kept; 0 means forever. The last ones have no setting."""

    runs: int
    rejected: int
    usage: int
    durations: int
    blobs: int
    content: int = 0
    refused: int = 7
    keys: int = 400
    operations: int = 90


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of data deleted by one statement: `$1` is the latest time to delete, `$2` the maximum
    number of rows."""

    name: str
    period: str
    statement: str


_OLDEST = """
DELETE FROM {table} WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM {table} WHERE {column} < $1 LIMIT $2
))
"""

_ENDED_KEYS = """
DELETE FROM hocket.api_key WHERE key_id = ANY (ARRAY(
    SELECT key_id FROM hocket.api_key
    WHERE least(revoked_at, expires_at) < $1 AND subject IS NULL AND created_by <> 'HOCKET_ADMIN_KEY'
    LIMIT $2
))
"""
"""Rows of people stay, because a person who was revoked could otherwise sign in again; and so does the
key that HOCKET_ADMIN_KEY names, which the REST service would otherwise make again."""

KINDS = (
    Kind("warm_time", "usage", _OLDEST.format(table="hocket.warm_time", column="to_at")),
    Kind("lost_calls", "usage", _OLDEST.format(table="hocket.open_call", column="deadline_at")),
    Kind(
        "refused_calls",
        "refused",
        _OLDEST.format(table="hocket.refused_call", column="refused_at"),
    ),
    Kind("keys", "keys", _ENDED_KEYS),
    Kind(
        "operations",
        "operations",
        _OLDEST.format(table="hocket.bulk_operation", column="finished_at"),
    ),
    Kind("charges", "usage", _OLDEST.format(table="hocket.kept_charge", column="finished_at")),
    Kind("blobs", "blobs", _OLDEST.format(table="hocket.tenant_blob", column="created_at")),
    Kind("old_blobs", "blobs", _OLDEST.format(table="hocket.blob", column="created_at")),
    Kind(
        "durations",
        "durations",
        """
        WITH gone AS (
            DELETE FROM hocket.duration WHERE ctid = ANY (ARRAY(
                SELECT ctid FROM hocket.duration WHERE updated_at < $1 LIMIT $2
            ))
            RETURNING tenant, pipeline, path
        )
        DELETE FROM hocket.outlook o USING gone
        WHERE (o.tenant, o.pipeline, o.path) = (gone.tenant, gone.pipeline, gone.path)
        """,
    ),
)
PARTITIONS = "SELECT partition FROM hocket.partition ORDER BY partition"
REPEATED = """
SELECT DISTINCT facts #>> '{origin,run_id}' FROM hocket.run
WHERE finished_at IS NULL AND facts #>> '{origin,run_id}' IS NOT NULL
"""
"""The runs that are repeated by runs in flight."""
ENDED = """
SELECT r.run_id FROM hocket.run r
WHERE r.partition = $1 AND r.finished_at < $2 AND (r.status = 'rejected' OR NOT $3)
  AND r.run_id <> ALL ($4::text[])
  AND NOT EXISTS (SELECT FROM hocket.run child WHERE child.parent ->> 'run_id' = r.run_id)
  AND NOT EXISTS (
      SELECT FROM hocket.run above
      WHERE above.run_id = r.parent ->> 'run_id' AND above.finished_at IS NULL
  )
ORDER BY r.finished_at LIMIT $5
"""
"""Expired runs that nobody needs, of one partition; only rejected ones if `$3`."""
NOT_REPEATED = """
SELECT ended.run_id FROM unnest($1::text[]) AS ended (run_id)
WHERE NOT EXISTS (
    SELECT FROM hocket.run r
    WHERE r.facts ? 'origin' AND r.facts #>> '{origin,run_id}' = ended.run_id AND r.finished_at IS NULL
)
"""
"""Of these runs, those that no run in flight repeats: a pass takes long, and repeats begin meanwhile."""
NAME_SPENDING = """
UPDATE hocket.usage u SET kind = v.kind
FROM report.usage v
WHERE v.run_id = ANY ($1::text[]) AND u.call_id = v.call_id AND u.started_at = v.started_at
  AND u.kind <> v.kind
"""
"""Writes the kinds that reports give a run's calls, while its steps can still tell."""
MAY_DELETE = "SET hocket.deletes = 'on'"
"""Allows a session to delete steps and attempts from the daily tables (migration 0051)."""
MAY_NOT_DELETE = "RESET hocket.deletes"
_STILL_ENDED = """(ARRAY(
    SELECT r.run_id FROM hocket.run r
    WHERE r.run_id = ANY ($1::text[]) AND r.finished_at IS NOT NULL
))"""
"""Of these runs, those that have still ended: a rejected one begins anew if its task comes again."""
KEEP_CHARGES = f"""
INSERT INTO hocket.kept_charge
    (run_id, key, tenant, pipeline, version, node, labels, cost_usd, took_ms, finished_at)
SELECT s.run_id, s.key || CASE
           WHEN EXISTS (SELECT FROM hocket.kept_charge k WHERE k.run_id = s.run_id AND k.key = s.key)
           THEN '#' || extract(epoch FROM coalesce(s.finished_at, r.finished_at)) ELSE '' END,
       r.tenant, r.pipeline, r.version, s.path, r.labels,
       (s.facts ->> 'charged_usd')::numeric, s.took_ms, coalesce(s.finished_at, r.finished_at)
FROM {{steps}} s
JOIN {{runs}} r USING (run_id)
WHERE {HAS_CHARGE}
ON CONFLICT DO NOTHING
"""
"""Keeps what steps charged, for reports and budgets, in the statement that deletes them. A deleted run
whose key is used again becomes another run with the same id and steps, whose charges are others."""
STEPS = f"""
WITH old AS MATERIALIZED (
    SELECT run_id, key, path, role, type, facts, took_ms, finished_at
    FROM hocket.step WHERE run_id = ANY {_STILL_ENDED} LIMIT $2
), kept AS ({KEEP_CHARGES.format(steps="old", runs="hocket.run")})
DELETE FROM hocket.step s USING old
WHERE s.run_id = ANY ($1::text[]) AND s.run_id = old.run_id AND s.key = old.key
"""
ATTEMPTS = f"""
DELETE FROM hocket.attempt a USING (
    SELECT run_id, key, attempt, outcome FROM hocket.attempt
    WHERE run_id = ANY {_STILL_ENDED} LIMIT $2
) old
WHERE a.run_id = ANY ($1::text[]) AND a.run_id = old.run_id AND a.key = old.key
  AND a.attempt = old.attempt AND a.outcome = old.outcome
"""
RUNS = """
DELETE FROM hocket.run
WHERE run_id = ANY ($1::text[]) AND finished_at < $2 AND (status = 'rejected' OR NOT $3)
"""
"""Deletes the runs themselves; a rejected run whose key was submitted again has become another run."""
NOTE = """
INSERT INTO hocket.retention (kind, days, deleted, last_pass_at)
SELECT * FROM unnest($1::text[], $2::integer[], $3::bigint[]), now()
ON CONFLICT (kind) DO UPDATE
SET days = excluded.days, deleted = retention.deleted + excluded.deleted,
    last_pass_at = excluded.last_pass_at
"""
NOTE_FAILED = """
INSERT INTO hocket.retention (kind, days, deleted, last_pass_at)
SELECT *, 0, to_timestamp(0) FROM unnest($1::text[], $2::integer[])
ON CONFLICT (kind) DO UPDATE SET days = excluded.days
"""
FORGET = "DELETE FROM hocket.retention WHERE kind <> ALL ($1::text[])"


async def deleted_runs(
    connection: asyncpg.Connection, cutoff: datetime, *, rejected: bool, pause: Pause
) -> int:
    """Delete the runs that ended before `cutoff` (only rejected ones if `rejected`); return the
    number.

    `pause` is awaited between statements.
    """
    in_use = [row[0] for row in await _rows(connection, REPEATED)]
    gone = 0
    for partition in [row[0] for row in await _rows(connection, PARTITIONS)]:
        while True:
            found = await _rows(connection, ENDED, partition, cutoff, rejected, in_use, MAX_RUNS)
            ids = [row[0] for row in found]
            number = await delete_ended(connection, ids, cutoff, rejected=rejected, pause=pause)
            gone += number
            if not number:  # none, or all were changed meanwhile: try again in the next pass
                break
    return gone


async def delete_ended(
    connection: asyncpg.Connection,
    ids: list[str],
    cutoff: datetime,
    *,
    rejected: bool,
    pause: Pause,
) -> int:
    """Delete runs with their steps and attempts, except those that are repeated by now; return the
    number of runs deleted."""
    if ids:
        ids = [row[0] for row in await _rows(connection, NOT_REPEATED, ids)]
    if not ids:
        return 0
    await name_spending(connection, ids)
    for statement in (STEPS, ATTEMPTS):
        await delete_rows(connection, statement, ids, pause=pause)
    number = await _done(connection, RUNS, ids, cutoff, rejected)
    await pause()
    return number


async def name_spending(connection: asyncpg.Connection, ids: list[str]) -> None:
    """Write the kinds of runs' calls; a run with very many calls is handled alone, with more time."""
    try:
        alone = len(ids) == 1
        timeout_s = LONG_STATEMENT_TIMEOUT_S if alone else STATEMENT_TIMEOUT_S
        await connection.execute(NAME_SPENDING, ids, timeout=timeout_s)
    except TimeoutError:
        if alone:
            raise
        middle = len(ids) // 2
        await name_spending(connection, ids[:middle])
        await name_spending(connection, ids[middle:])


async def deleted(
    connection: asyncpg.Connection, kind: Kind, cutoff: datetime, *, pause: Pause
) -> int:
    """Delete rows older than `cutoff`; return the number of rows."""
    return await delete_rows(connection, kind.statement, cutoff, pause=pause)


async def delete_rows(
    connection: asyncpg.Connection,
    statement: str,
    *values: object,
    pause: Pause,
    timeout_s: float = STATEMENT_TIMEOUT_S,
) -> int:
    """Delete MAX_ROWS rows at a time (the last parameter of `statement`) until fewer are found;
    return their number.

    `pause` is awaited between statements.
    """
    gone = 0
    while True:
        number = await _done(connection, statement, *values, MAX_ROWS, timeout_s=timeout_s)
        gone += number
        if number < MAX_ROWS:
            return gone
        await pause()


async def note(
    connection: asyncpg.Connection,
    passed: dict[str, tuple[int, int]],
    failed: Collection[str] = (),
) -> None:
    """Store how many rows of each kind a pass deleted, and the period applied: (days, rows). Those that
    `failed` keep the time of their last pass (1970 if there was none), and what has no period any more
    goes."""
    done = {name: one for name, one in passed.items() if name not in failed}
    left = {name: days for name, (days, _) in passed.items() if name in failed}
    days, rows = [one[0] for one in done.values()], [one[1] for one in done.values()]
    await _done(connection, NOTE, list(done), days, rows)
    await _done(connection, NOTE_FAILED, list(left), list(left.values()))
    await _done(connection, FORGET, list(passed))


async def _rows(
    connection: asyncpg.Connection, statement: str, *values: object
) -> list[asyncpg.Record]:
    rows: list[asyncpg.Record] = await connection.fetch(
        statement, *values, timeout=STATEMENT_TIMEOUT_S
    )
    return rows


async def _done(
    connection: asyncpg.Connection,
    statement: str,
    *values: object,
    timeout_s: float = STATEMENT_TIMEOUT_S,
) -> int:
    status = await connection.execute(statement, *values, timeout=timeout_s)
    return int(status.rsplit(" ", 1)[1])
