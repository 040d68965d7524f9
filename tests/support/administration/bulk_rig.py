"""Process bulk operations next to an API under test."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hocket.admin.bulk import turns
from support.rest_rig import Rest


@asynccontextmanager
async def working(rest: Rest) -> AsyncIterator[asyncio.Task[None]]:
    """Process bulk operations while the block lasts, as a REST process does."""
    task = asyncio.create_task(turns.run(rest.app.state.context))
    yield task
    task.cancel()
    await asyncio.wait({task})
