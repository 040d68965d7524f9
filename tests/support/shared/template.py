"""A process that has imported what the platform's processes import, and forks them.

`python -m support.shared.template SOCKET` reads requests from a socket, one per packet, and answers
each with one packet. `{"start": ...}`, with descriptors for output and for secrets or input, is
answered with the process id; `{"reap": pid}`, for a process that has ended, with its exit code. The
template ends with its parent.

A forked process equals `python -m MODULE`: the module runs as `__main__` with its arguments,
environment, folder and session. Only its /proc/PID/cmdline differs.
"""

import gc
import importlib
import json
import os
import pkgutil
import random
import runpy
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Sequence
from typing import Any

from hocket.kit.child_processes.launcher import die_with_parent

IMPORTED = (
    "hocket.coordinator.__main__",
    "hocket.gateway.__main__",
    "hocket.ledger.__main__",
    "hocket.admin.__main__",
    "hocket.workers.process",
    "hocket.cli.app",
)
COMMANDS = "hocket.cli.commands"
MAX_BYTES = 256 * 1024
MAX_DESCRIPTORS = 4


def main(door: socket.socket) -> None:
    """Serve until the other end is closed."""
    commands = importlib.import_module(COMMANDS)
    found = pkgutil.walk_packages(commands.__path__, f"{COMMANDS}.")
    for name in (*IMPORTED, *(one.name for one in found)):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    assert threading.active_count() == 1, "what is forked has no thread but this one"
    while True:
        packet, descriptors, _, _ = socket.recv_fds(door, MAX_BYTES, MAX_DESCRIPTORS)
        if not packet:
            return
        asked = json.loads(packet)
        if "reap" in asked:
            _, status = os.waitpid(asked["reap"], 0)
            door.send(json.dumps(os.waitstatus_to_exitcode(status)).encode())
            continue
        pid = os.fork()
        if not pid:
            door.close()
            _become(asked["start"], descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        door.send(json.dumps(pid).encode())


def _become(wanted: dict[str, Any], descriptors: Sequence[int]) -> None:
    """Run a module in this process, and then exit."""
    code = 1
    try:
        _prepare(wanted, descriptors)
        sys.modules.pop(f"{wanted['module']}.__main__", None)  # it runs as if for the first time
        runpy.run_module(wanted["module"], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = _code_of(end)
    except BaseException:
        traceback.print_exc()
    finally:
        _end(code)


def _prepare(wanted: dict[str, Any], descriptors: Sequence[int]) -> None:
    output, errors, *others = descriptors
    given = os.open(os.devnull, os.O_RDONLY) if not wanted["has_input"] else others.pop()
    if wanted["death_signal"]:
        os.umask(0o077)
        os.setsid()
    die_with_parent(wanted["parent"], wanted["death_signal"] or signal.SIGKILL)
    for descriptor, number in ((given, 0), (output, 1), (errors, 2)):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(wanted["env"])
    if others:
        os.environ[wanted["secrets_named"]] = str(others[0])
    os.chdir(wanted["folder"])
    sys.argv = [wanted["module"], *wanted["arguments"]]
    sys.path[0] = wanted["folder"]
    sys.orig_argv = [sys.executable, "-m", wanted["module"], *wanted["arguments"]]
    for path in reversed(wanted["env"].get("PYTHONPATH", "").split(os.pathsep)):
        if path and path not in sys.path:
            sys.path.insert(1, path)
    random.seed()


def _code_of(end: SystemExit) -> int:
    """Return the exit code that Python would use."""
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code
    print(end.code, file=sys.stderr)
    return 1


def _end(code: int) -> None:
    """Exit as Python does: wait for other threads, run exit handlers, and flush output."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        import atexit

        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code & 0xFF)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
