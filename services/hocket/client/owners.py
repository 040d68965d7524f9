"""To whom open connections belong. A forked process that used those of its parent would read answers to
its parent's requests, and an event loop cannot use those of another one."""

import asyncio
import os

Owner = tuple[int, object]


def owner() -> Owner:
    """Return this process."""
    return os.getpid(), None


def async_owner() -> Owner:
    """Return this process, and the event loop that is running."""
    return os.getpid(), asyncio.get_running_loop()
