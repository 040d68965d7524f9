"""The locks of a revision: taken in the order of writers, for a short time, or not at all.

While a migration waits for a lock of a table, everybody who asks for that table after it waits, too. So
it gives up soon and tries again after a pause. It gives up before Postgres looks for deadlocks
(`deadlock_timeout`, 1 s by default), so that a deadlock never ends a writer's transaction.

A revision names in `locks` the modes in which it locks the tables that are written all the time. They
are taken before its SQL runs, in the order in which a coordinator's commit locks them. One that does not
say gets all of them in the strongest mode.
"""

import time
from collections.abc import Mapping
from math import ceil
from typing import Any

import asyncpg

BUSY_TABLES = ("partition", "run", "step", "attempt")
"""In the order in which a coordinator's commit locks them."""
MODES = ("SHARE", "SHARE ROW EXCLUSIVE", "EXCLUSIVE", "ACCESS EXCLUSIVE")
"""The modes that stop writers, each stronger than those before it; only the last one stops readers."""
EVERYTHING: Mapping[str, str] = dict.fromkeys(BUSY_TABLES, MODES[-1])
"""What a revision gets that does not name its locks."""
MET_A_LOCK = frozenset({"40P01", "55P03"})
"""SQLSTATEs of a deadlock, and of a lock that was not available in time."""
_TIMED_OUT = "57014"


def locks_of(module: Any) -> Mapping[str, str]:
    """Return the locks that the module of a revision names, all of them if it names none. Raises
    ValueError if it names a table or a mode that there is not."""
    locks: Mapping[str, str] = getattr(module, "locks", EVERYTHING)
    for table, mode in locks.items():
        if table not in BUSY_TABLES or mode not in MODES:
            raise ValueError(f"a revision locks `{table}` in mode `{mode}`, which there is not")
    return locks


def lock_tables(connection: Any, locks: Mapping[str, str], timeout_ms: int) -> None:
    """Lock tables that exist, all within `timeout_ms`, in the transaction of a connection of SQLAlchemy.
    Raises LockNotAvailableError, or the error of SQLAlchemy."""
    from sqlalchemy.exc import DBAPIError

    deadline = time.monotonic() + timeout_ms / 1000
    table = ""
    try:
        for table in (name for name in BUSY_TABLES if name in locks):
            _lock_table(connection, table, locks[table], deadline)
    except DBAPIError as error:  # on a busy machine each of its statements may be the late one
        if sqlstate_of(error) != _TIMED_OUT or time.monotonic() < deadline:
            raise
        reason = f"canceling statement due to lock timeout on hocket.{table}"
        raise asyncpg.LockNotAvailableError(reason) from error


def _lock_table(connection: Any, table: str, mode: str, deadline: float) -> None:
    from sqlalchemy import text

    if connection.execute(text(f"SELECT to_regclass('hocket.{table}')")).scalar() is None:
        return
    left_ms = max(1, ceil((deadline - time.monotonic()) * 1000))
    # a time limit for the statement: `lock_timeout` is one for each of a table's children
    connection.execute(text(f"SET LOCAL statement_timeout = {left_ms}"))
    connection.execute(text(f"LOCK TABLE hocket.{table} IN {mode} MODE"))
    connection.execute(text("SET LOCAL statement_timeout = 0"))


def sqlstate_of(error: BaseException) -> str | None:
    """Return the SQLSTATE of an error of asyncpg or SQLAlchemy, None if it has none."""
    cause = getattr(error, "orig", None) or error
    found: str | None = getattr(cause, "sqlstate", None)
    return found


def met_a_lock(error: BaseException) -> bool:
    """Tell whether a revision failed because somebody else held a lock."""
    return sqlstate_of(error) in MET_A_LOCK
