"""Whether two JSON values are equal, and from which size a value counts as large."""

from typing import Any

LARGE = 10_000
"""Size in bytes from which a value is shown to programs only, because nobody would read it."""


def same(found: Any, expected: Any) -> bool:
    """Return whether two JSON values are equal to the last digit. Numbers are compared by value,
    because Postgres writes them out (1e20 as 100000000000000000000) and has no negative zero."""
    if isinstance(expected, float) and type(found) in (int, float):
        return float(found) == expected
    if isinstance(expected, dict) and isinstance(found, dict):
        return found.keys() == expected.keys() and all(
            same(found[key], expected[key]) for key in expected
        )
    if isinstance(expected, list) and isinstance(found, list):
        return len(found) == len(expected) and all(map(same, found, expected))
    return type(found) is type(expected) and bool(found == expected)
