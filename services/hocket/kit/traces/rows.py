"""Converts values of rows for spans. Pure."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

Row = Mapping[str, Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def us(at: datetime) -> int:
    """Return a time in microseconds since 1970."""
    return (at - _EPOCH) // _MICROSECOND


def later(at: datetime, ms: float) -> int:
    """Return the time `ms` milliseconds later, in microseconds since 1970."""
    return us(at) + round(ms * 1_000)


def json_of(text: str | None) -> Any:
    """Return the value of a JSON column."""
    return None if text is None else json.loads(text)


def plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes without those that are None or empty."""
    return {name: value for name, value in attributes.items() if value not in (None, "")}
