"""The worker of the conformance suite, written with the SDK: `hocket-worker sdk_worker:worker`."""

import asyncio
from typing import Any

from hocket.worker import Worker

worker = Worker()


@worker.node("conformance.step", concurrency=4)
async def step(task: dict[str, Any]) -> Any:
    """Do what the task says."""
    match task["do"]:
        case "echo":
            return task["value"]
        case "sleep":
            await asyncio.sleep(task["ms"] / 1000)
            return task.get("value")
        case "fail":
            raise ValueError(task["message"])
        case "length":
            return len(task["value"])
        case "large":
            return {"text": "y" * task["chars"]}
