"""Requests that are open with a key (a stream, a wait): they are ended when the key is revoked.

Every request passes through here, so its context manager is neither a generator nor an object of its
own: either took half as long again.
"""

import asyncio
import math
from collections.abc import Collection
from types import TracebackType

import structlog

from hocket.kit.process import clock
from hocket.schemas.access.keys import UNKNOWN, KeyRefused, Principal

MAX_TIMER_S = 86_400.0
"""The longest time that a request with a token or a session may be open."""

log = structlog.get_logger(__name__)


class OpenRequests:
    """The open requests of a process. Each is a task, which opens at most once. This object is the
    context manager of them all, because it identifies each by its task."""

    def __init__(self) -> None:
        self._open: dict[asyncio.Task[object], tuple[str, bytes]] = {}
        """The key of each request, and the hash of the secret that it was opened with."""
        self._endings: dict[asyncio.Task[object], asyncio.TimerHandle] = {}

    def open(self, bearer: Principal) -> "OpenRequests":
        """Open a block in which the current task is cancelled if the key is revoked; the block then
        raises KeyRefused."""
        task = asyncio.current_task()
        assert task is not None, "requests are answered in tasks"
        self._open[task] = bearer.row_id or bearer.key_id, bearer.secret_sha256
        # nothing else reports that a token or a session has expired
        ends_at_s = bearer.expires_at_s if bearer.is_token else bearer.session_ends_at_s
        if ends_at_s < math.inf:
            left_s = max(ends_at_s - clock.now_ms() / 1000, 0.0)
            self._endings[task] = asyncio.get_running_loop().call_later(
                min(left_s, MAX_TIMER_S), self._end_request, task
            )
        return self

    def __enter__(self) -> None:
        """Do nothing: `open` has registered the task."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self._endings and (ending := self._endings.pop(task, None)) is not None:
            ending.cancel()
        was_ended = self._open.pop(task, None) is None
        if was_ended and isinstance(error, asyncio.CancelledError):
            task.uncancel()
            raise KeyRefused(reason=UNKNOWN) from None

    def end(self, key_id: str, *, kept: Collection[bytes] = ()) -> None:
        """Cancel the requests that are open with a key, except those opened with a secret whose hash is
        in `kept`."""
        found = self._open.items()
        for task in [task for task, (by, shown) in found if by == key_id and shown not in kept]:
            del self._open[task]
            log.info("request_ended", reason="its key does not count any more", key=key_id)
            task.cancel()

    def _end_request(self, task: asyncio.Task[object]) -> None:
        if (opened := self._open.pop(task, None)) is not None:
            log.info("request_ended", reason="its token or session has expired", key=opened[0])
            task.cancel()
