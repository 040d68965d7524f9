"""Slots that stay taken after their attempt ended: by a thread, which cannot be stopped, or by a handler
that takes no notice of being cancelled. They are free again when that ends.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import structlog

log = structlog.get_logger()

LeftBehind = Future[Any] | asyncio.Task[None]


class HeldSlots:
    """Counts the held slots of one node type; `changed` is called whenever their number changes."""

    def __init__(self, node_type: str, slots: int, changed: Callable[[], None]) -> None:
        self.count = 0
        self._node_type = node_type
        self._slots = slots
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._overrun_since_s: float | None = None

    def hold(self, left_behind: LeftBehind, then: Callable[[], None] = lambda: None) -> None:
        """Keep a slot taken until what an attempt left behind has ended; call `then`."""
        self._add(1)
        log.warning("slot_held", type=self._node_type, held=self.count, slots=self._slots)

        def ended(_left: Any) -> None:
            with suppress(RuntimeError):  # the loop ended before it
                self._loop.call_soon_threadsafe(self._free, then)

        left_behind.add_done_callback(ended)

    def overrun_s(self) -> float:
        """Return for how long more than half of the slots have been held; 0 where they are not."""
        since_s = self._overrun_since_s
        return 0.0 if since_s is None else max(self._loop.time() - since_s, 1e-9)

    def _free(self, then: Callable[[], None]) -> None:
        then()
        self._add(-1)

    def _add(self, change: int) -> None:
        self.count += change
        if self.count * 2 <= self._slots:
            self._overrun_since_s = None
        elif self._overrun_since_s is None:
            self._overrun_since_s = self._loop.time()
        self._changed()
