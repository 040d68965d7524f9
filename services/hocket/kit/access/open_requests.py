"""Requests that are open with a key (a stream, a wait): they are ended when their key goes."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

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

    @contextmanager
    def open(self, bearer: Principal) -> Iterator[None]:
        """End the present task where the key goes inside the block; then raise KeyRefused."""
        task = asyncio.current_task()
        assert task is not None, "requests are answered in tasks"
        key_id = bearer.row_id or bearer.key_id
        tasks = self._open.setdefault(key_id, set())
        tasks.add(task)
        ending = self._ends_by_itself(bearer, key_id, task)
        try:
            yield
        except asyncio.CancelledError:
            if task in tasks:
                raise
            task.uncancel()
            raise KeyRefused(reason=UNKNOWN) from None
        finally:
            if ending is not None:
                ending.cancel()
            tasks.discard(task)
            if not tasks and self._open.get(key_id) is tasks:
                del self._open[key_id]

    def _ends_by_itself(
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
