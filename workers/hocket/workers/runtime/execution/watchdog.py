"""Ends a worker process whose event loop is blocked because an async function computes without yielding.

Nothing else runs in such a process: no results are sent and no health is reported. Its steps go to other
workers when `ack_wait_s` runs out, and its supervisor restarts it. The timer runs in one of the
interpreter's own C threads, so that it also stops code that never releases the interpreter; it writes
the stack of every thread to standard error.
"""

import asyncio
import faulthandler
import sys

BLOCKED_S = 60.0
TICKS = 6
"""How often the timer is reset within `blocked_s`."""


class LoopWatchdog:
    """Watches the running event loop from `start` to `stop`; `blocked_s` of 0 turns it off."""

    def __init__(self, blocked_s: float = BLOCKED_S) -> None:
        self._blocked_s = blocked_s
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start watching: from now on the process ends if the loop is blocked for `blocked_s`."""
        if self._blocked_s > 0:
            self._wind()

    def stop(self) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            faulthandler.cancel_dump_traceback_later()

    def _wind(self) -> None:
        faulthandler.dump_traceback_later(self._blocked_s, exit=True, file=sys.stderr)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._blocked_s / TICKS, self._wind)
