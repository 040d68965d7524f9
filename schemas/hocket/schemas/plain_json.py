"""Values that JSON, NATS and Postgres can all carry.

Python's own parser accepts more than JSON has (`NaN`), and Postgres takes less than JSON has: no
character U+0000, no half of a surrogate pair. What comes from outside is checked here once, so that
no later station has to refuse it.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

from hocket.schemas.errors import InvalidInput

MAX_DEPTH = 64
"""How deep arrays and objects may nest."""
MAX_INTEGER_DIGITS = 1_000
"""Longer integers take quadratic time to read and print."""


def parse_json(body: bytes | str, field: str = "input") -> Any:
    """Return the value of a JSON text, or raise InvalidInput naming the place in `field`."""
    try:
        value = json.loads(body, parse_int=_integer, parse_constant=_no_constant)
    except RecursionError:
        raise _too_deep(field) from None
    except ValueError as error:
        raise InvalidInput(
            field=field, reason=f"it is not JSON ({error})", cure="Send one JSON value in UTF-8."
        ) from None
    check_plain(value, field)
    return value


def check_plain(value: Any, field: str = "input", depth: int = 0) -> None:
    """Raise InvalidInput naming the place of the first part that cannot be carried."""
    if isinstance(value, str):
        _check_text(value, field)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise _not_finite(field)
    elif isinstance(value, Mapping):
        _check_depth(depth, field)
        for key, item in value.items():
            if not isinstance(key, str):
                raise InvalidInput(
                    field=field, reason=f"the key {key!r} is not text", cure="Put it in quotes."
                )
            _check_text(key, field)
            check_plain(item, f"{field}.{key}", depth + 1)
    elif isinstance(value, list | tuple):
        _check_depth(depth, field)
        for index, item in enumerate(value):
            check_plain(item, f"{field}.{index}", depth + 1)
    elif not (value is None or isinstance(value, bool | int)):
        raise InvalidInput(
            field=field,
            reason=f"a {type(value).__name__} is not JSON",
            cure="Use text, numbers, booleans, null, lists and objects.",
        )


def _integer(digits: str) -> int:
    if len(digits) > MAX_INTEGER_DIGITS:
        raise ValueError(f"an integer has more than {MAX_INTEGER_DIGITS} digits")
    return int(digits)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number in JSON")


def _check_text(text: str, field: str) -> None:
    if "\x00" in text:
        raise InvalidInput(
            field=field,
            reason="it holds the character U+0000, which Postgres cannot store",
            cure="Remove it, or send the bytes in base64.",
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInput(
            field=field.encode("utf-8", "replace").decode(),
            reason="it holds half of a surrogate pair, which is not Unicode text",
            cure="Send whole characters.",
        ) from None


def _check_depth(depth: int, field: str) -> None:
    if depth >= MAX_DEPTH:
        raise _too_deep(field)


def _too_deep(field: str) -> InvalidInput:
    return InvalidInput(
        field=field,
        reason=f"it nests deeper than {MAX_DEPTH} levels",
        cure="Send a flatter value.",
    )


def _not_finite(field: str) -> InvalidInput:
    return InvalidInput(
        field=field, reason="it is not a finite number", cure="Send a finite number or null."
    )
