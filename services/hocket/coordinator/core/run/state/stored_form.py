"""The form in which Postgres gives a JSON value back.

A run may be read back from its rows at any time: when it was parked, when another coordinator takes
it over, when it is retried. Expressions see the order of keys and the kinds of numbers, so every value
takes this form when it becomes part of a run, and they give the same before and after.

`jsonb` sorts the keys of an object by their length in bytes and then by their bytes, knows no `-0.0` and
no U+0000, and writes numbers without exponents: a double of 1e16 or more would come back as an integer.
So in rows those are written out with a fraction, which `jsonb` keeps (`row_text`).
"""

import re
from decimal import Decimal
from typing import Any, Final

from pydantic_core import to_json

_NUL: Final = "\0"
_INSTEAD: Final = "\ufffd"
MAX_LEVELS: Final = 256
"""Deeper values are refused by whoever measures them (`run_size.py`)."""
_EXPONENT: Final = "e+"
"""What every double of 1e16 or more has in a text, and no other number."""
_TOKEN: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*"|-?\d++(?:\.\d++)?e\+\d++')


def stored_form(value: Any, levels: int = MAX_LEVELS) -> Any:
    """Return a JSON value as it is read back from its row: itself if it has that form already."""
    if isinstance(value, dict):
        return _of_object(value, levels - 1) if levels else value
    if isinstance(value, list):
        return _of_list(value, levels - 1) if levels else value
    if isinstance(value, str):
        return value.replace(_NUL, _INSTEAD) if _NUL in value else value
    return 0.0 if isinstance(value, float) and value == 0.0 else value


def text_of(value: Any) -> str:
    """Return a value as JSON text. Raises ValueError for one that JSON cannot represent."""
    return to_json(value, inf_nan_mode="null").decode()


def row_text(text: str) -> str:
    """Return a JSON text as it is written to a row."""
    return _TOKEN.sub(_written_out, text) if _EXPONENT in text else text


def place(key: str) -> tuple[int, bytes]:
    """Return the sort key of an object's key."""
    as_bytes = key.encode("utf-8", "surrogatepass")
    return len(as_bytes), as_bytes


def _of_object(value: dict[Any, Any], levels: int) -> dict[Any, Any]:
    changed: dict[Any, Any] | None = None
    for key, item in value.items():
        if isinstance(item, str):
            if _NUL not in item:
                continue
        elif isinstance(item, int) or (not item and not isinstance(item, float)):
            continue  # true, 1; null, an empty list
        form = stored_form(item, levels)
        if form is not item:
            changed = changed or {}
            changed[key] = form
    made = value if changed is None else {**value, **changed}
    if _is_in_order(made):
        return made
    renamed = {str(key).replace(_NUL, _INSTEAD): item for key, item in made.items()}
    return {key: renamed[key] for key in sorted(renamed, key=place)}


def _is_in_order(value: dict[Any, Any]) -> bool:
    longest, last = 0, ""
    for key in value:
        if not isinstance(key, str):
            return True  # refused by whoever writes it
        length = len(key)
        if length < longest or (length == longest and key < last) or not key.isascii():
            return False
        if _NUL in key:
            return False
        longest, last = length, key
    return True


def _of_list(value: list[Any], levels: int) -> list[Any]:
    made: list[Any] | None = None
    for index, item in enumerate(value):
        if isinstance(item, str):
            if _NUL not in item:
                continue
        elif isinstance(item, int) or (not item and not isinstance(item, float)):
            continue
        form = stored_form(item, levels)
        if form is not item:
            made = made or list(value)
            made[index] = form
    return value if made is None else made


def _written_out(token: re.Match[str]) -> str:
    text = token[0]
    return text if text.startswith('"') else f"{Decimal(text):f}.0"
