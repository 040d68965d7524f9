"""Whether two JSON values are the same, and from what size on a value is large."""

from typing import Any

LARGE = 10_000
"""Bytes from which on a value is shown to programs, and no person is asked to read it."""


def same(found: Any, expected: Any) -> bool:
    """Tell whether two JSON values are the same to the last digit. Postgres writes a number out, 1e20 as
    100000000000000000000, and knows no negative zero: numbers are compared as numbers."""
    if isinstance(expected, float) and type(found) in (int, float):
        return float(found) == expected
    if isinstance(expected, dict) and isinstance(found, dict):
        return found.keys() == expected.keys() and all(
            same(found[key], expected[key]) for key in expected
        )
    if isinstance(expected, list) and isinstance(found, list):
        return len(found) == len(expected) and all(map(same, found, expected))
    return type(found) is type(expected) and bool(found == expected)
