"""Ties this process to the life of its parent, then becomes the server.

Runs as `python -I -S launcher.py PARENT SIGNAL PID_FILE UID GID PROGRAM ARGS...`.

Between fork and exec, a server must be tied to its parent's life, put into a session of its own (so
that Ctrl-C in the terminal reaches only the parent, which stops servers in order) and drop root
privileges. Doing this in a separate program, instead of in a function called after fork, is safe
whatever threads the parent has and whichever event loop it uses. Only the standard library is
imported, so that the cost stays near ten milliseconds.

UID and GID are `-` to keep the parent's. PID_FILE is `-` for none; otherwise it receives the
process id, the kernel's start time of the process and the boot id, which together identify the
process uniquely. Exit code 127: PROGRAM could not be executed; 126: the parent died first.
"""

import ctypes
import os
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1
EXIT_PARENT_GONE = 126
EXIT_NOT_EXECUTED = 127
DEAD_STATES = "ZX"


def main(arguments: list[str]) -> None:
    """Prepare this process and replace it by the program named in `arguments`."""
    parent, signal, pid_file, uid, gid, program, *rest = arguments
    os.umask(0o077)
    os.setsid()
    if pid_file != "-":
        Path(pid_file).write_text(identity(os.getpid()) or "", "ascii")
    if uid != "-":
        os.setgroups([])
        os.setgid(int(gid))
        os.setuid(int(uid))
    die_with_parent(int(parent), int(signal))
    try:
        os.execv(program, [program, *rest])
    except OSError as error:
        sys.stderr.write(f"cannot execute {program}: {error.strerror}\n")
        sys.exit(EXIT_NOT_EXECUTED)


def die_with_parent(parent: int, signal: int) -> None:
    """Ask the kernel for `signal` when the parent ends; call after setuid, which undoes it."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, signal, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:
        sys.exit(EXIT_PARENT_GONE)


def identity(pid: int) -> str | None:
    """Return a text that identifies this living process and never another; None if it is dead."""
    fields = _status(pid)
    if fields is None or fields[0] in DEAD_STATES:
        return None
    boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return f"{pid} {fields[19]} {boot}\n"


def is_zombie(pid: int) -> bool:
    """Tell whether this process has ended but was not reaped by its parent."""
    fields = _status(pid)
    return fields is not None and fields[0] in DEAD_STATES


def _status(pid: int) -> list[str] | None:
    """Return the fields of proc_pid_stat(5) from the third (the state) on; None if there is no
    process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()


if __name__ == "__main__":
    main(sys.argv[1:])
