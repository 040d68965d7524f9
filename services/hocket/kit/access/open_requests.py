"""Requests that are open with a key (a stream, a wait): they are ended when their key goes.

Every request passes here, so that its block is no generator: that took half as long again.
"""

import asyncio
from types import TracebackType

import structlog

from hocket.kit.process import clock
from hocket.schemas.access.keys import UNKNOWN, KeyRefused, Principal

MAX_TIMER_S = 86_400.0
"""For how long a request with a token may be open at most."""

log = structlog.get_logger(__name__)


class OpenRequests:
    """Those of a process, by key."""

    def __init__(self) -> None:
        self._open: dict[str, set[asyncio.Task[object]]] = {}

    def open(self, bearer: Principal) -> "OpenRequest":
        """End the present task where the key goes inside the block; then raise KeyRefused."""
        return OpenRequest(self, bearer)

    def enter(self, key_id: str, task: asyncio.Task[object]) -> set[asyncio.Task[object]]:
        """Count a task among those that are open with a key; return these."""
        tasks = self._open.get(key_id)
        if tasks is None:
            tasks = self._open[key_id] = set()
        tasks.add(task)
        return tasks

    def leave(self, key_id: str, tasks: set[asyncio.Task[object]]) -> None:
        """Forget the tasks of a key of which none is left."""
        if self._open.get(key_id) is tasks:
            del self._open[key_id]

    def end_request(self, key_id: str, task: asyncio.Task[object]) -> None:
        """End a request whose token ends."""
        self._open.get(key_id, set()).discard(task)
        log.info("request_ended", reason="its token has expired", key=key_id)
        task.cancel()

    def end(self, key_id: str) -> None:
        """End all that are open with a key."""
        tasks = self._open.pop(key_id, set())
        ending = list(tasks)
        tasks.clear()
        for task in ending:
            log.info("request_ended", reason="its key does not count any more", key=key_id)
            task.cancel()


class OpenRequest:
    """The block in which a task is open with a key."""

    __slots__ = ("_bearer", "_ending", "_key_id", "_requests", "_task", "_tasks")

    def __init__(self, requests: OpenRequests, bearer: Principal) -> None:
        self._requests = requests
        self._bearer = bearer
        self._key_id = bearer.row_id or bearer.key_id
        self._ending: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None, "requests are answered in tasks"
        self._task = task
        self._tasks = self._requests.enter(self._key_id, task)
        if self._bearer.is_token:  # of whose end nobody else tells
            left_s = max(self._bearer.expires_at_s - clock.now_ms() / 1000, 0.0)
            self._ending = asyncio.get_running_loop().call_later(
                min(left_s, MAX_TIMER_S), self._requests.end_request, self._key_id, task
            )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        task, tasks = self._task, self._tasks
        if self._ending is not None:
            self._ending.cancel()
        was_ended = task not in tasks
        tasks.discard(task)
        if not tasks:
            self._requests.leave(self._key_id, tasks)
        if was_ended and isinstance(error, asyncio.CancelledError):
            task.uncancel()
            raise KeyRefused(reason=UNKNOWN) from None
