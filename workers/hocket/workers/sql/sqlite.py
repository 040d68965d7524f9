"""SQLite connections that can only read: the file opened `mode=ro`, `query_only`, an authorizer.

SQLite itself calls the authorizer, after its own parsing, so it works even if the guard misread the
text: no ATTACH, no PRAGMA, no catalog that is not named, no function that reaches outside.

SQLite checks the clock between two steps of its virtual machine, never within one. So no single step may
take long: values and patterns are bounded, and functions that take the product of two lengths are
replaced by ours. Sorts and temporary results stay in memory, where MAX_HEAP_BYTES limits them.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Final

from hocket.workers.sql import sqlite_text as linear
from hocket.workers.sql.guard import functions

PROGRESS_STEPS: Final = 1_000
"""Virtual machine steps between two checks of the clock: under a millisecond for small values."""
MAX_LIKE_PATTERN_BYTES: Final = 250
"""The limit on patterns: for LIKE and GLOB, SQLite takes the bytes of the text times those of the
pattern in steps."""
MAX_HEAP_BYTES: Final = 256 * 1024 * 1024
"""The memory that SQLite may use for all queries of a process (its own, process-wide limit)."""
BUSY_TIMEOUT_S: Final = 5.0
_TABLE_FUNCTIONS: Final = ("json_each", "json_tree", "jsonb_each", "jsonb_tree")

_READS: Final = frozenset(
    {
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_FUNCTION,
        sqlite3.SQLITE_RECURSIVE,
        sqlite3.SQLITE_TRANSACTION,
    }
)


def connect(file: Path) -> sqlite3.Connection:
    """Open the file for reading."""
    connection = sqlite3.connect(
        f"{file.resolve().as_uri()}?mode=ro",
        uri=True,
        check_same_thread=False,
        timeout=BUSY_TIMEOUT_S,
    )
    connection.execute("PRAGMA query_only = ON")
    connection.execute(f"PRAGMA hard_heap_limit = {MAX_HEAP_BYTES}")
    for function in _TABLE_FUNCTIONS:  # once: SQLite creates their tables, which is not reading
        with suppress(sqlite3.OperationalError):
            connection.execute(f"SELECT 1 FROM {function}('[]')")
    connection.execute("PRAGMA temp_store = MEMORY")  # otherwise sorting can fill the disk
    for called, (arguments, ours) in linear.FUNCTIONS.items():
        connection.create_function(called, arguments, ours, deterministic=True)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, linear.MAX_VALUE_BYTES)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, MAX_LIKE_PATTERN_BYTES)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    return connection


@contextmanager
def only_reading(connection: sqlite3.Connection, tables: Sequence[str]) -> Iterator[None]:
    """Let statements read tables, and catalogs that `tables` names, and do nothing else."""
    named = {text.lower().partition(".")[2].strip('"') for text in tables}

    def authorize(
        action: int, first: str | None, second: str | None, _schema: str | None, _view: str | None
    ) -> int:
        allowed = action in _READS
        if action == sqlite3.SQLITE_READ:
            table = (first or "").lower()
            allowed = not table.startswith(("sqlite_", "pragma_")) or table in named
        elif action == sqlite3.SQLITE_FUNCTION:
            allowed = not functions.is_denied("sqlite", second or "")
        return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY

    connection.set_authorizer(authorize)
    try:
        yield
    finally:
        connection.set_authorizer(None)


class RunningQueries:
    """Counts the queries of this process, which share SQLite's memory."""

    def __init__(self) -> None:
        self._count = 0
        self._lock = Lock()

    @contextmanager
    def one_more(self) -> Iterator[None]:
        """Count a query while it runs."""
        with self._lock:
            self._count += 1
        try:
            yield
        finally:
            with self._lock:
                self._count -= 1

    @property
    def are_several(self) -> bool:
        """Whether a query that ran out of memory may have done so because of another one."""
        return self._count > 1


running = RunningQueries()


def stop_when(connection: sqlite3.Connection, is_over: Callable[[], bool]) -> None:
    """Interrupt this connection's statements once `is_over()` is true."""
    connection.set_progress_handler(lambda: int(is_over()), PROGRESS_STEPS)
