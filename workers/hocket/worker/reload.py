"""`hocket-worker --reload`: restarts the worker process whenever a Python file changes.

For development. Modification times are polled a few times a second. A process that exits on its own
(because of a mistake in a file) is started again after the next change.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

LOOK_S = 0.3
STOP_S = 15.0
"""A process that has not drained by then is killed."""
MAX_FILES = 10_000
NEVER = frozenset({"__pycache__", "node_modules", "site-packages"})

Times = dict[str, int]


def keep_reloading(folder: Path, arguments: Sequence[str]) -> int:
    """Run the command with these arguments and restart it after each change below a folder, until
    SIGTERM or SIGINT; return the exit code."""
    stopping = False

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal stopping
        stopping = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    times, process = times_of(folder), _started(arguments)
    while not stopping:
        time.sleep(LOOK_S)
        found = times_of(folder)
        if found != times:
            changed = sorted(name for name in found | times if found.get(name) != times.get(name))
            print(f"hocket-worker: {changed[0]} changed, restarting", file=sys.stderr)  # noqa: T201
            times = found
            _stop(process)
            process = _started(arguments)
    code = _stop(process)
    return 0 if code == -signal.SIGTERM else code  # it was about to end when it was told to


def times_of(folder: Path) -> Times:
    """Return the modification time (ns) of each Python file below a folder, up to MAX_FILES of them.

    Hidden folders and environments are skipped."""
    times: Times = {}
    for path in _python_files(folder):
        if len(times) >= MAX_FILES:
            break
        try:
            times[path] = os.stat(path).st_mtime_ns
        except OSError:
            continue
    return times


def _python_files(folder: Path) -> Iterator[str]:
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in NEVER]
        yield from (f"{place}/{name}" for name in files if name.endswith(".py"))


def _started(arguments: Sequence[str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-m", "hocket.worker.command", *arguments])


def _stop(process: "subprocess.Popen[bytes]") -> int:
    process.terminate()
    try:
        return process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
