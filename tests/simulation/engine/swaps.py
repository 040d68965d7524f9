"""Other values in the places of the real ones, for the time of a `with`: what `mock.patch.object` does,
at a fiftieth of its cost. Thousands of plays a minute do it dozens of times each."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

Swap = tuple[Any, str, Any]
"""A module or class, the name of something that it has itself, and what stands there instead."""


@contextmanager
def swapped(*swaps: Swap) -> Iterator[None]:
    """Put values into their places; put back what was there."""
    before = [(place, name, vars(place)[name]) for place, name, _ in swaps]
    for place, name, value in swaps:
        setattr(place, name, value)
    try:
        yield
    finally:
        for place, name, value in reversed(before):
            setattr(place, name, value)
