"""Values with their blobs, for as long as a block lasts."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hocket.workers.runtime.values.large_values import LargeValues


@asynccontextmanager
async def shown(
    large_values: LargeValues, tenant: str, value: Any, *, waits: bool
) -> AsyncIterator[Any]:
    """Give a value as `LargeValues.readable` returns it, and its room back at the end."""
    readable, held_bytes = await large_values.readable(tenant, value, waits=waits)
    try:
        yield readable
    finally:
        large_values.room.give_back(tenant, held_bytes)
