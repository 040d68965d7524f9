"""Keeps the locks and settings of a session out of the pool.

Our pools do not reset a session when it comes back (`database.py`), so whoever takes a lock or changes a
setting beyond a transaction gives it up again. If the statement for that fails, for example because
the server hangs, the connection is closed: its session ends, and the lock and the setting with it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg


@asynccontextmanager
async def closed_on_failure(connection: Any) -> AsyncIterator[None]:
    """Close the connection if the block fails or is cancelled."""
    try:
        yield
    except BaseException:
        with suppress(asyncpg.InterfaceError):
            connection.terminate()  # an orderly close could hang
        raise


@asynccontextmanager
async def given_up(connection: Any, *statements: str, timeout_s: float) -> AsyncIterator[None]:
    """Run the statements after the block, which give up what it takes of the session; close the
    connection if one of them fails. Take it inside the block: a statement that timed out may still take
    effect. Of a session that has ended there is nothing to give up: the block's own error is raised."""
    try:
        yield
    finally:
        with suppress(asyncpg.InterfaceError):  # it is closed, or the pool has it back
            async with closed_on_failure(connection):
                for statement in statements:
                    await connection.execute(statement, timeout=timeout_s)
