"""A small disk that can be filled: a tmpfs in a mount namespace of this process, removed with it by the
kernel.

On a machine that does not allow mounts, the plays on a disk are skipped with that reason.
"""

import os
import subprocess
import sys
from pathlib import Path

NAMESPACE = "HOCKET_EXHAUSTION_NAMESPACE"
CHUNK = b"\0" * (256 * 1024)


def mounts_are_allowed() -> bool:
    """Return whether a process may have its own mounts here."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return False  # the embedded Postgres needs accounts that a user namespace does not have
    tried = subprocess.run(
        ["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False
    )
    return tried.returncode == 0


class SmallDisk:
    """A file system of `mib` MiB over an empty folder. It can be created only where NAMESPACE is set:
    see `enter`."""

    def __init__(self, folder: Path, mib: int) -> None:
        assert os.environ.get(NAMESPACE), "the mount must end with this process"
        self.folder = folder
        options = f"size={mib}m,mode=755"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)
        self._filling = folder / "filling"

    @property
    def free_bytes(self) -> int:
        """Free bytes at the moment."""
        found = os.statvfs(self.folder)
        return found.f_bavail * found.f_frsize

    def fill(self, *, leave_bytes: int = 0) -> None:
        """Take all room except `leave_bytes`."""
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
        """Unmount the disk, with its content; its folder is empty again."""
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)


def enter(arguments: list[str]) -> None:
    """Replace this process by the same program in its own mount namespace."""
    environment = {**os.environ, NAMESPACE: "1"}
    command = ["unshare", "-m", "--propagation", "private", sys.executable, *arguments]
    os.execvpe(command[0], command, environment)
