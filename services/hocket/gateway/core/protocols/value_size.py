"""How large JSON values are, found out at a bounded cost."""

from itertools import islice
from sys import getsizeof
from typing import Any

FIRST_SEEN, MOST_SEEN = 64, 5_000
"""So many of the values within one are looked at to tell how many bytes it takes at least: the first
ones always, the rest if it is likely to take more than is asked about."""


def held_if_few(value: Any, most_values: int) -> int | None:
    """Return how many bytes of memory a value takes, with all that it holds and the names of its fields;
    None if these are more than so many."""
    held = 0
    seen: list[Any] = [value]
    for one in seen:
        held += getsizeof(one)
        if isinstance(one, dict):
            if len(seen) + 2 * len(one) > most_values:
                return None
            seen += one
            seen += one.values()
        elif isinstance(one, list | tuple):
            if len(seen) + len(one) > most_values:
                return None
            seen += one
    return held


def least_written(value: Any, enough: int) -> int:
    """Return how many bytes a value takes at least as JSON, or the first number found that is more than
    `enough`. Nothing more is looked at once the first values make it unlikely that MOST_SEEN of them
    come to more; those in a list that begins with a number count unseen."""
    least = 1
    looked_at = 0
    waiting: list[Any] = [value]
    while waiting and least <= enough:
        one = waiting.pop()
        looked_at += 1
        kind = type(one)
        if kind is str:
            least += len(one) + len('"')
        elif kind is dict:
            least += (len('"":1,') * len(one) or 1) + _name_chars(one)
            waiting += islice(one.values(), MOST_SEEN)
        elif kind is list or kind is tuple:
            least += len("1,") * len(one) or 1
            if one and not isinstance(one[0], int | float):
                waiting += one[:MOST_SEEN]
        if looked_at >= FIRST_SEEN and least * MOST_SEEN < enough * looked_at:
            break
    return least


def _name_chars(fields: dict[Any, Any]) -> int:
    """Return how many characters the names of the first fields have; 0 if some are no texts."""
    try:
        return len("".join(islice(fields, MOST_SEEN)))
    except TypeError:
        return 0
