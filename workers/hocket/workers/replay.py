"""Steps that take a given time: imported workflows run them until real work replaces them."""

from typing import Any

from pydantic import BaseModel, Field

from hocket.workers.builtin import MAX_SECONDS, take


class Task(BaseModel):
    """A task that somebody else's system once ran, and what it took."""

    task: str
    seconds: float = Field(ge=0, le=MAX_SECONDS)


async def sleep(task: Task) -> dict[str, Any]:
    """Sleep for at least `seconds`."""
    return {"task": task.task, "seconds": await take(task.seconds)}
