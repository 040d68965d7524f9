"""Whether a JSON document stays within bounds when parsed: empty lists take thirty times their size."""

from sys import getsizeof
from typing import Any

from pydantic_core import from_json

MAX_VALUES = 2_000_000
"""The most values in one document; each token of an embedding's input counts as one."""
MAX_ANSWER_VALUES = 200_000
"""The most values in JSON that a model writes as its answer."""
SMALL_BYTES = 1024 * 1024
"""A smaller document cannot hold more values than memory bears, if parsed on its own."""
END_BYTES = 64 * 1024
"""How much of the end of a document is looked at for one of its fields."""
QUICK_BYTES = 64 * 1024
LARGE_BYTES = 1024 * 1024
"""A document of at most QUICK_BYTES is read at once; one of more than LARGE_BYTES takes long."""
_LIST_BYTES, _OBJECT_BYTES, _ITEM_BYTES = 96, 288, 40
"""The memory taken by a list, by an object, and by each further value in either."""


def few_values(content: bytes) -> bool:
    """Return whether a document has at most about MAX_VALUES values; brackets and commas inside
    strings count too."""
    if len(content) <= SMALL_BYTES:
        return True
    return marks(content) <= MAX_VALUES


def marks(content: bytes) -> int:
    """Return an approximate upper bound on the values in a document; brackets and commas inside
    strings count too."""
    return sum(map(content.count, (b",", b"[", b"{")))


def takes_long(content: bytes, many_values: int) -> bool:
    """Return whether reading a document would hold up an event loop, so that it needs a thread: it is
    large, or has at least `many_values` values."""
    size = len(content)
    return size > QUICK_BYTES and (size > LARGE_BYTES or marks(content) >= many_values)


def read_bytes(content: bytes) -> int:
    """Return roughly how many bytes a document takes when parsed, not counting its strings."""
    return (
        _LIST_BYTES * content.count(b"[")
        + _OBJECT_BYTES * content.count(b"{")
        + _ITEM_BYTES * content.count(b",")
    )


def field_at_end(content: bytes, name: str) -> Any:
    """Return the value of a field of a JSON object that is not parsed as a whole, if the last field of
    that name is the object's own and begins in its last END_BYTES; otherwise None.

    What follows the field's name is an object only there: within others, it has brackets too many.
    """
    at = content.rfind(b'"%s"' % name.encode(), max(len(content) - END_BYTES, 0))
    try:
        return from_json(b"{" + content[at:])[name] if at > 0 else None
    except (ValueError, KeyError):
        return None


def answer_value(text: str) -> Any:
    """Return the JSON value that a model wrote; None if it is not JSON, contains what cannot be sent
    on (a lone surrogate), or has implausibly many values."""
    if sum(map(text.count, (",", "[", "{"))) > MAX_ANSWER_VALUES:
        return None
    try:
        return from_json(text)
    except ValueError:
        return None


def held_bytes(value: Any) -> int:
    """Return roughly how many bytes of memory a JSON value takes."""
    held = 0
    waiting: list[Any] = [value]
    while waiting:
        one = waiting.pop()
        held += getsizeof(one)
        if isinstance(one, dict):
            waiting.extend(one)
            waiting.extend(one.values())
        elif isinstance(one, list | tuple):
            waiting.extend(one)
    return held
