"""Steps that take as long as they are told: what imported workflows run until real work takes their
place."""

import asyncio
import math
from typing import Any

from pydantic import BaseModel, Field

from hocket.kit.clock import monotonic_ms

MAX_SECONDS = 24 * 3600.0


class Task(BaseModel):
    """A task that somebody else's system once ran, and what it took."""

    task: str
    seconds: float = Field(ge=0, le=MAX_SECONDS)


async def sleep(task: Task) -> dict[str, Any]:
    """Take `seconds`, never less."""
    begun_ms = monotonic_ms()
    until_ms = begun_ms + 1000 * task.seconds
    while (left_ms := until_ms - monotonic_ms()) > 0:  # noqa: ASYNC110 - timers may come early
        await asyncio.sleep(math.ceil(left_ms) / 1000)
    return {"task": task.task, "seconds": (monotonic_ms() - begun_ms) / 1000}
