"""Values that JSON, NATS and Postgres can all carry: docs/reference/values.md.

Python's own parser accepts more than JSON (`NaN`, duplicate keys, UTF-16), and Postgres accepts less: no
character U+0000, no unpaired surrogates. Values from outside are checked here once, so that no later
component has to refuse them.

A value is checked level by level, without recursion. Only a refused value is walked again, to name the
place.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from hocket.schemas.errors import InvalidInput

MAX_DEPTH = 64
"""How deep arrays and objects may nest."""
MAX_INTEGER_DIGITS = 1_000
"""Longer integers take quadratic time to read and print."""
MAX_FIELD_CHARS = 200
"""The limit on the name of a place in an error."""

_INTEGER_LIMIT: int = 10**MAX_INTEGER_DIGITS
_PLAIN_KINDS = (str, int, float, bool, type(None), dict, list, tuple)


class _KeyTwice(ValueError):
    pass


_BOM = "\ufeff"


def parse_json(body: bytes | str, field: str = "input", *, max_values: int | None = None) -> Any:
    """Return the value of a JSON text, or raise InvalidInput, naming the place in `field`. `max_values`
    limits the number of keys, items and scalars."""
    try:
        text = body if isinstance(body, str) else body.decode()
        value = _decode(text) if not text.startswith(_BOM) else json.loads(text)  # which refuses it
    except RecursionError:
        raise _too_deep(field) from None
    except UnicodeDecodeError as undecoded:
        byte = undecoded.object[undecoded.start]
        reason = f"it is not UTF-8 (byte {undecoded.start}: 0x{byte:02x})"
        raise _not_json(field, reason) from None
    except _KeyTwice as key:
        raise InvalidInput(
            field=field, reason=f"the key {key} is used twice", cure="Send each key once."
        ) from None
    except json.JSONDecodeError as fault:
        raise _not_json(field, f"it is not JSON ({fault})") from None
    except ValueError as error:
        if "integer string conversion" in str(error):
            raise _too_long(field) from None
        raise _not_json(field, f"it is not JSON ({error})") from None
    check_plain(value, field, max_values=max_values)
    return value


def check_plain(value: Any, field: str = "input", *, max_values: int | None = None) -> None:
    """Raise InvalidInput, naming the place of the first part that cannot be carried."""
    level, depth, values = [value], 0, 0
    while level:
        values += len(level)
        if max_values is not None and values > max_values:
            raise _too_many(field, max_values)
        if set(map(type, level)) == {int} and _are_short(level):
            return  # usually of millions of token ids
        below: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is str:
                carried = item.isascii() or _is_unicode(item)
                carried = carried and "\x00" not in item
            elif kind is dict:
                carried = depth < MAX_DEPTH and all(map(_is_key, item))
                below.extend(item.values())
            elif kind is list or kind is tuple:
                carried = depth < MAX_DEPTH
                below.extend(item)
            elif kind is float:
                carried = math.isfinite(item)
            elif kind is int:
                carried = -_INTEGER_LIMIT < item < _INTEGER_LIMIT
            else:
                carried = item is None or kind is bool
            if not carried:
                _refuse(value, field, 0)
                below.extend(_parts(item))  # of a derived kind, and plain itself
        level, depth = below, depth + 1


def same_json(one: Any, other: Any) -> bool:
    """Tell whether two JSON values are equal. In Python, true is equal to 1; in JSON it is not."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_json(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_json, one, other))
    return bool(one == other)


def shown_place(*parts: object) -> str:
    """Return the name of a place, cut and with unprintable characters escaped."""
    return shown_text(".".join(map(str, parts)), MAX_FIELD_CHARS)


def shown_text(text: str, limit: int = 80) -> str:
    """Return the beginning of a text for a message, with unprintable characters escaped."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode()
        for char in text[:limit]
    )


def _are_short(integers: Sequence[int]) -> bool:
    return min(integers) > -_INTEGER_LIMIT and max(integers) < _INTEGER_LIMIT


def _refuse(value: Any, field: str, depth: int) -> None:
    """Raise InvalidInput for the first part of a value that cannot be carried, if there is one."""
    if isinstance(value, str):
        _check_text(value, field)
    elif isinstance(value, bool) or value is None:
        return
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise _not_finite(field)
    elif isinstance(value, int):
        if abs(value) >= _INTEGER_LIMIT:
            raise _too_long(field)
    elif isinstance(value, Mapping):
        _check_depth(depth, field)
        for key, item in value.items():
            _check_key(key, field)
            _refuse(item, shown_place(field, key), depth + 1)
    elif isinstance(value, list | tuple):
        _check_depth(depth, field)
        for index, item in enumerate(value):
            _refuse(item, shown_place(field, index), depth + 1)
    else:
        raise InvalidInput(
            field=field,
            reason=f"a {type(value).__name__} is not JSON",
            cure="Use text, numbers, booleans, null, lists and objects.",
        )


def _check_key(key: Any, field: str) -> None:
    if not isinstance(key, str):
        if isinstance(key, int) and abs(key) >= _INTEGER_LIMIT:
            raise _too_long(field)
        raise InvalidInput(
            field=field, reason=f"the key {key!r} is not text", cure="Put it in quotes."
        )
    _check_text(key, field)


def _parts(item: Any) -> list[Any]:
    """Return the contents of a mapping or list of a derived kind."""
    if type(item) in _PLAIN_KINDS:
        return []
    if isinstance(item, Mapping):
        return list(item.values())
    return list(item) if isinstance(item, list | tuple) else []


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_key(key: Any) -> bool:
    return type(key) is str and "\x00" not in key and (key.isascii() or _is_unicode(key))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise _KeyTwice(f"`{shown_place(twice)}`")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number in JSON")


_decode = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_no_constant).decode
"""Of one decoder, because `json.loads` would make one for each text."""


def _check_text(text: str, field: str) -> None:
    if "\x00" in text:
        raise InvalidInput(
            field=field,
            reason="it contains the character U+0000, which Postgres cannot store",
            cure="Remove it, or send the bytes in base64.",
        )
    if not _is_unicode(text):
        raise InvalidInput(
            field=field,
            reason="it contains half of a surrogate pair, which is not Unicode text",
            cure="Send complete characters.",
        )


def _check_depth(depth: int, field: str) -> None:
    if depth >= MAX_DEPTH:
        raise _too_deep(field)


def _not_json(field: str, reason: str) -> InvalidInput:
    return InvalidInput(field=field, reason=reason, cure="Send one JSON value in UTF-8.")


def _too_deep(field: str) -> InvalidInput:
    return InvalidInput(
        field=field,
        reason=f"it nests deeper than {MAX_DEPTH} levels",
        cure="Send a flatter value.",
    )


def _too_long(field: str) -> InvalidInput:
    return InvalidInput(
        field=field,
        reason=f"an integer has more than {MAX_INTEGER_DIGITS} digits",
        cure="Send it as text.",
    )


def _too_many(field: str, limit: int) -> InvalidInput:
    return InvalidInput(
        field=field, reason=f"it has more than {limit} values", cure="Send fewer at once."
    )


def _not_finite(field: str) -> InvalidInput:
    return InvalidInput(
        field=field, reason="it is not a finite number", cure="Send a finite number or null."
    )
