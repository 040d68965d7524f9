"""Ends a process that is out of memory, so that it is restarted as after a crash.

When an allocation fails, anything may be half done: a callback that never ran, a task that ended, an
event that was partly applied. Recovery from a crash is well understood, so such a process ends at once,
as if it had crashed: where a MemoryError caused by the shortage is caught (`end_if_short`), escapes from
a callback or a task (`note`), or is logged (`end_where_logged`, `Ending`). Ending frees what the process
held. A single allocation that was too large is not a shortage: it fails only for its caller. A process
at its limit that can reuse its own memory carries on, and a connection that broke because of it is
re-established by its client.

Whether there is memory is tested by allocating PROBE_BYTES for a moment. This detects limits on the
address space and on committed memory (`ulimit -v`, `vm.overcommit_memory=2`). A container's limit is
enforced by the kernel, which kills the process, with the same effect.
"""

import asyncio
import logging
import mmap
import os
import sys
from collections import deque
from collections.abc import MutableMapping
from traceback import clear_frames, walk_tb
from typing import Any

PROBE_BYTES = 8 * 1024 * 1024
"""What a process must be able to allocate, which is the size of a thread's stack."""
EXIT_CODE = 1
RECONNECTS = "nats."
"""Prefix of the loggers of a client that recovers from every failure (`kit/nats`)."""
_log = logging.getLogger("asyncio")
_SAID = (
    b'{"event":"out_of_memory","level":"error","reason":"This process has no memory left. It ends,'
    b' and is started again; give it more, or less to do at a time (docs/reference/limits.md)."}\n'
)


def is_short() -> bool:
    """Tell whether this process cannot allocate memory now."""
    try:
        mmap.mmap(-1, PROBE_BYTES).close()
    except (OSError, MemoryError):
        return True
    return False


def end_if_short(error: BaseException) -> None:
    """End this process if an error was caused by a shortage of memory, and return otherwise. What the
    failed code held is released before the test."""
    if isinstance(error, MemoryError) or isinstance(error.__cause__, MemoryError):
        clear_frames(error.__traceback__)
        if is_short():
            _say_where(error)
            _end()


def note(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Handle an exception in a process's event loop; the loop's exception handler."""
    error = context.get("exception")
    if "transport" in context and isinstance(error, MemoryError):
        _log.warning("%s: %r", context.get("message"), error)
        return
    if error is not None:
        end_if_short(error)
    loop.default_exception_handler(context)


def end_where_logged(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> Any:
    """Check the exception of a log line; a processor for structlog."""
    error = event.get("exc_info")
    if error is True:
        error = sys.exc_info()[1]
    if isinstance(error, BaseException):
        end_if_short(error)
    return event


class Ending(logging.Filter):
    """A filter for `logging` that checks the exception of each line, and lets every line pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not record.name.startswith(RECONNECTS):
            end_if_short(error)
        return True


def _say_where(error: BaseException) -> None:
    """Write where the allocation failed, if there is enough memory for that."""
    try:
        last = deque(walk_tb(error.__traceback__), maxlen=1)[0][0].f_code
        os.write(2, b"MemoryError in %b %b\n" % (last.co_filename.encode(), last.co_name.encode()))
    except (MemoryError, IndexError):
        return


def _end() -> None:
    """End the process without allocating anything."""
    os.write(2, _SAID)
    os._exit(EXIT_CODE)
