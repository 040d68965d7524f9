"""The file that a child process writes its output to."""

import os
import stat
from pathlib import Path
from typing import BinaryIO

from hocket.schemas.errors import HocketError


class LogUnusable(HocketError):
    """The log `{path}` cannot be written: {reason}. Remove it, or choose another data folder."""

    code = "log_unusable"


def opened(log_path: Path) -> BinaryIO:
    """Open a log for appending, readable only by its owner. Raises LogUnusable, also for anything but a
    regular file: the owner of a folder could make root write through a link, or block on a pipe."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(log_path, flags, 0o600)
    except OSError as error:
        raise LogUnusable(path=log_path, reason=error.strerror) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise LogUnusable(path=log_path, reason="it is not a file")
    return os.fdopen(descriptor, "ab")


def shorten(log_path: Path, keep_bytes: int) -> None:
    """Rotate a log that has grown beyond `keep_bytes`, replacing the previously rotated one."""
    if log_path.exists() and log_path.stat().st_size > keep_bytes:
        log_path.replace(log_path.with_suffix(".log.1"))


def end_of(log_path: Path, *, start: int = 0, max_bytes: int) -> str:
    """Return at most the last `max_bytes` that were written after the byte offset `start`, as text."""
    if not log_path.exists():
        return ""
    with log_path.open("rb") as file:
        file.seek(max(start, log_path.stat().st_size - max_bytes))
        return file.read().decode("utf-8", "replace").strip()
