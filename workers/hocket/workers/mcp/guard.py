"""Guards of calls: each knows the connections that its call holds, and the first error on them.

The SDK handles the requests of a session in its own tasks, and an error there would end the session for
all calls. So our transport reports errors to the guard of the call, which ends only that call.
"""

import asyncio
import contextvars
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Optional

from hocket.schemas.errors import HocketError


@dataclass(slots=True)
class Received:
    """How much of an answer has arrived, over all of its streams."""

    size_bytes: int = 0
    events: int = 0
    streams: int = 0
    """The streams that continue the first one."""
    is_resumable: bool = False
    """Whether an event had an id, from which another stream can continue."""
    parts: list[Any] = field(default_factory=list)
    """The parts of a tool's answer that the SDK did not get, because they are many."""


class Guard:
    """The guard of one call, whose requests follow each other. `broken` is done once something has gone
    wrong; `answered` is called when the server has begun to answer the call of its tool."""

    def __init__(self, answered: Callable[[], None] | None = None) -> None:
        self._answered = answered
        self.broken: asyncio.Future[HocketError] = asyncio.get_running_loop().create_future()
        self.is_closed = False
        self.session_status = 0
        """The HTTP status of the latest answer, if its request named a session; otherwise 0."""
        self.received = Received()
        """What has arrived of the latest answer."""
        self._held: dict[int, Callable[[], object]] = {}
        self._number = 0

    def is_answered(self) -> None:
        """Note that the server has begun to answer, the first time."""
        answered, self._answered = self._answered, None
        if answered is not None:
            answered()

    def breaks(self, error: HocketError) -> None:
        """Record an error, unless there already is one."""
        if not self.broken.done():
            self.broken.set_result(error)

    def holds(self, release: Callable[[], object]) -> int:
        """Register something to be released when the call ends; return its number."""
        if self.is_closed:
            release()
        self._number += 1
        self._held[self._number] = release
        return self._number

    def let_go(self, number: int) -> None:
        """Forget something that has been released."""
        self._held.pop(number, None)

    def close(self) -> None:
        """End the call and release everything that it holds."""
        self.is_closed = True
        held, self._held = self._held, {}
        for release in held.values():
            release()


GUARD: contextvars.ContextVar[Optional[Guard]] = contextvars.ContextVar("hocket_mcp_guard")  # noqa: UP045
