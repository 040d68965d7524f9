"""Rotates the log files of child processes while these write to them.

The children have the files open for appending, so a file is copied to `<name>.log.1`, which replaces the
previous copy, and then truncated to zero. Lines that are written in between are lost. If the disk has no
room for the copy, the file is truncated all the same.
"""

import asyncio
import os
import shutil
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

import structlog

MAX_BYTES = 20 * 1024 * 1024
"""Size limit of one file, and of its copy."""
LOOK_S = 10.0
COPY = ".log.1"

log = structlog.get_logger(__name__)


def shorten(path: Path, *, max_bytes: int = MAX_BYTES) -> bool:
    """Move the content of a log to its copy if it is longer than `max_bytes`; tell whether it was."""
    try:
        found = path.lstat()
        if found.st_size <= max_bytes or not stat.S_ISREG(found.st_mode):
            return False
    except FileNotFoundError:
        return False
    copy = path.with_suffix(COPY)
    try:
        copy.unlink(missing_ok=True)  # it could be a link to anything
        shutil.copyfile(path, copy)
    except OSError as error:
        copy.unlink(missing_ok=True)
        log.warning("log_not_kept", path=str(path), reason=str(error))
    os.truncate(path, 0)
    return True


async def keep_short(paths: Callable[[], Iterable[Path]]) -> None:
    """Rotate logs that have grown too long, checking every LOOK_S; cancel to stop."""
    while True:
        await asyncio.sleep(LOOK_S)
        for path in paths():
            try:
                await asyncio.to_thread(shorten, path)
            except OSError as error:
                log.warning("log_not_shortened", path=str(path), reason=str(error))
