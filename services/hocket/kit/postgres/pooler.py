"""Detects a pooler between a process and Postgres, such as pgbouncer, and whether it shares sessions.

Hocket needs sessions of its own (`pool_mode = session`): ledgers hold session locks over several
statements, and a pooler that gives a session to others between transactions loses these silently.
"""

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Any

import asyncpg

from hocket.schemas.errors import HocketError

ROUNDS = 3
TIMEOUT_S = 5.0
_LOST_STATEMENT = (
    asyncpg.InvalidSQLStatementNameError,
    asyncpg.DuplicatePreparedStatementError,
)
"""Raised by a statement that was prepared in a session which another client has now."""


class SessionsShared(HocketError):
    """A pooler in front of Postgres hands our sessions to others between transactions, which loses
    locks. Set `pool_mode = session` for this database: docs/how-to/postgres.md#pgbouncer."""

    code = "sessions_shared"


class Pooling(StrEnum):
    """What is between a process and Postgres."""

    NONE = "none"
    SESSION = "session"
    SHARED = "shared"


async def is_pooled(connection: Any) -> bool:
    """Tell whether a connection of asyncpg ends at a pooler: the process id of its backend then differs
    from the one that was reported when the connection was opened."""
    try:
        return bool(await _backend(connection) != connection.get_server_pid())
    except _LOST_STATEMENT:
        return True


async def check_sessions(connection: Any, connect: Callable[[], Awaitable[Any]]) -> None:
    """Raise SessionsShared if a connection does not have its session to itself. If there is a pooler,
    `connect` is called to open further connections. Raises what connecting and statements raise."""
    if await is_pooled(connection) and await pooling_of(connect) is Pooling.SHARED:
        raise SessionsShared


async def pooling_of(connect: Callable[[], Awaitable[Any]]) -> Pooling:
    """Return what is between this process and Postgres, tested with two connections from `connect`,
    which are closed again. Raises what connecting and statements raise."""
    first = await connect()
    try:
        if not await is_pooled(first):
            return Pooling.NONE
        return Pooling.SHARED if await _shares(first, connect) else Pooling.SESSION
    finally:
        first.terminate()


async def _shares(first: Any, connect: Callable[[], Awaitable[Any]]) -> bool:
    """Tell whether two connections take turns with one session of Postgres, or one has several."""
    try:
        second = await connect()
    except TimeoutError:  # every session belongs to some connection: they are not shared
        return False
    try:
        seen: set[tuple[int, int]] = set()
        for _ in range(ROUNDS):
            seen.add((await _backend(first), await _backend(second)))
    except _LOST_STATEMENT:
        return True
    except TimeoutError:
        return False
    finally:
        second.terminate()
    return len(seen) > 1 or any(one == other for one, other in seen)


async def _backend(connection: Any) -> int:
    pid: int = await connection.fetchval("SELECT pg_catalog.pg_backend_pid()", timeout=TIMEOUT_S)
    return pid
