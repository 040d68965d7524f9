"""Handlers for `test_constructs.py`, imported by the worker process."""

import asyncio
from typing import Any


async def echo(given: Any) -> Any:
    """Return the input."""
    return given


async def fail(given: Any) -> Any:
    """Fail."""
    raise ValueError(f"told to fail with {given}")


async def nap(given: Any) -> Any:
    """Sleep longer than any test waits."""
    await asyncio.sleep(30)
    return given
