"""Handlers of the benchmarks: they do nothing, so that what is measured is Hocket alone."""

from typing import Any


async def pass_along(value: Any) -> Any:
    """Return the input."""
    return value
