"""What one call costs: the connections that it holds, and the first thing that went wrong with them.

The SDK hands requests of one session to tasks of its own, and what goes wrong there would end the
session for everybody. So our transport tells the call's guard, which ends the call.
"""

import asyncio
import contextvars
from collections.abc import Callable
from typing import Optional

from hocket.schemas.errors import HocketError


class Guard:
    """That of one call. `broken` is done when something went wrong."""

    def __init__(self) -> None:
        self.broken: asyncio.Future[HocketError] = asyncio.get_running_loop().create_future()
        self.is_closed = False
        self._held: dict[int, Callable[[], object]] = {}
        self._number = 0

    def breaks(self, error: HocketError) -> None:
        """Note what went wrong first."""
        if not self.broken.done():
            self.broken.set_result(error)

    def holds(self, release: Callable[[], object]) -> int:
        """Note what has to be let go when the call ends; return its number."""
        if self.is_closed:
            release()
        self._number += 1
        self._held[self._number] = release
        return self._number

    def let_go(self, number: int) -> None:
        """Forget what was let go."""
        self._held.pop(number, None)

    def close(self) -> None:
        """End the call: let go of all that it holds."""
        self.is_closed = True
        held, self._held = self._held, {}
        for release in held.values():
            release()


GUARD: contextvars.ContextVar[Optional[Guard]] = contextvars.ContextVar("hocket_mcp_guard")  # noqa: UP045
