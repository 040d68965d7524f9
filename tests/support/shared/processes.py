"""Start processes through the template, with the interface of asyncio's own.

The template is a child of this process, shared by all of its tests and created on first use.
"""

import asyncio
import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hocket.kit.child_processes.supervisor import launched
from hocket.kit.process import process_secrets
from support.shared.template import MAX_BYTES

TESTS = Path(__file__).parents[2]
FORKED = os.environ.get("HOCKET_TEST_FORKED", "1") == "1"
"""Whether processes are forked at all."""
FIXED = ("PYTHON", "LD_", "MALLOC_", "LC_", "LANG")
"""Prefixes of the variables that Python reads when it starts: a process for which they differ is
started as usual."""
READ_LATER = {"PYTHONPATH", "PYTHONUNBUFFERED"}
"""Variables that the template has set or applies when it forks."""


class ForkedProcess:
    """The interface of asyncio's `Process`, for a process forked by the template."""

    stdout: asyncio.StreamReader | None = None

    def __init__(self, template: "Template", pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._template = template
        self._descriptor = os.pidfd_open(pid)
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._loop.add_reader(self._descriptor, self._reap)

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _reap(self) -> None:
        self._loop.remove_reader(self._descriptor)
        self.returncode = self._template.exit_code(self.pid)
        os.close(self._descriptor)
        self._ended.set()


class Template:
    """The template process, as seen from this process."""

    def __init__(self) -> None:
        self._door, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (self._door, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MAX_BYTES)
        command = [sys.executable, "-m", "support.shared.template", str(theirs.fileno())]
        self._process = subprocess.Popen(
            launched(command, signal.SIGKILL, None, None),
            cwd=TESTS,
            env={**_without_secrets(os.environ), "PYTHONUNBUFFERED": "1"},
            pass_fds=(theirs.fileno(),),
        )
        theirs.close()
        self._asking = threading.Lock()
        atexit.register(self._close)

    async def start(
        self,
        module: str,
        arguments: Sequence[str],
        env: Mapping[str, str],
        *,
        output: int,
        errors: int,
        secrets: int | None = None,
        secrets_named: str = "",
        death_signal: int = 0,
    ) -> ForkedProcess:
        """Start `python -m module` with these descriptors for output, errors and secrets. With a death
        signal it gets its own session, as in `launcher.py`."""
        fields = {"death_signal": int(death_signal), "secrets_named": secrets_named}
        descriptors = [output, errors, *([] if secrets is None else [secrets])]
        pid = await asyncio.to_thread(
            self._start, module, arguments, env, Path.cwd(), descriptors, **fields
        )
        return ForkedProcess(self, pid)

    def start_command(
        self,
        module: str,
        arguments: Sequence[str],
        env: Mapping[str, str],
        *,
        folder: Path,
        descriptors: Sequence[int],
    ) -> int:
        """Start `python -m module` with these descriptors for output, errors and input, and return its
        process id."""
        return self._start(module, arguments, env, folder, descriptors, has_input=True)

    def exit_code(self, pid: int) -> int:
        """Return the exit code of a process that has ended."""
        return int(self._ask({"reap": pid}, []))

    def _start(
        self,
        module: str,
        arguments: Sequence[str],
        env: Mapping[str, str],
        folder: Path,
        descriptors: Sequence[int],
        **fields: Any,
    ) -> int:
        wanted = {
            "module": module,
            "arguments": list(arguments),
            "env": dict(env),
            "folder": str(folder),
            "parent": self._process.pid,
            "death_signal": 0,
            "secrets_named": "",
            "has_input": False,
            **fields,
        }
        return int(self._ask({"start": wanted}, list(descriptors)))

    def _ask(self, asked: dict[str, Any], descriptors: list[int]) -> Any:
        with self._asking:
            socket.send_fds(self._door, [json.dumps(asked).encode()], descriptors)
            answer = self._door.recv(MAX_BYTES)
        if not answer:
            raise RuntimeError(f"the template has ended: exit code {self._process.poll()}")
        return json.loads(answer)

    def _close(self) -> None:
        self._door.close()
        self._process.wait()


_template: Template | None = None


def template() -> Template:
    """Return the template of this process."""
    global _template
    if _template is None:
        _template = Template()
    return _template


async def started_with_output(
    module: str, env: Mapping[str, str], *, errors_too: bool = False
) -> ForkedProcess:
    """Start `python -m module` with its output readable from `stdout`, and with `errors_too` its stderr
    as well."""
    reading, writing = os.pipe()
    try:
        process = await template().start(
            module, (), env, output=writing, errors=writing if errors_too else 2
        )
    finally:
        os.close(writing)
    process.stdout = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(process.stdout)
    pipe = os.fdopen(reading, "rb", buffering=0)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, pipe)
    return process


def can_be_forked(module: str, env: Mapping[str, str]) -> bool:
    """Return whether a forked process would equal one started by Python: the module must be ours, the
    environment of Python itself must be the same, and there must be nothing that Python imports at its
    start."""
    if not module.startswith("hocket.") or not hasattr(os, "pidfd_open"):
        return False
    folders = env.get("PYTHONPATH", "").split(os.pathsep)
    if any((Path(folder) / "sitecustomize.py").exists() for folder in folders if folder):
        return False
    names = {name for name in {*env, *os.environ} if name.startswith(FIXED)} - READ_LATER
    return all(env.get(name) == os.environ.get(name) for name in names)


def _without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    return process_secrets.split(environment)[0]
