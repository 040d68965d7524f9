"""Keeps one child process alive.

States: idle -> supervising -> (the process ended -> waiting -> started again) ... -> idle. A process
that ends is restarted after a delay that doubles from RESTART_DELAY_FIRST_S to RESTART_DELAY_MAX_S, and
is reset once the process has been up for `stable_after_s`. The supervisor never gives up, unless `died`
tells it to: a restart that fails, whatever the reason, is tried again.

If the parent is killed, the kernel sends the process its stop signal (see launcher.py). The kernel ties
this to the thread that started the process, so the event loop's thread must outlive the process.
"""

import asyncio
import os
import signal
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import structlog

from hocket.kit.child_processes import launcher

RESTART_DELAY_FIRST_S = 0.05
RESTART_DELAY_MAX_S = 5.0
_LOOK_S = 0.01

log = structlog.get_logger(__name__)


class Supervisor:
    """One child process. `died` is called with the exit code each time the process ends, and returns
    whether to restart it. `restart` tries to, hands the new process to `adopt`, and returns whether it
    succeeded; it raises nothing after `adopt`."""

    def __init__(
        self,
        name: str,
        *,
        stop_signal: signal.Signals,
        stable_after_s: float,
        died: Callable[[Process, int], Awaitable[bool]],
        restart: Callable[[], Awaitable[bool]],
    ) -> None:
        self.process: Process | None = None
        """The process that runs, or that ran last; None when stopped."""
        self._name = name
        self._stop_signal = stop_signal
        self._stable_after_s = stable_after_s
        self._died = died
        self._restart = restart
        self._supervision: asyncio.Task[None] | None = None

    @property
    def is_supervising(self) -> bool:
        """Whether the process is kept alive."""
        return self._supervision is not None

    @property
    def is_alive(self) -> bool:
        """Whether the process is alive; false as soon as it has died, even if this was not noticed
        here."""
        return self.process is not None and launcher.identity(self.process.pid) is not None

    def adopt(self, process: Process) -> None:
        """Take over a process that was just started."""
        self.process = process

    def begin(self) -> None:
        """Keep the adopted process alive from now on."""
        name = f"supervise-{self._name}"
        self._supervision = asyncio.create_task(self._supervise(), name=name)

    async def kill(self) -> None:
        """Kill the process as a crash would."""
        assert self.process is not None, "the caller knows that it runs"
        process = self.process
        _signal(process, signal.SIGKILL)
        await process.wait()

    async def end(self, timeout_s: float) -> None:
        """Ask the process to end, and kill it after `timeout_s`."""
        if self.process is not None:
            await end_process(self.process, self._name, self._stop_signal, timeout_s)

    def forget(self) -> None:
        """Note that the process has ended and will not be restarted."""
        self.process = None

    async def let_go(self) -> "asyncio.Task[None] | None":
        """Stop keeping the process alive; return the task that did, for `raise_fault`."""
        supervision, self._supervision = self._supervision, None
        if supervision is not None:
            supervision.cancel()
            await asyncio.wait({supervision})
        return supervision

    async def _supervise(self) -> None:
        delay_s = RESTART_DELAY_FIRST_S
        while True:
            assert self.process is not None, "only a started process is supervised"
            began_s = time.monotonic()
            exit_code = await self.process.wait()
            if not await self._died(self.process, exit_code):
                return
            if time.monotonic() - began_s >= self._stable_after_s:
                delay_s = RESTART_DELAY_FIRST_S
            await asyncio.sleep(delay_s)
            while not await self._is_restarted():
                delay_s = min(delay_s * 2, RESTART_DELAY_MAX_S)
                await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, RESTART_DELAY_MAX_S)

    async def _is_restarted(self) -> bool:
        try:
            return await self._restart()
        except Exception as error:  # a full disk, no file descriptor left: that may pass
            log.warning("restart_failed", process=self._name, error=repr(error))
            return False


async def end_process(
    process: Process, name: str, stop_signal: signal.Signals, timeout_s: float
) -> None:
    """Ask a process to end, and kill it after `timeout_s`."""
    _signal(process, stop_signal)
    try:
        async with asyncio.timeout(timeout_s):
            await process.wait()
    except TimeoutError:
        log.warning("process_stop_forced", process=name, pid=process.pid)
        _signal(process, signal.SIGKILL)
        await process.wait()


def raise_fault(supervision: "asyncio.Task[None] | None") -> None:
    """Raise the error that ended a supervision, if any: it fails only because of a bug of ours."""
    if supervision is not None and not supervision.cancelled():
        supervision.result()


class Owner(Protocol):
    """The account that a process runs under."""

    @property
    def uid(self) -> int: ...

    @property
    def gid(self) -> int: ...


def launched(
    command: Sequence[str],
    death_signal: signal.Signals,
    pid_file: Path | None,
    account: Owner | None,
) -> list[str]:
    """Return the command line that runs `command` through launcher.py, tied to this process."""
    return [
        sys.executable,
        "-I",
        "-S",
        launcher.__file__,
        str(os.getpid()),
        str(int(death_signal)),
        str(pid_file or "-"),
        str(account.uid) if account else "-",
        str(account.gid) if account else "-",
        *command,
    ]


async def end_leftover(
    pid_file: Path, name: str, stop_signal: signal.Signals, timeout_s: float
) -> None:
    """End the process that a killed parent left behind, if the process in the pid file still runs."""
    recorded, pid = _recorded(pid_file)
    if not recorded:
        return
    for number in (stop_signal, signal.SIGKILL):
        if launcher.identity(pid) != recorded:
            break
        log.warning("process_leftover_stopped", process=name, pid=pid, signal=number.name)
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        await _until_gone(pid, recorded, timeout_s)
    _remove(pid_file)


def _recorded(pid_file: Path) -> tuple[str, int]:
    """Return the text of a pid file, and the process id in it; empty and 0 if it holds none."""
    try:
        recorded = pid_file.read_text("ascii")
        return recorded, int(recorded.split()[0])
    except (FileNotFoundError, ValueError, IndexError):
        return "", 0


def _remove(pid_file: Path) -> None:
    pid_file.unlink(missing_ok=True)


async def _until_gone(pid: int, recorded: str, timeout_s: float) -> None:
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:  # not our child, so there is nothing to wait on
        if launcher.identity(pid) != recorded:
            return
        await asyncio.sleep(_LOOK_S)


def _signal(process: Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        process.send_signal(number)
