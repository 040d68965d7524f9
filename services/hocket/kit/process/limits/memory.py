"""The end of a process that has no memory: it is started again, as after a crash.

Where an allocation fails, anything may be half done: a callback that never ran, a task that ended, an
event of which a part was applied. What a crash leaves is known and gone on from, so that is how such a
process ends, at once where a MemoryError that came of the shortage is caught (`end_if_short`), falls out
of a callback or a task (`note`), or is logged (`end_where_logged`, `Ending`). Ending frees what the
process held. A single allocation that was too large is no shortage: it costs whoever asked for it; a
process at its limit that finds room in what it has goes on; and a connection that broke for it is made
anew by its client.

Whether there is memory is asked by taking PROBE_BYTES for a moment. That sees limits of the address
space and of what the machine commits (`ulimit -v`, `vm.overcommit_memory=2`); a container's limit is
kept by the kernel, which kills the process, to the same effect.
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
"""What a process must be able to get; a thread's stack is as large."""
EXIT_CODE = 1
RECONNECTS = "nats."
"""The logger of a client that comes back from everything (`kit/nats`)."""
_log = logging.getLogger("asyncio")
_SAID = (
    b'{"event":"out_of_memory","level":"error","reason":"This process has no memory left. It ends,'
    b' and is started again; give it more, or less to do at a time (docs/reference/limits.md)."}\n'
)


def is_short() -> bool:
    """Tell whether this process can get no memory now."""
    try:
        mmap.mmap(-1, PROBE_BYTES).close()
    except (OSError, MemoryError):
        return True
    return False


def end_if_short(error: BaseException) -> None:
    """End this process where an error comes of its having no memory; return where it does not. What the
    code that failed held is given back first."""
    if isinstance(error, MemoryError) or isinstance(error.__cause__, MemoryError):
        clear_frames(error.__traceback__)
        if is_short():
            _say_where(error)
            _end()


def note(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """The exception handler of a process's event loop."""
    error = context.get("exception")
    if "transport" in context and isinstance(error, MemoryError):
        _log.warning("%s: %r", context.get("message"), error)
        return
    if error is not None:
        end_if_short(error)
    loop.default_exception_handler(context)


def end_where_logged(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> Any:
    """Look at the exception of a line of structlog."""
    error = event.get("exc_info")
    if error is True:
        error = sys.exc_info()[1]
    if isinstance(error, BaseException):
        end_if_short(error)
    return event


class Ending(logging.Filter):
    """Looks at the exception of a line of `logging`, and lets every line pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not record.name.startswith(RECONNECTS):
            end_if_short(error)
        return True


def _say_where(error: BaseException) -> None:
    """Say where it failed, if there is as much memory as that."""
    try:
        last = deque(walk_tb(error.__traceback__), maxlen=1)[0][0].f_code
        os.write(2, b"MemoryError in %b %b\n" % (last.co_filename.encode(), last.co_name.encode()))
    except (MemoryError, IndexError):
        return


def _end() -> None:
    """End without anything that would have to be allocated."""
    os.write(2, _SAID)
    os._exit(EXIT_CODE)
