"""Ends a worker process whose event loop stands still: an async function computes without a pause.

Nothing else runs in such a process: no result leaves, no health is told. Its steps go to other workers
when their leases run out (`ack_wait_s`), and whoever supervises the process starts it anew. The timer is
one of the interpreter's own C threads, so that code which never gives the interpreter back is stopped
too; it writes where every thread stood to standard error.
"""

import asyncio
import faulthandler
import sys

BLOCKED_S = 60.0
TICKS = 6
"""How often the timer is wound up in its time."""


class LoopWatchdog:
    """Watches the running event loop from `start` to `stop`; `blocked_s` 0 watches nothing."""

    def __init__(self, blocked_s: float = BLOCKED_S) -> None:
        self._blocked_s = blocked_s
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """End the process from now on where the loop stands still too long."""
        if self._blocked_s > 0:
            self._wind()

    def stop(self) -> None:
        """Watch no longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            faulthandler.cancel_dump_traceback_later()

    def _wind(self) -> None:
        faulthandler.dump_traceback_later(self._blocked_s, exit=True, file=sys.stderr)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._blocked_s / TICKS, self._wind)
