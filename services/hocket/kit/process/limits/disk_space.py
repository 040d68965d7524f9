"""Checks whether the disk of a folder has room: below a threshold, no new work is started there.

Work in progress needs room to finish (logs, results, the journals of NATS and Postgres), so the
threshold is well above zero. States: room, and low, from when less than `min_free_bytes` is free until
ENOUGH_SHARE times as much is. The disk is checked at most every LOOK_EVERY_S.
"""

import shutil
import time
from pathlib import Path

from hocket.kit.process.clock import now_ms
from hocket.schemas.errors import ErrorClass, HocketError

LOOK_EVERY_S = 0.5
ENOUGH_SHARE = 1.1
RETRY_AFTER_MS = 5_000
MIB = 1024 * 1024
MIN_FREE_MIB = 512
"""The space that `hocket up` keeps free, unless HOCKET_MIN_FREE_DISK_MIB is set."""
COMPONENT = "disk"
"""The component of a process's health that says whether there is room."""


class DiskLow(HocketError):
    """No new work is accepted: the disk of `{folder}` has {free_mib} MiB free, and Hocket reserves
    {min_free_mib} MiB for work in progress. Free some space; work then resumes by itself."""

    code = "disk_low"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True


class DiskSpace:
    """Watches the free space of a file system. With a `min_free_bytes` of 0, it is not watched, and
    there is always room."""

    def __init__(self, folder: Path, *, min_free_bytes: int) -> None:
        self._folder = folder
        self._min_free_bytes = min_free_bytes
        self._free_bytes = 0
        self._low = False
        self._looked_at_s = float("-inf")

    @property
    def low(self) -> bool:
        """Whether too little is free for new work."""
        if not self._min_free_bytes:
            return False
        now_s = time.monotonic()
        if now_s - self._looked_at_s >= LOOK_EVERY_S:
            self._looked_at_s = now_s
            self._look()
        return self._low

    @property
    def reason(self) -> str:
        """Why no new work is accepted; empty while there is room."""
        return str(self.error()) if self.low else ""

    def error(self) -> DiskLow:
        """Return the error for callers that want to start new work."""
        return DiskLow(
            folder=self._folder,
            free_mib=self._free_bytes // MIB,
            min_free_mib=self._min_free_bytes // MIB,
            retry_after_ms=RETRY_AFTER_MS,
            retry_at_ms=now_ms() + RETRY_AFTER_MS,
        )

    def check(self) -> None:
        """Raise DiskLow if no new work may be started."""
        if self.low:
            raise self.error()

    def _look(self) -> None:
        self._free_bytes = shutil.disk_usage(_nearest(self._folder)).free
        share = ENOUGH_SHARE if self._low else 1.0
        self._low = self._free_bytes < share * self._min_free_bytes


UNWATCHED = DiskSpace(Path("/"), min_free_bytes=0)
"""For callers without a disk to watch."""


def _nearest(folder: Path) -> Path:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder
