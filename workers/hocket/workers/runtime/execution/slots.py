"""The slots of a node type: how many of them running attempts take, and how many are held after their
attempt has ended, by a thread, which cannot be stopped, or by a handler that ignores cancellation. Held
slots become free when the thread or handler ends.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import structlog

log = structlog.get_logger()

LeftBehind = Future[Any] | asyncio.Task[None]


def _nothing() -> None:
    """Do nothing."""


class Slots:
    """Counts slots; `held_changed` is called whenever the number of held slots changes."""

    def __init__(self, node_type: str, total: int, held_changed: Callable[[], None]) -> None:
        self.total = total
        self.running = 0
        """Slots of attempts whose time is not over."""
        self.held = 0
        self._node_type = node_type
        self._held_changed = held_changed
        self._loop = asyncio.get_running_loop()
        self._overrun_since_s: float | None = None

    @property
    def taken(self) -> int:
        """Slots in which nothing can start."""
        return self.running + self.held

    def begin(self) -> None:
        """Take a slot for an attempt."""
        self.running += 1

    def end(
        self, left_behind: LeftBehind | None = None, then: Callable[[], None] = _nothing
    ) -> None:
        """Give back an attempt's slot, which is held until what the attempt left behind has ended; then
        call `then`."""
        self.running -= 1
        if left_behind is None or left_behind.done():
            then()
        else:
            self._hold(left_behind, then)

    def overrun_s(self) -> float:
        """Return for how many seconds more than half of the slots have been held; 0 if they are not."""
        since_s = self._overrun_since_s
        return 0.0 if since_s is None else max(self._loop.time() - since_s, 1e-9)

    def _hold(self, left_behind: LeftBehind, then: Callable[[], None]) -> None:
        self._add(1)
        log.warning("slot_held", type=self._node_type, held=self.held, slots=self.total)

        def ended(_left: Any) -> None:
            with suppress(RuntimeError):  # the loop has ended already
                self._loop.call_soon_threadsafe(self._free, then)

        left_behind.add_done_callback(ended)

    def _free(self, then: Callable[[], None]) -> None:
        then()
        self._add(-1)

    def _add(self, change: int) -> None:
        self.held += change
        if self.held * 2 <= self.total:
            self._overrun_since_s = None
        elif self._overrun_since_s is None:
            self._overrun_since_s = self._loop.time()
        self._held_changed()
