"""The end of a process that has no memory: it is started again, as after a crash.

Where an allocation fails, anything may be half done: a callback that never ran, a task that ended, an
event of which a part was applied. What a crash leaves is known and gone on from, so that is how such a
process ends: at once where a MemoryError that came of the shortage is caught (`end_if_short`) or falls
out of a callback or a task (`note`), and where there was no memory to be had for MAX_SHORT_S (`watch`,
in a thread, whatever the event loop does). Ending frees what the process held. A single allocation that
was too large is no shortage: it costs whoever asked for it.

Whether there is memory is asked by taking PROBE_BYTES for a moment. That sees limits of the address
space and of what the machine commits (`ulimit -v`, `vm.overcommit_memory=2`); a container's limit is
kept by the kernel, which kills the process, to the same effect.
"""

import asyncio
import mmap
import os
import threading
import time
from traceback import clear_frames
from typing import Any

PROBE_BYTES = 8 * 1024 * 1024
"""What a process must be able to get; a thread's stack is as large."""
WATCH_S = 0.5
MAX_SHORT_S = 5.0
EXIT_CODE = 1
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
            _end()


def note(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """The exception handler of a process's event loop."""
    error = context.get("exception")
    if error is not None:
        end_if_short(error)
    loop.default_exception_handler(context)


def watch() -> None:
    """Look after the memory of this process from now on, in a thread of its own."""
    threading.Thread(target=_watch, name="memory-watch", daemon=True).start()


def _watch() -> None:
    short_since_s: float | None = None
    while True:
        time.sleep(WATCH_S)
        if not is_short():
            short_since_s = None
        elif short_since_s is None:
            short_since_s = time.monotonic()
        elif time.monotonic() - short_since_s >= MAX_SHORT_S:
            _end()


def _end() -> None:
    """End without anything that would have to be allocated."""
    os.write(2, _SAID)
    os._exit(EXIT_CODE)
