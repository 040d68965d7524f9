"""How large JSON values are, roughly and at little cost: few of the values within a large one are looked
at, because writing or counting it would hold up the event loop.
"""

from collections.abc import Iterable
from itertools import islice
from sys import getsizeof
from typing import Any, NamedTuple

FEW_VALUES = 256
"""About the most values in a short one."""
SHORT_ITEMS = 32
"""The most items of each list, and fields of each object, in it."""
SHORT_CHARS = 4_096
"""The most characters of each text in it."""
SAMPLE_ITEMS, SAMPLE_FIELDS = 8, 64
"""A list of more items, or an object of more fields, is judged by about so many of them."""
MOST_SEEN = 128
"""After so many values have been found, those within further ones do not count."""
_VALUE_BYTES = 128
"""About what a value takes in memory, with its place and its name, besides its characters."""
_PLACE_BYTES = 24
"""What it takes besides its own size, at most; a list or an object takes it twice."""
_SCALAR_BYTES = 5
"""About what a whole number, `true` or `null` takes as JSON, with its comma."""
_KEY_BYTES = getsizeof("") - len('"":,')
"""The memory of a key, less what it takes as JSON besides its characters."""


class Size(NamedTuple):
    """How many bytes a value takes as JSON, and in memory."""

    written: int
    held: int


def held_if_short(value: Any) -> int:
    """Return roughly how many bytes of memory a value takes if what it holds is little and short;
    otherwise 0. The names of fields are taken to be short."""
    chars = 0
    seen = [value]
    for one in seen:
        kind = type(one)
        if kind is str:
            if len(one) > SHORT_CHARS:
                return 0
            chars += len(one)
        elif kind is dict or kind is list or kind is tuple:
            if len(one) > SHORT_ITEMS or len(seen) > FEW_VALUES:
                return 0
            seen += one.values() if kind is dict else one
    return chars + _VALUE_BYTES * len(seen)


def estimated(value: Any) -> Size:
    """Return roughly how large a value is, from a sample of what it holds."""
    written = held = 0.0
    seen: list[tuple[Any, float]] = [(value, 1.0)]
    for one, times in seen:
        held += times * (getsizeof(one) + _PLACE_BYTES)
        if isinstance(one, dict):
            keys = _mean(map(getsizeof, islice(one, SAMPLE_FIELDS))) * len(one)
            held += times * keys
            written += times * max(keys - _KEY_BYTES * len(one), 0.0)
            items = list(islice(one.values(), SAMPLE_FIELDS))
        elif isinstance(one, list | tuple):
            written += times * (len(one) + 1)
            items = list(one[:: -(-len(one) // SAMPLE_ITEMS) or 1])
        else:
            written += times * _written(one)
            continue
        held += times * _PLACE_BYTES
        if items and len(seen) < MOST_SEEN:
            each = times * len(one) / len(items)
            seen += [(item, each) for item in items]
    return Size(round(written), round(held))


def least_written(value: Any, enough: int) -> int:
    """Return how many bytes a value takes at least as JSON, or the first number found that is more than
    `enough`. Those in a list that begins with a number are not looked at."""
    least = 0
    waiting: list[Any] = [value]
    while waiting and least <= enough:
        one = waiting.pop()
        kind = type(one)
        if kind is str:
            least += len(one)
        elif kind is dict:
            least += len('"":,') * len(one) + _name_chars(one)
            waiting += one.values()
        elif kind is list or kind is tuple:
            least += len(one)
            if one and isinstance(one[0], int | float):
                least += len(one)
            else:
                waiting += one
        else:
            least += 1
    return least


def _name_chars(fields: dict[Any, Any]) -> int:
    try:
        return len("".join(fields))
    except TypeError:  # names that are no texts
        return 0


def _mean(sizes: Iterable[int]) -> float:
    found = list(sizes)
    return sum(found) / max(len(found), 1)


def _written(value: Any) -> int:
    if isinstance(value, str):
        return len(value) + len('""')
    return len(repr(value)) if isinstance(value, float) else _SCALAR_BYTES - 1
