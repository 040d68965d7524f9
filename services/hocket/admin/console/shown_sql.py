"""The SQL behind a figure, ready to run: exactly the query of the page, with its values filled in."""

import re
from datetime import date, datetime
from decimal import Decimal

Value = str | int | float | Decimal | date | datetime | list[str] | None

_PLACE = re.compile(r"\$(\d+)")


def shown_sql(query: str, *values: Value) -> str:
    """Return a query with `$1`, `$2` … replaced by literals of `values`, without surrounding
    whitespace."""
    return _PLACE.sub(lambda found: _literal(values[int(found[1]) - 1]), query).strip()


def _literal(value: Value) -> str:
    match value:
        case None:
            return "NULL"
        case str():
            return _quoted(value)
        case datetime():
            return f"timestamptz {_quoted(value.isoformat(sep=' '))}"
        case date():
            return f"date {_quoted(value.isoformat())}"
        case list():
            return f"ARRAY[{', '.join(map(_quoted, value))}]::text[]"
        case _:
            return str(value)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
