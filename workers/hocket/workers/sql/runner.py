"""Runs one checked query on a target and shapes its answer as JSON.

Numbers stay exact: an integral numeric becomes an integer, any other numeric its decimal text. Times are
ISO 8601, intervals are seconds, UUIDs and addresses are text, float NaN and infinities are null; bytes
are refused, naming the column. The answer has at most `max_rows` rows and MAX_ANSWER_CHARS characters.
"""

import asyncio
import json
import re
import sqlite3
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache, partial
from time import monotonic
from typing import Any

from sqlalchemy import TextClause, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from hocket.workers.sql import postgres
from hocket.workers.sql.answers import Answer
from hocket.workers.sql.errors import (
    SqlConstructRefused,
    SqlFailed,
    SqlFailedForNow,
    SqlInvalid,
    SqlParametersWrong,
    SqlTimeout,
    SqlUnavailable,
    SqlUnreadable,
)
from hocket.workers.sql.guard.guard import CheckedQuery, check_query
from hocket.workers.sql.guard.reading import first_line
from hocket.workers.sql.postgres import MAX_BIGINT
from hocket.workers.sql.shaping import Rows, shaped
from hocket.workers.sql.targets import Target

GRACE_SHARE = 0.05
MAX_GRACE_MS = 500.0
"""How long the database has to report its own timeout before the query is given up: less than what
`call_time` keeps for the step's own report."""
MAX_CHECKED = 512
MAX_INLINE_CHARS = 2_000
MAX_INLINE_BRACKETS = 100
"""Queries with more characters or brackets, which may take seconds to check, are checked in a thread,
one at a time."""
_BRACKETS = "([{"
QUERY_CANCELED = "57014"
OWN_TIMEOUT_SHARE = 0.9
"""A statement cancelled before this share of its time was cancelled by somebody else."""
FOR_NOW = ("40", "53", "55P03", "57P0", QUERY_CANCELED)
SQLITE_FOR_NOW = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_INTERRUPT)
UNREACHABLE = ("08",)
INVALID = ("22", "42", "26")

_HALF_PAIR = re.compile("[\ud800-\udfff]")

MAX_INLINE_SIZE = 200_000
"""Larger answers (as `answers` counts) are turned into JSON values in a thread: up to 10 ms are not
worth one."""

_checking = ThreadPoolExecutor(1, thread_name_prefix="sql-check")
_shaping = ThreadPoolExecutor(2, thread_name_prefix="sql-shape")


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The answer of a query; `truncated` if there were more rows than allowed."""

    sql: str
    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: Rows
    truncated: bool
    elapsed_ms: float

    @property
    def row_count(self) -> int:
        return len(self.rows)


async def run_query(
    target: Target,
    sql: str,
    params: Mapping[str, Any],
    *,
    timeout_ms: float,
    max_rows: int,
    tables: Sequence[str] = (),
) -> QueryResult:
    """Check a query, run it within `timeout_ms`, and return its answer; raise a typed error (SqlRefused
    and its subclasses, SqlTimeout, SqlFailed and its subclasses)."""
    max_rows = min(max_rows, target.settings.max_rows)
    check = partial(
        _check,
        sql,
        target.dialect,
        tuple(tables or target.settings.tables),
        target.settings.tables,
        target.settings.default_schema,
        target.settings.functions,
        target.settings.types,
        max_rows,
    )
    begun_s = monotonic()
    try:
        async with asyncio.timeout((timeout_ms + grace_ms(timeout_ms)) / 1000) as patience:
            if _is_quickly_checked(sql):
                checked = check()
            else:
                checked = await asyncio.get_running_loop().run_in_executor(_checking, check)
            statement, bound = _statement(checked, params)
            left_ms = max(1.0, timeout_ms - (monotonic() - begun_s) * 1000)
            answer = await _answer(target, statement, bound, left_ms, max_rows)
            types, rows = await _in_json(answer)
    except (SQLAlchemyError, OSError) as error:  # a TimeoutError is an OSError
        if patience.expired():
            raise _timeout(target, timeout_ms) from error
        raise failure_of(target, error, timeout_ms, (monotonic() - begun_s) * 1000) from error
    return QueryResult(
        sql=checked.sql,
        columns=answer.columns,
        types=types,
        rows=rows,
        truncated=answer.cut,
        elapsed_ms=(monotonic() - begun_s) * 1000,
    )


def grace_ms(timeout_ms: float) -> float:
    """Return how long after its time a query is given up."""
    return min(GRACE_SHARE * timeout_ms, MAX_GRACE_MS)


def _is_quickly_checked(sql: str) -> bool:
    if len(sql) > MAX_INLINE_CHARS:
        return False
    return sum(map(sql.count, _BRACKETS)) <= MAX_INLINE_BRACKETS


async def _answer(
    target: Target, statement: TextClause, bound: dict[str, Any], left_ms: float, max_rows: int
) -> Answer:
    """Run a statement; raise SqlConstructRefused if the driver cannot read what the server sent."""
    try:
        return await target.fetch(statement, bound, timeout_ms=left_ms, max_rows=max_rows)
    except ValueError as error:
        raise SqlConstructRefused(
            construct="a column of a type that has no JSON, such as a row or an array of rows",
            cure="Take its fields, `(home).city`, or convert it: `to_jsonb(home)`, `home::text`.",
        ) from error
    except ArithmeticError as error:
        raise SqlConstructRefused(
            construct=f"a value that is out of the range of its type here ({first_line(error)})",
            cure="Convert it to text in the query: `CAST(home AS text)`.",
        ) from error


async def _in_json(answer: Answer) -> tuple[tuple[str, ...], Rows]:
    """Return the types of the columns and the rows in JSON; in a thread if that takes long."""
    if answer.size <= MAX_INLINE_SIZE:
        return shaped(answer)
    return await asyncio.get_running_loop().run_in_executor(_shaping, shaped, answer)


@lru_cache(MAX_CHECKED)
def _check(
    sql: str,
    dialect: str,
    tables: tuple[str, ...],
    within: tuple[str, ...],
    default_schema: str | None,
    functions: tuple[str, ...],
    types: tuple[str, ...],
    max_rows: int,
) -> CheckedQuery:
    """Check a query (3 ms); the results of the last MAX_CHECKED checks are cached."""
    try:
        return check_query(
            sql,
            dialect=dialect,
            tables=tables,
            within=within,
            default_schema=default_schema,
            functions_allowed=functions,
            types_allowed=types,
            max_rows=max_rows,
        )
    except (RecursionError, ValueError, TypeError) as error:  # sqlglot, for unforeseen input
        raise SqlUnreadable(dialect=dialect, reason=first_line(error)) from error


def _statement(
    checked: CheckedQuery, params: Mapping[str, Any]
) -> tuple[TextClause, dict[str, Any]]:
    """Return the statement for the driver and its values. Every occurrence of a parameter is bound
    separately, so that each may have the type that its place requires."""
    missing = [name for name in checked.parameters if name not in params]
    if missing:
        raise SqlParametersWrong(
            reason=f"the query names {', '.join(missing)}, but no value is given",
            cure="Set each in `params`.",
        )
    parts: list[str] = []
    bound: dict[str, Any] = {}
    for i, segment in enumerate(checked.segments):
        if i % 2 == 0:
            parts.append(segment.replace(":", "\\:"))  # the only character special to `text`
            continue
        name, value = f"p{len(bound)}", _bindable(params[segment], segment, checked.dialect)
        bound[name] = value
        kind = postgres.type_of(value) if checked.dialect == "postgres" else None
        parts.append(f"CAST(:{name} AS {kind})" if kind else f" :{name} ")
    return text("".join(parts)), bound


def _bindable(value: Any, name: str, dialect: str) -> Any:
    """Return a JSON value in the driver's form: objects as JSON text, fractions exact. Raises
    SqlParametersWrong for a value that the driver cannot bind."""
    if isinstance(value, dict):
        return json.dumps(value)
    if _has_half_pair(value):
        raise SqlParametersWrong(
            reason=f"the text of `{name}` has half of a surrogate pair, which is not a character",
            cure="Send whole characters: text that was cut in the middle of an emoji has such a half.",
        )
    if dialect == "postgres":
        return Decimal(repr(value)) if isinstance(value, float) else value
    if isinstance(value, list | tuple):
        raise SqlParametersWrong(
            reason=f"`{name}` is a list, which {dialect} cannot bind",
            cure="Pass its items as separate parameters: `IN (:a, :b)`.",
        )
    is_whole = dialect == "sqlite" and isinstance(value, int)
    if is_whole and not -MAX_BIGINT - 1 <= value <= MAX_BIGINT:
        raise SqlParametersWrong(
            reason=f"`{name}` is beyond the integers of {dialect}, {-MAX_BIGINT - 1} to {MAX_BIGINT}",
            cure="Pass a smaller number, or pass it as text if the column holds text.",
        )
    return value


def _has_half_pair(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_has_half_pair, value))
    return isinstance(value, str) and _HALF_PAIR.search(value) is not None


def _timeout(target: Target, timeout_ms: float) -> SqlTimeout:
    return SqlTimeout(
        database=target.name, timeout_ms=round(timeout_ms), component=_component(target)
    )


def failure_of(
    target: Target, error: Exception, timeout_ms: float, elapsed_ms: float
) -> SqlTimeout | SqlFailed:
    """Return the typed error for what a driver raised after `elapsed_ms`."""
    state = postgres.sqlstate_of(error)
    code = _sqlite_code(error)
    stopped = state == QUERY_CANCELED or code == sqlite3.SQLITE_INTERRUPT
    if stopped and elapsed_ms >= timeout_ms * OWN_TIMEOUT_SHARE:
        return _timeout(target, timeout_ms)
    cause = error.orig if isinstance(error, DBAPIError) else error
    return _kind_of(error, state, code)(
        database=target.name,
        sqlstate=state or "none",
        reason=str(cause).splitlines()[0][:500] if str(cause) else type(cause).__name__,
        component=_component(target),
    )


def _kind_of(error: Exception, state: str, code: int) -> type[SqlFailed]:
    unreachable = state.startswith(UNREACHABLE) or code == sqlite3.SQLITE_CANTOPEN
    if unreachable or isinstance(error, OSError | PoolTimeout):
        return SqlUnavailable
    if state.startswith(FOR_NOW) or code in SQLITE_FOR_NOW:
        return SqlFailedForNow
    if state.startswith(INVALID) or (isinstance(error, StatementError) and not state):
        return SqlInvalid
    return SqlFailed


def _sqlite_code(error: BaseException) -> int:
    """Return the primary result code of an SQLite error; SQLITE_OK for any other error."""
    code = getattr(getattr(error, "orig", error), "sqlite_errorcode", None)
    return sqlite3.SQLITE_OK if code is None else int(code) & 0xFF


def _component(target: Target) -> str:
    return f"sql:{target.name}"
