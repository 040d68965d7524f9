"""Run the `hocket` command through the template process, because starting Python and importing a
command take half a second of CPU time."""

import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from support.shared.processes import FIXED, FORKED, can_be_forked, template

CLI = "hocket.cli"
TIMEOUT_S = 120.0


def run_hocket(
    *arguments: str,
    env: Mapping[str, str] | None = None,
    folder: Path | None = None,
    given: str = "",
    timeout_s: float = TIMEOUT_S,
) -> "subprocess.CompletedProcess[str]":
    """Run the command to its end, and return its exit code and output.

    `env` is its environment (by default that of this process; variables that Python reads when it
    starts are always those of this process), `folder` its working folder, and `given` its input. Raises
    subprocess.TimeoutExpired."""
    fixed = {name: value for name, value in os.environ.items() if name.startswith(FIXED)}
    own = fixed | dict(os.environ if env is None else env)
    command = [sys.executable, "-m", CLI, *arguments]
    if not FORKED or not can_be_forked(CLI, own):
        return subprocess.run(
            command, input=given, capture_output=True, text=True, timeout=timeout_s, env=own,
            cwd=folder, check=False,
        )  # fmt: skip
    with (
        tempfile.TemporaryFile() as output,
        tempfile.TemporaryFile() as errors,
        tempfile.TemporaryFile() as read,
    ):
        read.write(given.encode())
        read.seek(0)
        pid = template().start_command(
            CLI,
            arguments,
            own,
            folder=folder or Path.cwd(),
            descriptors=[output.fileno(), errors.fileno(), read.fileno()],
        )
        has_ended = _ends_within(pid, timeout_s)
        code = template().exit_code(pid)
        for file in (output, errors):
            file.seek(0)
        said, complained = output.read().decode(), errors.read().decode()
        if not has_ended:
            late = subprocess.TimeoutExpired(command, timeout_s, said, complained)
            late.add_note(f"output: {said}\nerrors: {complained}")
            raise late
        return subprocess.CompletedProcess(command, code, said, complained)


def _ends_within(pid: int, timeout_s: float) -> bool:
    """Wait until a process has ended and return True; after the timeout kill it and return False."""
    descriptor = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if poll.poll(timeout_s * 1000):
            return True
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        poll.poll()
        return False
    finally:
        os.close(descriptor)
