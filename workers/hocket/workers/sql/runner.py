"""Run one checked query on a target and shape its answer as JSON.

Numbers stay exact: an integral numeric is an integer, any other numeric its decimal text. Times are
ISO 8601, intervals seconds, UUIDs text; bytes are refused by name.
"""

import asyncio
import datetime as dt
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import isfinite
from time import monotonic
from typing import Any

from sqlalchemy import TextClause, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from hocket.workers.sql.errors import (
    SqlConstructRefused,
    SqlFailed,
    SqlFailedForNow,
    SqlInvalid,
    SqlParametersWrong,
    SqlTimeout,
    SqlUnavailable,
)
from hocket.workers.sql.guard import CheckedQuery, check_query
from hocket.workers.sql.targets import Target

GRACE_S = 1.0
"""How long the database has to report its own timeout before the attempt is given up."""
MAX_EXACT_INTEGER = 2**53
QUERY_CANCELED = "57014"
FOR_NOW = ("40", "53", "55P03", "57P0")
UNREACHABLE = ("08",)
INVALID = ("22", "42", "26")


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The answer of a query; `truncated` where there were more than the allowed rows."""

    sql: str
    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
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
    """Check a query, run it within `timeout_ms`, and return its answer, or raise a typed error
    (SqlRefused and its kinds, SqlTimeout, SqlFailed and its kinds)."""
    max_rows = min(max_rows, target.settings.max_rows)
    checked = check_query(
        sql,
        dialect=target.dialect,
        tables=tables or target.settings.tables,
        within=target.settings.tables,
        default_schema=target.settings.default_schema,
        functions_allowed=target.settings.functions,
        max_rows=max_rows,
    )
    bound = _bound(checked, params)
    begun_s = monotonic()
    try:
        async with asyncio.timeout(timeout_ms / 1000 + GRACE_S):
            answer = await target.fetch(
                _statement(checked), bound, timeout_ms=timeout_ms, max_rows=max_rows + 1
            )
    except TimeoutError:
        raise SqlTimeout(
            database=target.name, timeout_ms=round(timeout_ms), component=_component(target)
        ) from None
    except (SQLAlchemyError, OSError) as error:
        raise _typed(target, error, timeout_ms) from error
    rows = answer.rows[:max_rows]
    return QueryResult(
        sql=checked.sql,
        columns=answer.columns,
        types=_types(answer.columns, rows),
        rows=tuple(tuple(map(_json, row, answer.columns)) for row in rows),
        truncated=len(answer.rows) > max_rows,
        elapsed_ms=(monotonic() - begun_s) * 1000,
    )


def _statement(checked: CheckedQuery) -> TextClause:
    """Return the statement for the driver: text with its colons escaped, parameters bound."""
    parts = [
        f":{segment}" if i % 2 else segment.replace("\\", "\\\\").replace(":", "\\:")
        for i, segment in enumerate(checked.segments)
    ]
    return text("".join(parts))


def _bound(checked: CheckedQuery, params: Mapping[str, Any]) -> dict[str, Any]:
    missing = [name for name in checked.parameters if name not in params]
    if missing:
        raise SqlParametersWrong(
            reason=f"the query names {', '.join(missing)} and no value is given",
            cure="Give each in `params`.",
        )
    return {name: params[name] for name in checked.parameters}


def _typed(target: Target, error: Exception, timeout_ms: float) -> Exception:
    state = _sqlstate(error)
    interrupted = "interrupted" in str(error)  # SQLite's word for our progress handler
    if state == QUERY_CANCELED or interrupted:
        return SqlTimeout(
            database=target.name, timeout_ms=round(timeout_ms), component=_component(target)
        )
    kind: type[SqlFailed] = SqlFailed
    if isinstance(error, OSError | PoolTimeout) or state.startswith(UNREACHABLE):
        kind = SqlUnavailable
    elif state.startswith(FOR_NOW):
        kind = SqlFailedForNow
    elif state.startswith(INVALID) or (isinstance(error, StatementError) and not state):
        kind = SqlInvalid
    cause = error.orig if isinstance(error, DBAPIError) else error
    return kind(
        database=target.name,
        sqlstate=state or "none",
        reason=str(cause).splitlines()[0][:500] if str(cause) else type(cause).__name__,
        component=_component(target),
    )


def _sqlstate(error: BaseException | None) -> str:
    while error is not None:
        state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
        if state:
            return str(state)
        error = getattr(error, "orig", None) or error.__cause__
    return ""


def _component(target: Target) -> str:
    return f"sql:{target.name}"


def _types(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> tuple[str, ...]:
    """Return a type name per column, from its first value that is not null."""
    return tuple(
        next((_type_name(row[i]) for row in rows if row[i] is not None), "null")
        for i in range(len(columns))
    )


def _type_name(value: Any) -> str:
    for kinds, name in _TYPE_NAMES:
        if isinstance(value, kinds):
            return name
    return "text"


_TYPE_NAMES: tuple[tuple[tuple[type, ...], str], ...] = (
    ((bool,), "boolean"),
    ((int,), "integer"),
    ((float, Decimal), "number"),
    ((dt.datetime,), "timestamp"),
    ((dt.date,), "date"),
    ((dt.time,), "time"),
    ((dt.timedelta,), "interval_s"),
    ((dict, list, tuple), "json"),
)


def _json(value: Any, column: str) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return value if abs(value) <= MAX_EXACT_INTEGER else str(value)
    if isinstance(value, Decimal):
        whole = value.is_finite() and value == value.to_integral_value()
        return int(value) if whole and abs(value) <= MAX_EXACT_INTEGER else str(value)
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, list | tuple):
        return [_json(item, column) for item in value]
    if isinstance(value, dict):
        return {str(key): _json(item, column) for key, item in value.items()}
    raise SqlConstructRefused(
        construct=f"the column `{column}` of type {type(value).__name__}",
        cure="Leave it out, or convert it to text in the query.",
    )
