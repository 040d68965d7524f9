"""The ledger's statements: usage rows go in once per call, and never change afterwards; the row of an
opened call goes when its call is booked."""

from collections.abc import Sequence
from typing import Any

import asyncpg

from hocket.ledger.record import COLUMNS, OPENED_COLUMNS, Column, Record, Row

INSERT_TIMEOUT_S = 30.0


def _names(columns: Sequence[Column]) -> str:
    return ", ".join(column.name for column in columns)


def _arrays(columns: Sequence[Column]) -> str:
    return ", ".join(f"${number}::{c.type}[]" for number, c in enumerate(columns, start=1))


INSERT_USAGE = f"""
WITH booked AS (DELETE FROM hocket.open_call WHERE call_id = ANY ($1::text[]))
INSERT INTO hocket.usage ({_names(COLUMNS)})
SELECT * FROM unnest({_arrays(COLUMNS)})
ON CONFLICT (call_id) DO NOTHING
"""
"""Adds the rows whose call is not in the ledger yet; they are open no more. A repeat changes nothing."""

INSERT_OPENED = f"""
INSERT INTO hocket.open_call ({_names(OPENED_COLUMNS)})
SELECT * FROM unnest({_arrays(OPENED_COLUMNS)}) AS opened({_names(OPENED_COLUMNS)})
WHERE NOT EXISTS (SELECT FROM hocket.usage WHERE usage.call_id = opened.call_id)
ON CONFLICT (call_id) DO NOTHING
"""
"""Adds the calls that were opened and are not booked."""

ROW_FAULTS = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    ValueError,
    OverflowError,
)
"""Errors that a row causes, not the state of the world: writing the same row again cannot help."""
AWAY = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError)
"""Everything else that a write can raise: Postgres is away, starting, full, or locked."""


async def insert(pool: asyncpg.Pool, records: Sequence[Record]) -> int:
    """Write records in one transaction and return how many calls were newly booked; raise ROW_FAULTS or
    AWAY."""
    booked = [one.row for one in records if not one.opened]
    ended = {one.call_id for one in records if not one.opened}
    opened = [one.row for one in records if one.opened and one.call_id not in ended]
    if not opened:
        return await _booked(pool, booked)
    async with pool.acquire() as connection, connection.transaction():
        new = await _booked(connection, booked) if booked else 0
        await connection.execute(INSERT_OPENED, *_columns(opened), timeout=INSERT_TIMEOUT_S)
    return new


async def _booked(where: asyncpg.Pool | asyncpg.Connection, rows: Sequence[Row]) -> int:
    status = await where.execute(INSERT_USAGE, *_columns(rows), timeout=INSERT_TIMEOUT_S)
    return int(status.rsplit(" ", 1)[1])


def _columns(rows: Sequence[Row]) -> list[list[Any]]:
    return list(map(list, zip(*rows, strict=True)))
