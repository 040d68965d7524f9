"""The ledger's only statement: usage rows go in once per call, and never change afterwards."""

from collections.abc import Sequence

import asyncpg

from hocket.ledger.record import COLUMNS, Row

INSERT_TIMEOUT_S = 30.0

INSERT_USAGE = """
INSERT INTO hocket.usage ({names})
SELECT * FROM unnest({arrays})
ON CONFLICT (call_id) DO NOTHING
""".format(
    names=", ".join(column.name for column in COLUMNS),
    arrays=", ".join(f"${number}::{c.type}[]" for number, c in enumerate(COLUMNS, start=1)),
)
"""Adds the rows whose call is not in the ledger yet, in one transaction; a repeat changes nothing."""

ROW_FAULTS = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    ValueError,
    OverflowError,
)
"""Errors that a row causes, not the state of the world: writing the same row again cannot help."""
AWAY = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError)
"""Everything else that a write can raise: Postgres is away, starting, full, or locked."""


async def insert(pool: asyncpg.Pool, rows: Sequence[Row]) -> int:
    """Write rows in one transaction and return how many were new; raise ROW_FAULTS or AWAY."""
    status = await pool.execute(
        INSERT_USAGE, *map(list, zip(*rows, strict=True)), timeout=INSERT_TIMEOUT_S
    )
    return int(status.rsplit(" ", 1)[1])
