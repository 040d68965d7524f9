"""Background tasks of the ownership: if one fails, the whole fails."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from hocket.kit.process.task_stop import stop_tasks


class Background:
    """Tasks that are cancelled together; `changed` is set when one fails."""

    def __init__(self, changed: asyncio.Event) -> None:
        self._changed = changed
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def raise_failure(self) -> None:
        """Raise the error of the first task that failed; return if none has."""
        if self._failed.done():
            self._failed.result()

    async def cancel(self, *others: asyncio.Task[None]) -> None:
        """Cancel all tasks, and the given others, and wait until they have ended."""
        await stop_tasks([*others, *self._tasks])

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or task.exception() is None or self._failed.done():
            return
        error = task.exception()
        assert error is not None, "looked at just now"
        self._failed.set_exception(error)
        self._changed.set()
