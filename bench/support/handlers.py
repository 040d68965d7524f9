"""Handlers for benchmarks. They do nothing, so that only Hocket itself is measured."""

import asyncio
import json
import os
import time
from functools import cache
from typing import Any

from hocket.workers.replay import Task, sleep
from hocket.workers.runtime.execution.context import Context

JOURNAL = "WORKFLOW_JOURNAL"
"""Environment variable that names the file to which handlers write their journal."""


async def pass_along(value: Any) -> Any:
    """Return the input."""
    return value


async def rest(given: dict[str, float]) -> None:
    """Sleep for `seconds`, without using CPU time."""
    await asyncio.sleep(given["seconds"])


async def replay(task: Task, context: Context) -> Any:
    """Sleep as long as the original task took, and record its begin and end (monotonic clock, which all
    processes of the machine share)."""
    begun_s = time.monotonic()
    _write(context.step.run_id, task.task, "begin", begun_s)
    done = await sleep(task)
    _write(context.step.run_id, task.task, "end", time.monotonic())
    return done


async def call_model(value: dict[str, Any], context: Context) -> str:
    """Call a model with the run's id; record when the call is cancelled (wall clock)."""
    try:
        reply = await context.model(value["model"], context.step.run_id)
    except asyncio.CancelledError:
        _write(context.step.run_id, value["model"], "cancelled", time.time())
        raise
    return reply.text


async def call_in_turn(value: dict[str, Any], context: Context) -> str:
    """Call a model `calls` times, one after another, and return the last answer."""
    text = ""
    for _ in range(value["calls"]):
        text = (await context.model(value["model"], value["text"], max_tokens=16)).text
    return text


def _write(run_id: str, task: str, what: str, at_s: float) -> None:
    line = json.dumps([run_id, task, what, at_s]) + "\n"
    os.write(
        _journal(), line.encode()
    )  # one write per line: appends by several processes do not mix


@cache
def _journal() -> int:
    return os.open(os.environ[JOURNAL], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
