"""Tasks that nobody awaits: each has its own context, is referenced until it ends, and has its failure
logged."""

import asyncio
import contextvars
from collections.abc import Coroutine
from typing import Any

import structlog

log = structlog.get_logger()


class Background:
    """The tasks of one node type. None of them sees what another puts into its context."""

    def __init__(self, node_type: str) -> None:
        self._node_type = node_type
        self._loop = asyncio.get_running_loop()
        self._bare = contextvars.copy_context()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_busy(self) -> bool:
        """Whether a task runs."""
        return bool(self._tasks)

    def start(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task in a fresh context, free of what a handler may have put into the current one."""
        task = self._loop.create_task(coroutine, context=self._bare.copy())
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def ended(self) -> None:
        """Wait until none is running."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("worker_task_failed", type=self._node_type, exc_info=error)
