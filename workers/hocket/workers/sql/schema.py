"""Describes the allowed tables of a database as compact JSON for a planner or a model.

    {"database": "shop", "dialect": "postgres", "tables": [
        {"name": "public.orders", "comment": "...", "primary_key": ["id"],
         "columns": [{"name": "state", "type": "text", "comment": "...", "values": ["paid"]}],
         "foreign_keys": [{"columns": ["user_id"], "to": "public.users", "to_columns": ["id"]}]}],
     "left_out": []}

The size is bounded. If the description does not fit, parts are dropped in this order: values, comments,
foreign keys, then whole tables from the last on, whose names `left_out` keeps while there is room. The
errors are those of a query.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Final

from sqlalchemy import Connection, inspect
from sqlalchemy.engine.reflection import ObjectKind
from sqlalchemy.exc import SQLAlchemyError
from sqlglot import exp

from hocket.workers.sql.errors import SqlTimeout
from hocket.workers.sql.guard.names import TablePattern, parse_pattern
from hocket.workers.sql.runner import failure_of, run_query
from hocket.workers.sql.targets import Target

MAX_TABLES: Final = 200
MAX_COLUMNS: Final = 200
MAX_COMMENT_CHARS: Final = 300
MAX_BYTES: Final = 65_536
MAX_VALUES: Final = 20
"""The most distinct values, among its first SAMPLE_ROWS rows, for which a text column's are listed."""
MAX_VALUE_CHARS: Final = 60
SAMPLE_ROWS: Final = 5_000
MAX_SAMPLED_COLUMNS: Final = 100
_TEXT_TYPES: Final = ("TEXT", "VARCHAR", "CHAR", "ENUM", "STRING", "NVARCHAR")

Description = dict[str, Any]


async def describe(
    target: Target,
    *,
    timeout_ms: float,
    tables: Sequence[str] = (),
    values: bool = False,
    max_bytes: int = MAX_BYTES,
) -> Description:
    """Describe the tables that match `tables` (if empty, all that the target allows), optionally with
    the `values` of text columns that have few; return at most `max_bytes` of JSON."""
    begun_s = monotonic()
    deadline_s = begun_s + timeout_ms / 1000
    wanted = _wanted(target, tables)
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            found = await target.read(wanted, timeout_ms=timeout_ms)
    except (SQLAlchemyError, OSError) as error:
        raise failure_of(target, error, timeout_ms, (monotonic() - begun_s) * 1000) from error
    if values:
        await _add_values(target, found, deadline_s)
    return _fit(
        {"database": target.name, "dialect": target.dialect, "tables": found, "left_out": []},
        max_bytes,
    )


# ---- reading --------------------------------------------------------------------------------


def _wanted(target: Target, tables: Sequence[str]) -> Callable[[Connection], list[Description]]:
    lists = [
        [parse_pattern(text, target.dialect) for text in texts]
        for texts in (tables or target.settings.tables, target.settings.tables)
    ]

    def read(connection: Connection) -> list[Description]:
        inspector = inspect(connection)
        found: list[Description] = []
        for schema in dict.fromkeys(pattern.schema for pattern in lists[0]):
            names = [
                name
                for name in (
                    *inspector.get_table_names(schema),
                    *inspector.get_view_names(schema),
                )
                if all(_is_allowed(schema, name, patterns) for patterns in lists)
            ]
            found.extend(_tables(inspector, schema, names[: MAX_TABLES - len(found)]))
        return found

    return read


def _is_allowed(schema: str, name: str, patterns: Sequence[TablePattern]) -> bool:
    return any(schema == p.schema and p.table in (None, name) for p in patterns)


def _tables(inspector: Any, schema: str, names: list[str]) -> list[Description]:
    """Read everything about these tables of one schema, with one query per kind instead of per table."""
    if not names:
        return []
    chosen = {"schema": schema, "filter_names": names, "kind": ObjectKind.ANY}
    columns = inspector.get_multi_columns(**chosen)
    keys = inspector.get_multi_pk_constraint(**chosen)
    foreign = inspector.get_multi_foreign_keys(**chosen)
    comments = _comments(inspector, chosen)
    return [
        _table(
            f"{schema}.{name}",
            columns.get((schema, name), ()),
            keys.get((schema, name)) or {},
            foreign.get((schema, name), ()),
            comments.get((schema, name)) or {},
            schema,
        )
        for name in names
    ]


def _comments(inspector: Any, chosen: Description) -> dict[Any, Any]:
    if not inspector.dialect.supports_comments:
        return {}
    return dict(inspector.get_multi_table_comment(**chosen))


def _table(
    name: str,
    columns: Sequence[Description],
    key: Description,
    foreign: Sequence[Description],
    comment: Description,
    schema: str,
) -> Description:
    return _without_empty(
        {
            "name": name,
            "comment": _short(comment.get("text")),
            "primary_key": list(key.get("constrained_columns") or ()),
            "columns": [
                _without_empty(
                    {
                        "name": column["name"],
                        "type": str(column["type"]).lower(),
                        "comment": _short(column.get("comment")),
                    }
                )
                for column in columns[:MAX_COLUMNS]
            ],
            "foreign_keys": [
                {
                    "columns": list(link["constrained_columns"]),
                    "to": f"{link.get('referred_schema') or schema}.{link['referred_table']}",
                    "to_columns": list(link["referred_columns"]),
                }
                for link in foreign
            ],
        }
    )


def _without_empty(described: Description) -> Description:
    return {key: value for key, value in described.items() if value not in (None, "", [])}


def _short(text: str | None) -> str | None:
    return text[:MAX_COMMENT_CHARS] if text else None


# ---- values ---------------------------------------------------------------------------------


async def _add_values(target: Target, tables: list[Description], deadline_s: float) -> None:
    """Add the values of text columns that have few; stop when time runs out, keeping what was added."""
    columns = [
        (table["name"], column)
        for table in tables
        for column in table.get("columns", ())
        if column["type"].upper().startswith(_TEXT_TYPES)
    ]
    for table, column in columns[:MAX_SAMPLED_COLUMNS]:
        left_ms = _left_ms(deadline_s)
        if left_ms <= 0:
            return
        try:
            found = await _values(target, table, column["name"], left_ms)
        except SqlTimeout:
            return
        if found:
            column["values"] = found


async def _values(target: Target, table: str, column: str, timeout_ms: float) -> list[str]:
    schema, _, name = table.partition(".")
    of_column = exp.column(exp.to_identifier(column, quoted=True))
    some = exp.select(of_column).from_(exp.table_(name, db=schema, quoted=True)).limit(SAMPLE_ROWS)
    distinct = (
        exp.select(of_column.copy())
        .distinct()
        .from_(some.subquery("sample"))
        .where(of_column.copy().is_(exp.null()).not_())
        .order_by(of_column.copy())
    )
    result = await run_query(
        target,
        distinct.sql(dialect=target.dialect),
        {},
        timeout_ms=timeout_ms,
        max_rows=MAX_VALUES,
    )
    found = [str(row[0]) for row in result.rows]
    is_list = not result.truncated and all(len(text) <= MAX_VALUE_CHARS for text in found)
    return found if is_list else []


def _left_ms(deadline_s: float) -> float:
    return (deadline_s - monotonic()) * 1000


# ---- size -----------------------------------------------------------------------------------


def _fit(described: Description, max_bytes: int) -> Description:
    for field in ("values", "comment", "foreign_keys"):
        if _size(described) <= max_bytes:
            return described
        for table in described["tables"]:
            table.pop(field, None)
            for column in table.get("columns", ()):
                column.pop(field, None)
    while described["tables"] and _size(described) > max_bytes:
        described["left_out"].insert(0, described["tables"].pop()["name"])
    while described["left_out"] and _size(described) > max_bytes:
        described["left_out"].pop()
    return described


def _size(described: Description) -> int:
    return len(json.dumps(described, ensure_ascii=False).encode())
