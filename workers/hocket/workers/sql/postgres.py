"""How parameters reach Postgres: as literals of their kind would.

Text goes unknown, as a quoted literal does: Postgres infers its type and reads it (`day >= :since` with
"2024-01-01" works, and so does `CAST(:since AS date)`). Numbers and booleans carry the type that the
same literal has; a fraction is `numeric`, never binary floating point. asyncpg on its own would want a
Python object of the inferred type, so these types travel as text.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

MAX_INTEGER: Final = 2**31 - 1
MAX_BIGINT: Final = 2**63 - 1


def speak_as_literals(connection: Any, _record: Any) -> None:
    """Make a new asyncpg connection of SQLAlchemy's send and read the common types as text."""
    connection.run_async(_set_codecs)


def type_of(value: Any) -> str | None:
    """Return the type that `value` has as a literal; None where Postgres is to infer it."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        if abs(value) <= MAX_INTEGER:
            return "integer"
        return "bigint" if abs(value) <= MAX_BIGINT else "numeric"
    if isinstance(value, float | Decimal):
        return "numeric"
    return None


def search_path(schemas: Sequence[str]) -> str:
    """Return the session's `search_path`: built-in names first, temporary ones last."""
    quoted = ('"' + name.replace('"', '""') + '"' for name in schemas)
    return ", ".join(["pg_catalog", *quoted, "pg_temp"])


async def _set_codecs(connection: Any) -> None:
    for name, decoder in _DECODERS.items():
        await connection.set_type_codec(
            name, schema="pg_catalog", encoder=_encode, decoder=decoder, format="text"
        )


def _encode(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return json.dumps(value)
    return str(value)


def _or_text(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Read a value, or keep the text of one that Python has no value for (`infinity`, years BC)."""

    def decode(text: str) -> Any:
        try:
            return read(text)
        except ValueError:
            return text

    return decode


_DECODERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "bool": lambda text: text == "t",
    "int2": int,
    "int4": int,
    "int8": int,
    "float4": float,
    "float8": float,
    "numeric": Decimal,
    "text": str,
    "varchar": str,
    "bpchar": str,
    "date": _or_text(date.fromisoformat),
    "time": _or_text(time.fromisoformat),
    "timestamp": _or_text(datetime.fromisoformat),
    "timestamptz": _or_text(datetime.fromisoformat),
    "uuid": UUID,
    "json": json.loads,
    "jsonb": json.loads,
}
