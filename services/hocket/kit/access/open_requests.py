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
    """Those of a process: each is a task, and opens once."""

    def __init__(self) -> None:
        self._open: dict[asyncio.Task[object], str] = {}

    def open(self, bearer: Principal) -> "OpenRequest":
        """End the present task where the key goes inside the block; then raise KeyRefused."""
        return OpenRequest(self, self._open, bearer)

    def end_request(self, task: asyncio.Task[object]) -> None:
        """End a request whose token ends."""
        if (key_id := self._open.pop(task, None)) is not None:
            log.info("request_ended", reason="its token has expired", key=key_id)
            task.cancel()

    def end(self, key_id: str) -> None:
        """End all that are open with a key."""
        for task in [task for task, by in self._open.items() if by == key_id]:
            del self._open[task]
            log.info("request_ended", reason="its key does not count any more", key=key_id)
            task.cancel()


class OpenRequest:
    """The block in which a task is open with a key."""

    __slots__ = ("_bearer", "_ending", "_open", "_requests", "_task")

    def __init__(
        self, requests: OpenRequests, tasks: dict[asyncio.Task[object], str], bearer: Principal
    ) -> None:
        self._requests = requests
        self._open = tasks
        self._bearer = bearer
        self._ending: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        task, bearer = asyncio.current_task(), self._bearer
        assert task is not None, "requests are answered in tasks"
        self._task = task
        self._open[task] = bearer.row_id or bearer.key_id
        if bearer.is_token:  # of whose end nobody else tells
            left_s = max(bearer.expires_at_s - clock.now_ms() / 1000, 0.0)
            self._ending = asyncio.get_running_loop().call_later(
                min(left_s, MAX_TIMER_S), self._requests.end_request, task
            )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._ending is not None:
            self._ending.cancel()
        was_ended = self._open.pop(self._task, None) is None
        if was_ended and isinstance(error, asyncio.CancelledError):
            self._task.uncancel()
            raise KeyRefused(reason=UNKNOWN) from None
