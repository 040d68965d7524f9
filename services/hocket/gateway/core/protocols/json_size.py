"""Whether a JSON document stays within reason once it is read: lists of nothing take thirtyfold."""

import json
from sys import getsizeof
from typing import Any

MAX_VALUES = 2_000_000
"""Values of one document; what is a token of an embedding's input is one, too."""
MAX_ANSWER_VALUES = 200_000
"""Values of the JSON that a model writes as its answer."""
SMALL_BYTES = 1024 * 1024
"""What is smaller has no more of them than memory bears, where it is read alone."""
_LIST_BYTES, _OBJECT_BYTES, _ITEM_BYTES = 96, 288, 40
"""What a list, an object and one more value in either take in memory."""


def few_values(content: bytes) -> bool:
    """Return whether a document has at most about MAX_VALUES values; marks inside texts count too."""
    if len(content) <= SMALL_BYTES:
        return True
    return marks(content) <= MAX_VALUES


def marks(content: bytes) -> int:
    """Return about how many values a document has at most; marks inside texts count too."""
    return sum(map(content.count, (b",", b"[", b"{")))


def read_bytes(content: bytes) -> int:
    """Return about what a document takes once it is read, in bytes, and its texts not counted."""
    return (
        _LIST_BYTES * content.count(b"[")
        + _OBJECT_BYTES * content.count(b"{")
        + _ITEM_BYTES * content.count(b",")
    )


def answer_value(text: str) -> Any:
    """Return the JSON value that a model wrote; None where it is none, or has too many values to be one
    that somebody asked for."""
    if sum(map(text.count, (",", "[", "{"))) > MAX_ANSWER_VALUES:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def held_bytes(value: Any) -> int:
    """Return about what a JSON value takes in memory."""
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
