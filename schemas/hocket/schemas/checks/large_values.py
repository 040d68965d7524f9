"""References to large values, which are stored apart: what they look like, and where one is in a value.

A reference is `{"$blob": hash, "size": bytes, "type": "text" | "json"}`. Workers replace it by the value
before a handler sees it; everybody else has only the reference, and must not take it for the value.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from hocket.schemas.checks.plain_json import MAX_FIELD_CHARS, shown_text

MARK: Final = "$blob"
FIELDS: Final = frozenset({"size", "type"})
"""The other names in a reference."""

MAX_LOOKED: Final = 20_000
"""How many values are looked at for the name of a reference: 1 to 2 ms."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Names = tuple[str, ...]
Path = tuple[str | int, ...]


def is_reference(value: Any) -> bool:
    """Tell whether a value is a reference; a `$blob` that is not text is data."""
    return type(value) is dict and type(value.get(MARK)) is str


def _value_at(path: Names, scope: Mapping[str, Any]) -> tuple[Names, Any]:
    """Return the value at a path, or the reference that is on the way to it, with its own path; None if
    there is nothing at the path."""
    value: Any = scope
    for depth, name in enumerate(path):
        if is_reference(value):
            return path[:depth], value
        if not isinstance(value, Mapping) or name not in value:
            return path, None
        value = value[name]
    return path, value


def name_of(
    reference: Mapping[str, Any], paths: Iterable[Names], scope: Mapping[str, Any]
) -> tuple[str | None, int]:
    """Return the name that expressions have for a reference, which is this very object in a scope, at
    one of these paths or below, and how many values were looked at. The name is None if it is not among
    the first MAX_LOOKED."""
    looked = 0
    for path in paths:
        way, value = _value_at(path, scope)
        found, more = _place_of(reference, value, MAX_LOOKED - looked)
        looked += more
        if found is not None:
            return _written((*way, *found)), looked
    return None, looked


def _place_of(reference: Mapping[str, Any], value: Any, most: int) -> tuple[Path | None, int]:
    """Return the first place of a reference in a value, outermost first, and how many values were looked
    at. The place is None if it is not among the first `most`."""
    looked = 0
    level: list[tuple[Path, Any]] = [((), value)] if isinstance(value, dict | list) else []
    while level:
        below: list[tuple[Path, Any]] = []
        for path, part in level:
            if part is reference:
                return path, looked
            looked += 1 + len(part)
            if looked > most:
                return None, looked
            parts = part.items() if isinstance(part, dict) else enumerate(part)
            below += [((*path, key), one) for key, one in parts if isinstance(one, dict | list)]
        level = below
    return None, looked


def _written(path: Path) -> str:
    """Return a path as an expression reads it, cut and with unprintable characters escaped."""
    parts = [
        f".{part}" if isinstance(part, str) and _NAME.fullmatch(part) else f"[{part!r}]"
        for part in path[1:]
    ]
    return shown_text(f"{path[0]}{''.join(parts)}", MAX_FIELD_CHARS)
