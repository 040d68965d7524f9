"""Writes large JSON values in parts: pydantic holds the interpreter until it has written all that it was
given, in whatever thread.
"""

from collections.abc import Iterator
from typing import Any

from pydantic_core import to_json

PART_ITEMS = 256
PART_CHARS = 256 * 1024
"""How many items of a list, and characters of a text, are written at a time."""
PART_LEVELS = 6
"""How deep within a value objects and short lists are written in parts."""


def written_in_parts(value: Any) -> bytes:
    """Return a value as JSON. Other threads get a turn after each part, but small values take longer
    than with `to_json`."""
    return b"".join(parts(value))


def parts(value: Any) -> Iterator[bytes]:
    """Yield the parts of a value as JSON."""
    return _parts(value, PART_LEVELS)


def _parts(value: Any, levels: int) -> Iterator[bytes]:
    if isinstance(value, dict) and value and levels:
        yield from _of_object(value, levels - 1)
    elif isinstance(value, list | tuple) and value and levels:
        yield from _of_list(value, levels - 1)
    elif isinstance(value, str) and len(value) > PART_CHARS:
        yield b'"'
        for at in range(0, len(value), PART_CHARS):
            yield _json(value[at : at + PART_CHARS])[1:-1]
        yield b'"'
    else:
        yield _json(value)


def _of_object(value: dict[Any, Any], levels: int) -> Iterator[bytes]:
    before = b"{"
    for name, held in value.items():
        yield before + _json(name) + b":"
        yield from _parts(held, levels)
        before = b","
    yield b"}"


def _of_list(value: list[Any] | tuple[Any, ...], levels: int) -> Iterator[bytes]:
    before = b"["
    if len(value) > PART_ITEMS:
        for at in range(0, len(value), PART_ITEMS):
            yield before + _json(value[at : at + PART_ITEMS])[1:-1]
            before = b","
    else:
        for one in value:
            yield before
            yield from _parts(one, levels)
            before = b","
    yield b"]"


def _json(value: Any) -> bytes:
    return to_json(value, inf_nan_mode="null")
