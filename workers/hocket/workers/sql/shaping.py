"""Turns the raw rows of an answer into JSON values, the same in a thread as on the loop. Pure."""

import datetime as dt
import json
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
)
from math import isfinite
from typing import Any, Final
from uuid import UUID

from hocket.workers.sql.answers import Answer, JsonText
from hocket.workers.sql.errors import SqlConstructRefused

MAX_EXACT_INTEGER: Final = 2**53
MAX_PLAIN_DIGITS: Final = 15
"""A double gives back every number of so many digits..."""
MIN_PLAIN, MAX_PLAIN = 1e-290, 1e290
"""...between these."""


@dataclass(frozen=True, slots=True)
class _Ready:
    """An object or a list that was JSON, all of whose numbers are exact."""

    value: Any


Rows = tuple[tuple[Any, ...], ...]


def shaped(answer: Answer) -> tuple[tuple[str, ...], Rows]:
    """Return the types of the columns and the rows as JSON values; raise SqlConstructRefused, naming
    the column, for a value that has no JSON."""
    rows = [tuple(map(_parsed, row, answer.columns)) for row in answer.rows]
    return _types(answer.columns, rows), tuple(
        tuple(map(_json, row, answer.columns)) for row in rows
    )


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
    ((_Ready, dict, list, tuple), "json"),
)


_SHOWN_AS_TEXT = (
    UUID,
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
)


def _parsed(value: Any, column: str) -> Any:
    """Return the parsed value of JSON text, and any other value unchanged."""
    if isinstance(value, list):
        return [_parsed(item, column) for item in value]
    if not isinstance(value, JsonText):
        return value
    is_container = value.startswith(("[", "{"))
    whole = _whole if is_container else None  # a number alone is of type integer
    try:
        parsed = json.loads(value, parse_float=_fraction, parse_int=whole)
    except (ValueError, RecursionError) as error:
        raise SqlConstructRefused(
            construct=f"the column `{column}`, whose JSON cannot be read ({type(error).__name__})",
            cure="Leave it out, or convert it to text in the query.",
        ) from error
    return _Ready(parsed) if is_container else parsed


def _whole(written: str) -> int | str:
    """Return a JSON number without a fraction; as text if a double would round it."""
    value = int(written)
    return value if abs(value) <= MAX_EXACT_INTEGER else str(value)


def _fraction(written: str) -> float | str:
    """Return a JSON number with a fraction or an exponent; as text if it would be rounded."""
    value = float(written)
    digits = written.lstrip("-0.")
    if len(digits) <= MAX_PLAIN_DIGITS and MIN_PLAIN < abs(value) < MAX_PLAIN:
        return value
    return value if isfinite(value) and Decimal(repr(value)) == Decimal(written) else written


def _json(value: Any, column: str) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | float | Decimal):
        return _number(value)
    if isinstance(value, _Ready):
        return value.value
    if isinstance(value, list | tuple):
        return [_json(item, column) for item in value]
    if isinstance(value, dict):
        return {str(key): _json(item, column) for key, item in value.items()}
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    if isinstance(value, _SHOWN_AS_TEXT):
        return str(value)
    raise SqlConstructRefused(
        construct=f"the column `{column}` of type {type(value).__name__}",
        cure="Leave it out, or convert it to text in the query.",
    )


def _number(value: float | Decimal) -> int | float | str | None:
    """Return a number in JSON form: text if a double would round it, None for NaN."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Decimal):
        whole = value.is_finite() and value == value.to_integral_value()
        return int(value) if whole and abs(value) <= MAX_EXACT_INTEGER else format(value, "f")
    return value if abs(value) <= MAX_EXACT_INTEGER else str(value)
