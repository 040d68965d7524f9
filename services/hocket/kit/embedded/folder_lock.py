"""Holds a data folder for one process.

The lock is the kernel's (`flock`), so it is released when the process ends, however that happens.
The file's content only names the holder for the error message.
"""

import fcntl
import os
import stat
from pathlib import Path

from hocket.kit.embedded.errors import DataFolderInUse, DataFolderUnusable

LOCK_FILE = "lock"
HOLDER_MAX_BYTES = 32


class FolderLock:
    """The exclusive right to use one data folder, or what `file` stands for in it, from `acquire` to
    `release`."""

    def __init__(self, folder: Path, file: str = LOCK_FILE) -> None:
        self._folder = folder
        self._file = file
        self._fd: int | None = None

    def acquire(self) -> None:
        """Create the folder if needed and lock it; raises `DataFolderInUse` or `DataFolderUnusable`."""
        assert self._fd is None, "the lock is already held by this object"
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_owner(self._folder)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            fd = os.open(self._folder / self._file, flags, 0o600)
        except OSError as error:
            raise DataFolderUnusable(folder=self._folder, reason=error.strerror) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(fd, HOLDER_MAX_BYTES).decode("ascii", "replace").strip()
            os.close(fd)
            raise DataFolderInUse(folder=self._folder, pid=holder or "unknown") from error
        try:
            os.ftruncate(fd, 0)
            os.write(fd, f"{os.getpid()}\n".encode("ascii"))
        except OSError as error:  # it is not a file, or the disk is full
            os.close(fd)
            raise DataFolderUnusable(folder=self._folder, reason=error.strerror) from error
        self._fd = fd

    def release(self) -> None:
        """Release the folder."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _check_owner(folder: Path) -> None:
    """Refuse a folder in which others could have placed their own links, keys or passwords."""
    found = folder.stat()
    if os.geteuid() not in (0, found.st_uid) and found.st_uid != 0:
        raise DataFolderUnusable(folder=folder, reason="it belongs to another user")
    if os.geteuid() == 0 and found.st_uid != 0:
        for entry in folder.iterdir():
            if entry.is_symlink():
                reason = f"`{entry.name}` is a link owned by another user, which root would follow"
                raise DataFolderUnusable(folder=folder, reason=reason)
    if found.st_mode & stat.S_IWOTH:
        raise DataFolderUnusable(folder=folder, reason="every user may write to it")
