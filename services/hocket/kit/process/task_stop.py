"""Stops tasks within a bounded time, so that a faulty task cannot block a shutdown."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Iterable
from typing import Any

import structlog

CANCEL_AGAIN_S = 1.0
"""A task that still runs this long after its cancellation is cancelled again: a library may have
swallowed the first one."""
STOP_S = 10.0
LEFT_BEHIND_S = 3.0
"""How long tasks that a process no longer needs may take to end."""

log = structlog.get_logger(__name__)


async def stop_tasks(tasks: Iterable[asyncio.Future[Any]], within_s: float = STOP_S) -> bool:
    """Cancel tasks and wait for their end, for at most `within_s`; tell whether all have ended. Their
    exceptions are not retrieved."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + within_s
    running = {task for task in tasks if not task.done()}
    while running and (left_s := until_s - loop.time()) > 0:
        for task in running:
            task.cancel()
        _, running = await asyncio.wait(running, timeout=min(CANCEL_AGAIN_S, left_s))
    if running:
        names = [task.get_name() for task in running if isinstance(task, asyncio.Task)]
        log.warning("tasks_not_stopped", tasks=sorted(names), within_s=within_s)
    return not running


async def ended(work: Awaitable[int]) -> int:
    """Do the work of a process and return its exit code. If a task then ignores its cancellation (a
    handler may), end the process with this code, because asyncio would wait for the task forever."""
    code = await work
    if not await stop_tasks(asyncio.all_tasks() - {asyncio.current_task()}, LEFT_BEHIND_S):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code
