"""The parts of a tool's answer, of which only some are read at once, so that other work can go on."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

PARTS_AT_ONCE = 500
"""The most parts of a tool's answer that are read at once; the SDK gets none if there are more."""
PartT = TypeVar("PartT")


async def few_at_once(parts: Sequence[PartT]) -> AsyncIterator[Sequence[PartT]]:
    """Yield all parts, at most PARTS_AT_ONCE together, with a pause after each time."""
    for start in range(0, len(parts), PARTS_AT_ONCE):
        yield parts[start : start + PARTS_AT_ONCE]
        await asyncio.sleep(0)
