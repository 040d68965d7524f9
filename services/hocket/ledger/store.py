"""The ledger's statements.

Usage rows are inserted once per call and never change; the row of an open call is deleted when the
call is booked. Of refused calls, only the latest refusal of each is kept; the janitor deletes old ones
(`upkeep/retention.py`).
"""

from collections.abc import Sequence
from typing import Any

import asyncpg

from hocket.ledger.kinds import late_runs
from hocket.ledger.prices import KnownPrices
from hocket.ledger.records.record import (
    BOOKED_COLUMNS,
    IDENTITY_NAMES,
    OPENED_COLUMNS,
    REFUSED_COLUMNS,
    WARM_COLUMNS,
    Column,
    Record,
    Row,
)
from hocket.ledger.upkeep import usage_partitions

INSERT_TIMEOUT_S = 30.0


def _names(columns: Sequence[Column]) -> str:
    return ", ".join(column.name for column in columns)


def _arrays(columns: Sequence[Column]) -> str:
    return ", ".join(f"${number}::{c.type}[]" for number, c in enumerate(columns, start=1))


PRICES_OF = (
    "{of}.input_usd_per_mtok, {of}.output_usd_per_mtok, {of}.cached_usd_per_mtok,"
    " {of}.cache_write_usd_per_mtok, {of}.request_usd"
)
AT = "greatest({of}.effective_from, {of}.in_force_at)"
PRICE = "tenant, model, backend, " + PRICES_OF.replace("{of}.", "")
_OF_RUN = """CASE
    WHEN call_id LIKE 'http:%' AND run_id IS NOT NULL THEN coalesce(
        (SELECT r.{name} FROM hocket.run r
         WHERE r.run_id = calls.run_id AND r.tenant = calls.tenant), {name})
    ELSE {name} END"""
LABELS = """CASE
    WHEN call_id LIKE 'http:%' AND run_id IS NOT NULL THEN coalesce(
        (SELECT coalesce(calls.labels, '{}') || r.labels FROM hocket.run r
         WHERE r.run_id = calls.run_id AND r.tenant = calls.tenant), labels)
    ELSE labels END"""
FROM_RUN = {
    "labels": LABELS,
    "pipeline": _OF_RUN.format(name="pipeline"),
    "version": _OF_RUN.format(name="version"),
}
"""A call over HTTP that names a run gets that run's pipeline, version and labels, whatever it names
itself: others' budgets are not its own. Only labels that the run does not have are added."""

IS_OF_OPENING = """{call}.call_id = {opening}.call_id AND {call}.tenant = {opening}.tenant
    AND {call}.started_at >= {opening}.started_at
    AND {call}.started_at <= {opening}.deadline_at + interval '1 minute'"""
"""Whether a call is the one that was opened: a later one under its id is another, and tells nothing of
what became of it. `report.lost_calls` has the same."""

_CALLS = f"SELECT * FROM unnest({_arrays(BOOKED_COLUMNS)}) AS calls({_names(BOOKED_COLUMNS)})"
INSERT_USAGE = f"""
WITH calls AS (
    {_CALLS}
), booked AS (
    DELETE FROM hocket.open_call o USING calls c
    WHERE {IS_OF_OPENING.format(call="c", opening="o")}
)
INSERT INTO hocket.usage ({_names(BOOKED_COLUMNS)})
SELECT {", ".join(FROM_RUN.get(column.name, column.name) for column in BOOKED_COLUMNS)} FROM calls
ON CONFLICT (call_id, started_at) DO NOTHING
"""
"""Inserts rows for calls not in the ledger yet, which are then no longer open.
A repeat changes nothing."""

INSERT_PRICES = f"""
WITH calls AS (
    {_CALLS}
)
INSERT INTO hocket.price ({PRICE}, effective_from, in_force_at)
SELECT * FROM (
    SELECT {PRICE}, min(started_at), max(started_at) FROM calls
    WHERE input_usd_per_mtok > 0 OR output_usd_per_mtok > 0 OR request_usd > 0
    GROUP BY {PRICE}
) AS used
WHERE NOT EXISTS (
    SELECT FROM hocket.price known
    WHERE known.tenant = used.tenant AND known.model = used.model
      AND known.backend = used.backend AND ({PRICES_OF.format(of="known")})
          IS NOT DISTINCT FROM ({PRICES_OF.format(of="used")})
)
ORDER BY tenant, model, backend
ON CONFLICT DO NOTHING
"""
"""Inserts prices at which no call was booked before, with the start of the first call and the last."""

PRICES_AGAIN = f"""
WITH calls AS (
    {_CALLS}
), used AS (
    SELECT DISTINCT ON (tenant, model, backend) {PRICE}, started_at AS last
    FROM calls ORDER BY tenant, model, backend, started_at DESC
), again AS (
    SELECT used.*
    FROM used
    JOIN hocket.price known
      ON known.tenant = used.tenant AND known.model = used.model AND known.backend = used.backend
     AND ({PRICES_OF.format(of="known")}) IS NOT DISTINCT FROM ({PRICES_OF.format(of="used")})
    WHERE EXISTS (
        SELECT FROM hocket.price other
        WHERE other.tenant = used.tenant AND other.model = used.model
          AND other.backend = used.backend
          AND ({PRICES_OF.format(of="other")}) IS DISTINCT FROM ({PRICES_OF.format(of="used")})
        HAVING max({AT.format(of="other")}) >= {AT.format(of="known")}
           AND max({AT.format(of="other")}) < used.last
    )
    ORDER BY used.tenant, used.model, used.backend
    FOR NO KEY UPDATE OF known
)
UPDATE hocket.price known SET in_force_at = greatest(known.in_force_at, again.last)
FROM again
WHERE known.tenant = again.tenant AND known.model = again.model AND known.backend = again.backend
  AND ({PRICES_OF.format(of="known")}) IS NOT DISTINCT FROM ({PRICES_OF.format(of="again")})
"""
"""Notes the prices in force that were known and superseded: of a model at a backend, that of the latest
call. Rows are locked in an order, so that ledgers which do this at once do not wait for each other in a
circle."""

NOTE_LATE = "INSERT INTO hocket.kind_change (run_id) SELECT unnest($1::text[])"
"""Inserts notes of runs whose calls are booked late (`kinds.py`)."""

STORED = f"""
SELECT u.call_id, {", ".join(f"u.{name}" for name in IDENTITY_NAMES)}
FROM unnest($1::text[], $2::timestamptz[]) AS call(call_id, started_at)
JOIN hocket.usage u ON u.call_id = call.call_id AND u.started_at = call.started_at
"""
"""Selects the requests stored under given call ids and start times."""

INSERT_OPENED = f"""
INSERT INTO hocket.open_call ({_names(OPENED_COLUMNS)})
SELECT * FROM unnest({_arrays(OPENED_COLUMNS)}) AS opened({_names(OPENED_COLUMNS)})
WHERE NOT EXISTS (
    SELECT FROM hocket.usage u
    WHERE {IS_OF_OPENING.format(call="u", opening="opened")}
)
ON CONFLICT (call_id) DO NOTHING
"""
"""Inserts calls that were opened and are not booked."""

INSERT_REFUSED = f"""
INSERT INTO hocket.refused_call ({_names(REFUSED_COLUMNS)})
SELECT DISTINCT ON (call_id) *
FROM unnest({_arrays(REFUSED_COLUMNS)}) AS refused({_names(REFUSED_COLUMNS)})
ORDER BY call_id, refused_at DESC
ON CONFLICT (call_id) DO UPDATE
    SET error_code = excluded.error_code, reason = excluded.reason, gateway = excluded.gateway,
        refused_at = excluded.refused_at
    WHERE refused_call.refused_at < excluded.refused_at AND refused_call.tenant = excluded.tenant
"""
"""Inserts calls for which no backend was asked. A call keeps its reason whatever another tenant's call
under the same id is refused for."""

SWEEP = f"""
DELETE FROM hocket.open_call o USING hocket.usage u
WHERE {IS_OF_OPENING.format(call="u", opening="o")}
"""
"""Deletes the rows of open calls that were booked before their opening was written."""

INSERT_WARM = f"""
INSERT INTO hocket.warm_time ({_names(WARM_COLUMNS)})
SELECT * FROM unnest({_arrays(WARM_COLUMNS)})
ON CONFLICT (record_id) DO NOTHING
"""
"""Inserts the time of replicas. A repeat changes nothing."""


async def insert(pool: asyncpg.Pool, records: Sequence[Record], prices: KnownPrices) -> int:
    """Write records in one transaction and return how many calls were newly booked.

    `prices` are those this ledger knows to be stored. Raises one of STATEMENT_ERRORS.
    """
    try:
        return await _insert(pool, records, prices)
    except asyncpg.CheckViolationError as error:
        if not usage_partitions.is_uncovered(error):
            raise
    await usage_partitions.cover(pool, (one.started_at for one in records if one.usage is not None))
    return await _insert(pool, records, prices)


async def _insert(pool: asyncpg.Pool, records: Sequence[Record], prices: KnownPrices) -> int:
    calls = [one for one in records if one.usage is not None]
    others = _others(records, calls)
    priced = prices.not_in_force(calls)
    late = late_runs(calls)
    if not (others or priced or late):
        return await _booked(pool, calls)
    async with pool.acquire() as connection, connection.transaction():
        if priced:
            columns = _columns([one.row for one in priced])
            for statement in (INSERT_PRICES, PRICES_AGAIN):
                await connection.execute(statement, *columns, timeout=INSERT_TIMEOUT_S)
        if late:
            await connection.execute(NOTE_LATE, late, timeout=INSERT_TIMEOUT_S)
        new = await _booked(connection, calls)
        for statement, rows in others:
            await connection.execute(statement, *_columns(rows), timeout=INSERT_TIMEOUT_S)
    prices.remember(priced)
    return new


def _others(records: Sequence[Record], calls: Sequence[Record]) -> list[tuple[str, list[Row]]]:
    """Return the statements for records other than booked calls, each with its rows, leaving out
    those without rows."""
    ended = {one.call_id for one in calls}
    found = (
        (INSERT_OPENED, [one.row for one in records if one.opened and one.call_id not in ended]),
        (INSERT_REFUSED, [one.row for one in records if one.refused]),
        (INSERT_WARM, [one.row for one in records if one.warm]),
    )
    return [(statement, rows) for statement, rows in found if rows]


async def sweep(pool: asyncpg.Pool) -> None:
    """Delete the open calls that are booked; raise one of STATEMENT_ERRORS."""
    await pool.execute(SWEEP, timeout=INSERT_TIMEOUT_S)


async def _booked(where: asyncpg.Pool | asyncpg.Connection, calls: Sequence[Record]) -> int:
    """Book calls; return how many were new.

    If the ledger already has a different request with the same call id and start time, the call is
    stored under an id of its own, so that each request made has a row.
    """
    if not calls:
        return 0
    new = await _inserted(where, calls)
    if new < len(calls):
        keys = {(one.call_id, one.started_at) for one in calls}
        ids, starts = zip(*keys, strict=True)
        stored = await where.fetch(STORED, ids, starts, timeout=INSERT_TIMEOUT_S)
        known = {(row["call_id"], row["started_at"]): tuple(row)[1:] for row in stored}
        others = {
            one.call_id: one
            for one in (
                call.under_own_id()
                for call in calls
                if known.get((call.call_id, call.started_at)) != call.identity
            )
        }
        if others:
            new += await _inserted(where, list(others.values()))
    return new


async def _inserted(where: asyncpg.Pool | asyncpg.Connection, calls: Sequence[Record]) -> int:
    columns = _columns([one.row for one in calls])
    status = await where.execute(INSERT_USAGE, *columns, timeout=INSERT_TIMEOUT_S)
    return int(status.rsplit(" ", 1)[1])


def _columns(rows: Sequence[Row]) -> list[list[Any]]:
    return list(map(list, zip(*rows, strict=True)))
