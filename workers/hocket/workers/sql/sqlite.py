"""SQLite connections that can only read: the file opened `mode=ro`, `query_only`, an authorizer.

SQLite itself calls the authorizer, after its own parsing, so it works even if the guard misread the
text: no ATTACH, no PRAGMA, no catalog that is not named, no function that reaches outside.

SQLite checks the clock between two rows, never within one. So no single step may take long: values and
patterns are bounded, and functions that take the product of two lengths are replaced by ours, which
check the clock themselves. Sorts and temporary results stay in memory, where MAX_HEAP_BYTES limits them.

LIKE and GLOB are SQLite's own as long as a row takes them at most MATCHING_STEPS: they use indexes, and
a call of ours takes ten times as long. Their program (EXPLAIN) tells how many of them a query has, also
in views. A query that turns out to have longer values or patterns is run again with ours (`NeedsOurs`).
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Final

from sqlalchemy.exc import DBAPIError

from hocket.workers.sql import sqlite_text as linear
from hocket.workers.sql.guard import functions
from hocket.workers.sql.sqlite_patterns import MAX_PATTERN_BYTES

PROGRESS_STEPS: Final = 1_000
"""Virtual machine steps between two checks of the clock: under a millisecond for small values."""
MATCHING_STEPS: Final = 32 * linear.MAX_VALUE_BYTES
"""The most that SQLite's own LIKE and GLOB may take for a row, which cannot be stopped: they take the
bytes of the text times those of the pattern in steps of 2 to 4 ns."""
SHORT_PATTERN_BYTES: Final = 32
"""A pattern may have so many in any case, such as one that is read from a column."""
MAX_HEAP_BYTES: Final = 256 * 1024 * 1024
"""The memory that SQLite may use for all queries of a process (its own, process-wide limit)."""
BUSY_TIMEOUT_S: Final = 5.0
_PATTERNED: Final = (b"like(", b"glob(")
_NULL_IF_TOO_LONG: Final = (b"printf(", b"format(")
"""Functions that give null, not an error, for a value that is too long: not used with a lower limit."""
_PATTERN_TOO_LONG: Final = "LIKE or GLOB pattern too complex"
_FUNCTION_FAILED: Final = "user-defined function raised exception"
_NOT_UTF_8: Final = "a function got text that is not UTF-8; give it `CAST(... AS BLOB)`"
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


@dataclass(frozen=True, slots=True)
class Lengths:
    """The most bytes that a value, and a pattern of LIKE or GLOB, may have."""

    value: int = linear.MAX_VALUE_BYTES
    pattern: int = MAX_PATTERN_BYTES

    @classmethod
    def within_steps(cls, program: Iterable[Sequence[Any]], params: Iterable[Any]) -> "Lengths":
        """Return the lengths with which a row takes at most MATCHING_STEPS. `program` is what EXPLAIN
        gives (texts as bytes). A pattern is taken to be one of the query's texts, with a `%` on both
        sides."""
        matches, has_no_error = 0, False
        sizes = [len(value.encode()) for value in params if isinstance(value, str)]
        for _, operation, _, _, _, detail, *_ in program:
            if operation == b"String8":
                sizes.append(len(detail))
            elif isinstance(detail, bytes):
                matches += detail.startswith(_PATTERNED)
                has_no_error |= detail.startswith(_NULL_IF_TOO_LONG)
        if not matches:
            return cls()
        steps = MATCHING_STEPS // matches
        if has_no_error:
            return cls(pattern=min(steps // linear.MAX_VALUE_BYTES, MAX_PATTERN_BYTES))
        longest = max((size for size in sizes if size <= MAX_PATTERN_BYTES), default=0)
        pattern = min(max(longest + len("%%"), SHORT_PATTERN_BYTES), MAX_PATTERN_BYTES)
        return cls(min(steps // pattern, linear.MAX_VALUE_BYTES), pattern)


class NeedsOurs(Exception):
    """A query has longer values or patterns than SQLite's own LIKE and GLOB are used for."""


class QueryStopped(Exception):
    """The time of a query is up."""


class Calls:
    """What the functions of a connection have to know of its query, and why one of them failed."""

    def __init__(self) -> None:
        self._is_over: Callable[[], bool] = lambda: False
        self._reason, self._is_stopped = _NOT_UTF_8, False

    def begin(self, is_over: Callable[[], bool]) -> None:
        """Begin another query, which is stopped once `is_over()` is true."""
        self._is_over = is_over
        self._reason, self._is_stopped = _NOT_UTF_8, False

    def check(self) -> None:
        """Raise QueryStopped once the time of the query is up."""
        if self._is_over():
            raise QueryStopped("interrupted")

    def guarded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that is not begun once the time is up, and that notes why it failed, which
        SQLite does not pass on."""

        def call(*values: Any) -> Any:
            try:
                self.check()
                return function(*values)
            except Exception as error:
                self._reason, self._is_stopped = str(error), isinstance(error, QueryStopped)
                raise

        return call

    def failure(self) -> sqlite3.OperationalError:
        """Return why a function failed, as an error of SQLite. One that was not even called got values
        that Python cannot read."""
        failure = sqlite3.OperationalError(self._reason)
        code = sqlite3.SQLITE_INTERRUPT if self._is_stopped else sqlite3.SQLITE_ERROR
        failure.sqlite_errorcode = code
        return failure


class ReadingConnection(sqlite3.Connection):
    """A connection that knows the calls of our functions."""

    calls: Calls


def connect(file: Path) -> ReadingConnection:
    """Open the file for reading."""
    connection = sqlite3.connect(
        f"{file.resolve().as_uri()}?mode=ro",
        uri=True,
        check_same_thread=False,
        timeout=BUSY_TIMEOUT_S,
        factory=ReadingConnection,
    )
    connection.calls = Calls()
    connection.execute("PRAGMA query_only = ON")
    connection.execute(f"PRAGMA hard_heap_limit = {MAX_HEAP_BYTES}")
    for function in _TABLE_FUNCTIONS:  # once: SQLite creates their tables, which is not reading
        with suppress(sqlite3.OperationalError):
            connection.execute(f"SELECT 1 FROM {function}('[]')")
    connection.execute("PRAGMA temp_store = MEMORY")  # otherwise sorting can fill the disk
    _replace(connection, linear.text_functions(connection.calls.check))
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    _limit(connection, Lengths())
    return connection


def _replace(connection: ReadingConnection, ours: linear.Functions) -> None:
    for called, (counts, function) in ours.items():
        guarded = connection.calls.guarded(function)
        for count in counts:
            connection.create_function(called, count, guarded, deterministic=True)


def _limit(connection: ReadingConnection, lengths: Lengths) -> None:
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, lengths.value)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, lengths.pattern)


@contextmanager
def only_reading(connection: ReadingConnection, tables: Sequence[str]) -> Iterator[None]:
    """Let statements read tables, and catalogs that `tables` names, and do nothing else."""
    connection.set_authorizer(_reading(tables))
    try:
        yield
    except DBAPIError as error:
        if str(error.orig) == _FUNCTION_FAILED:
            error.orig = connection.calls.failure()
        raise
    finally:
        connection.set_authorizer(None)


@contextmanager
def texts_as_bytes(connection: ReadingConnection) -> Iterator[None]:
    """Read texts as bytes for a block: they need not be UTF-8."""
    connection.text_factory = bytes
    try:
        yield
    finally:
        connection.text_factory = str


@contextmanager
def own_matching(connection: ReadingConnection, lengths: Lengths) -> Iterator[None]:
    """Leave LIKE and GLOB to SQLite, up to these lengths; raise NeedsOurs beyond them."""
    _limit(connection, lengths)
    try:
        yield
    except DBAPIError as error:
        is_too_long = getattr(error.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_TOOBIG
        if is_too_long and lengths.value < linear.MAX_VALUE_BYTES:
            raise NeedsOurs from error
        if str(error.orig) == _PATTERN_TOO_LONG:
            raise NeedsOurs from error
        raise
    finally:
        _limit(connection, Lengths())


def match_with_ours(connection: ReadingConnection) -> None:
    """Replace LIKE and GLOB by ours. The connection cannot be used for another query then: SQLite does
    not give its own functions back."""
    _replace(connection, linear.pattern_functions(connection.calls.check))


def _reading(tables: Sequence[str]) -> Callable[..., int]:
    """Return the function that SQLite asks what a statement may do."""
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

    return authorize


class Interrupter:
    """Interrupts, from another thread, the statements of a connection while these are a query's."""

    def __init__(self) -> None:
        self._connection: ReadingConnection | None = None
        self._lock = Lock()

    @contextmanager
    def on(self, connection: ReadingConnection) -> Iterator[None]:
        """Let this connection be interrupted for a block."""
        with self._lock:
            self._connection = connection
        try:
            yield
        finally:
            with self._lock:
                self._connection = None

    def interrupt(self) -> None:
        """Stop a statement at its next row; without one, nothing happens."""
        with self._lock, suppress(sqlite3.ProgrammingError):  # of a connection that is closed
            if self._connection is not None:
                self._connection.interrupt()


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


def stop_when(connection: ReadingConnection, is_over: Callable[[], bool]) -> None:
    """Interrupt this connection's statements once `is_over()` is true."""
    connection.calls.begin(is_over)
    connection.set_progress_handler(lambda: int(is_over()), PROGRESS_STEPS)
