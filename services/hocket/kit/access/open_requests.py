"""Requests that are open with a key (a stream, a wait): they are ended when their key goes."""

import asyncio
from types import TracebackType

import structlog

from hocket.kit.process import clock
from hocket.schemas.access.keys import UNKNOWN, KeyRefused, Principal

MAX_TIMER_S = 86_400.0
"""For how long a request with a token may be open at most."""

log = structlog.get_logger(__name__)


class OpenRequest:
    """One of them, while its block lasts. (A class, since a generator costs each request 3 us more.)"""

    __slots__ = ("_bearer", "_ending", "_key_id", "_requests", "_task", "_tasks")

    def __init__(self, requests: "OpenRequests", bearer: Principal) -> None:
        self._requests = requests
        self._bearer = bearer

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None, "requests are answered in tasks"
        self._task = task
        self._key_id = self._bearer.row_id or self._bearer.key_id
        self._tasks = self._requests.begin(self._key_id, task)
        self._ending = self._requests.ends_by_itself(self._bearer, self._key_id, task)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        is_ended = self._task not in self._tasks
        if self._ending is not None:
            self._ending.cancel()
        self._requests.leave(self._key_id, self._task, self._tasks)
        if is_ended and isinstance(error, asyncio.CancelledError):
            self._task.uncancel()
            raise KeyRefused(reason=UNKNOWN) from None


class OpenRequests:
    """Those of a process, by key."""

    def __init__(self) -> None:
        self._open: dict[str, set[asyncio.Task[object]]] = {}

    def open(self, bearer: Principal) -> "OpenRequest":
        """End the present task where the key goes inside the block; then raise KeyRefused."""
        return OpenRequest(self, bearer)

    def begin(self, key_id: str, task: asyncio.Task[object]) -> set[asyncio.Task[object]]:
        """Note a task; return those that are open with its key, which it leaves when they are ended."""
        tasks = self._open.get(key_id)
        if tasks is None:
            tasks = self._open[key_id] = set()
        tasks.add(task)
        return tasks

    def leave(
        self, key_id: str, task: asyncio.Task[object], tasks: set[asyncio.Task[object]]
    ) -> None:
        """Forget a task."""
        tasks.discard(task)
        if not tasks and self._open.get(key_id) is tasks:
            del self._open[key_id]

    def ends_by_itself(
        self, bearer: Principal, key_id: str, task: asyncio.Task[object]
    ) -> asyncio.TimerHandle | None:
        """End a request when the token ends that it came with, of which nobody else tells."""
        if not bearer.is_token:
            return None
        left_s = max(bearer.expires_at_s - clock.now_ms() / 1000, 0.0)
        return asyncio.get_running_loop().call_later(
            min(left_s, MAX_TIMER_S), self._end_request, key_id, task
        )

    def _end_request(self, key_id: str, task: asyncio.Task[object]) -> None:
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
