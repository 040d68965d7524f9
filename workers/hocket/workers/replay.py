"""Steps that take as long as they are told: what imported workflows run until real work takes their
place."""

from typing import Any

from pydantic import BaseModel, Field

from hocket.workers.builtin import MAX_SECONDS, take


class Task(BaseModel):
    """A task that somebody else's system once ran, and what it took."""

    task: str
    seconds: float = Field(ge=0, le=MAX_SECONDS)


async def sleep(task: Task) -> dict[str, Any]:
    """Take `seconds`, never less."""
    return {"task": task.task, "seconds": await take(task.seconds)}
