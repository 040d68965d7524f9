"""A small disk that can be filled: a tmpfs in a mount namespace of this process alone, which the kernel
removes with it. A machine that allows no mounts says so, and the plays on a disk are skipped.
"""

import os
import subprocess
import sys
from pathlib import Path

NAMESPACE = "HOCKET_EXHAUSTION_NAMESPACE"
CHUNK = b"\0" * (256 * 1024)


def mounts_are_allowed() -> bool:
    """Tell whether a process here may have mounts of its own."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return False  # the embedded Postgres needs accounts that a user's namespace has not
    tried = subprocess.run(
        ["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False
    )
    return tried.returncode == 0


class SmallDisk:
    """A file system of `mib` MiB over an empty folder. Made only where NAMESPACE is set: see `enter`."""

    def __init__(self, folder: Path, mib: int) -> None:
        assert os.environ.get(NAMESPACE), "the mount must end with this process"
        self.folder = folder
        options = f"size={mib}m,mode=755"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)
        self._filling = folder / "filling"

    @property
    def free_bytes(self) -> int:
        """What is free now."""
        found = os.statvfs(self.folder)
        return found.f_bavail * found.f_frsize

    def fill(self, *, leave_bytes: int = 0) -> None:
        """Take all room but `leave_bytes`; none at all where that is 0."""
        with self._filling.open("ab", buffering=0) as file:
            while (left := self.free_bytes - leave_bytes) > 0:
                try:
                    file.write(CHUNK[: min(left, len(CHUNK))])
                except OSError:
                    return

    def free(self) -> None:
        """Give back what `fill` took."""
        self._filling.unlink(missing_ok=True)

    def remove(self) -> None:
        """Take the disk away, with what is on it; its folder is empty again."""
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)


def enter(arguments: list[str]) -> None:
    """Run this program again in a mount namespace of its own, in the place of this process."""
    environment = {**os.environ, NAMESPACE: "1"}
    command = ["unshare", "-m", "--propagation", "private", sys.executable, *arguments]
    os.execvpe(command[0], command, environment)
