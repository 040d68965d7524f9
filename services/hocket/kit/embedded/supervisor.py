"""Keeps one server process alive.

States: stopped -> starting -> ready -> (died -> starting) ... -> stopped. `start` returns when the
server answers; from then on a task waits for the process to end and starts it again on the same
port with the same data, after a delay that doubles from `RESTART_DELAY_FIRST_S` to
`RESTART_DELAY_MAX_S` and falls back once the server has been up for `STABLE_AFTER_S`. It never
gives up: clients wait and reconnect. A first start that fails raises `ServerNotReady` with the end
of the server's log.

If the parent is killed, the kernel sends the server its stop signal (see launcher.py); a leftover
that still runs when its folder is used again is recognised by its pid file and stopped first. The
signal is tied to the thread that started the server, so the event loop's thread must outlive it.
"""

import asyncio
import os
import signal
import sys
import time
from abc import ABC, abstractmethod
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import structlog

from hocket.kit.embedded import launcher
from hocket.kit.embedded.account import Account
from hocket.kit.embedded.errors import ServerNotReady, ServerStopped
from hocket.kit.embedded.ports import new_port, port_is_free, remembered_port

READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
PROBE_TIMEOUT_S = 2.0
PROBE_INTERVAL_S = 0.01
PROBE_INTERVAL_GROWTH = 1.3
PROBE_INTERVAL_MAX_S = 0.25
RESTART_DELAY_FIRST_S = 0.05
RESTART_DELAY_MAX_S = 5.0
STABLE_AFTER_S = 5.0
LOG_KEEP_BYTES = 10 * 1024 * 1024
LOG_TAIL_BYTES = 4_000
LOG_TAIL_LINES = 4

log = structlog.get_logger(__name__)


class NotAnswering(Exception):
    """The port is open but the server behind it is not ready."""


class SupervisedServer(ABC):
    """One server in a folder of its own; subclasses say how it is prepared, run and probed."""

    name: ClassVar[str]
    stop_signal: ClassVar[signal.Signals]
    passing_failure: ClassVar[str] = ""
    """What the log says when a first start failed for a reason that goes away in a moment."""

    def __init__(self, folder: Path, *, port: int = 0) -> None:
        self.folder = folder
        self._wanted_port = port
        self.log_path = folder / f"{self.name}.log"
        self.port = 0
        self._account: Account | None = None
        self._process: Process | None = None
        self._supervision: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()

    @property
    def pid(self) -> int:
        """The process id of the server; it changes when the server is restarted."""
        if self._process is None:
            raise ServerStopped(server=self.name)
        return self._process.pid

    async def start(self, *, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Start the server, wait until it answers and keep it alive from then on."""
        if self._supervision is not None:
            return
        started = time.monotonic()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        await self._stop_leftover()
        self.port = self._chosen_port()
        await self._prepare()
        await self._first_launch(timeout_s)
        self._supervision = asyncio.create_task(self._supervise(), name=f"supervise-{self.name}")
        log.info(
            "server_started",
            server=self.name,
            pid=self.pid,
            port=self.port,
            latency_ms=round((time.monotonic() - started) * 1000),
        )

    def _chosen_port(self) -> int:
        """Return the first that is free: the port of before, the wanted one, the one that the folder
        remembers."""
        if self.port and port_is_free(self.port):
            return self.port
        wanted = self._wanted_port
        if not wanted or port_is_free(wanted):
            return wanted or remembered_port(self._port_file)
        port = remembered_port(self._port_file)
        log.warning("server_port_taken", server=self.name, taken=wanted, port=port)
        return port

    async def stop(self, *, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop the server gracefully, by force after `timeout_s`; it stays away until `start`."""
        supervision, self._supervision = self._supervision, None
        if supervision is not None:
            supervision.cancel()
            await asyncio.wait({supervision})
        await self._end_process(timeout_s)
        log.info("server_stopped", server=self.name)
        if supervision is not None and not supervision.cancelled():
            supervision.result()  # it ends by itself only through a fault of ours

    async def kill(self) -> None:
        """Kill the server as a crash would; supervision starts it again (see `wait_ready`)."""
        if self._process is None:
            raise ServerStopped(server=self.name)
        self._ready.clear()
        process = self._process
        _signal(process, signal.SIGKILL)
        await process.wait()

    async def restart(self, *, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Ask the server to end, by force after `timeout_s`; supervision starts it again."""
        if self._process is None:
            raise ServerStopped(server=self.name)
        self._ready.clear()
        await _ended(self._process, self.name, self.stop_signal, timeout_s)

    async def wait_ready(self, *, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until the server answers; raises `ServerNotReady` after `timeout_s`.

        A process that has died does not count, even before its death was noticed here.
        """
        if self._supervision is None:
            raise ServerStopped(server=self.name)
        try:
            async with asyncio.timeout(timeout_s):
                await self._until_answering()
        except TimeoutError as error:
            raise self._not_ready(f"it did not answer within {timeout_s:g} s") from error

    @abstractmethod
    async def _prepare(self) -> None:
        """Write configuration and data files; called by `start`, with `port` known."""

    @abstractmethod
    def _command(self) -> Sequence[str]:
        """Return the program, by absolute path, and its arguments."""

    def _environment(self) -> dict[str, str]:
        return server_environment()

    @abstractmethod
    async def _probe(self) -> None:
        """Return when the server answers; raise `OSError` or `NotAnswering` if it does not."""

    @abstractmethod
    def _before_launch(self) -> None:
        """Clear away what a killed server may have left; called before each launch."""

    async def _first_launch(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                return await self._launch(timeout_s)
            except ServerNotReady as error:
                if time.monotonic() >= deadline:
                    raise
                if self.passing_failure and self.passing_failure in str(error):
                    await asyncio.sleep(RESTART_DELAY_FIRST_S)
                elif not port_is_free(self.port):
                    await self._change_port()
                else:
                    raise

    async def _change_port(self) -> None:
        taken, self.port = self.port, new_port(self._port_file)
        log.warning("server_port_taken", server=self.name, taken=taken, port=self.port)
        await self._prepare()

    async def _launch(self, timeout_s: float) -> None:
        self._before_launch()
        self._process = await self._spawn()
        try:
            await self._until_ready(self._process, timeout_s)
        except BaseException:
            await self._end_process(STOP_TIMEOUT_S)
            raise
        self._ready.set()

    async def _spawn(self) -> Process:
        _shorten(self.log_path)
        with self.log_path.open("ab") as output:
            return await asyncio.create_subprocess_exec(
                *launched(self._command(), self.stop_signal, self._pid_file, self._account),
                stdin=DEVNULL,
                stdout=output,
                stderr=output,
                env=self._environment(),
            )

    async def _until_ready(self, process: Process, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        interval_s = PROBE_INTERVAL_S
        while time.monotonic() < deadline:
            if process.returncode is not None:
                raise self._not_ready(f"it ended with exit code {process.returncode}")
            if await self._probe_answers():
                return
            await asyncio.sleep(interval_s)
            interval_s = min(interval_s * PROBE_INTERVAL_GROWTH, PROBE_INTERVAL_MAX_S)
        raise self._not_ready(f"it did not answer within {timeout_s:g} s")

    async def _until_answering(self) -> None:
        while True:
            await self._ready.wait()
            if self._is_alive() and await self._probe_answers():
                return
            await asyncio.sleep(PROBE_INTERVAL_S)

    async def _probe_answers(self) -> bool:
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                await self._probe()
        except (OSError, NotAnswering):
            return False
        return True

    async def _supervise(self) -> None:
        delay_s = RESTART_DELAY_FIRST_S
        while True:
            ready_since = time.monotonic()
            await self._death()
            if time.monotonic() - ready_since >= STABLE_AFTER_S:
                delay_s = RESTART_DELAY_FIRST_S
            await asyncio.sleep(delay_s)
            while not await self._restarted():
                delay_s = min(delay_s * 2, RESTART_DELAY_MAX_S)
                await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, RESTART_DELAY_MAX_S)

    async def _death(self) -> None:
        assert self._process is not None, "only a launched server is supervised"
        exit_code = await self._process.wait()
        self._ready.clear()
        log.warning("server_died", server=self.name, pid=self._process.pid, exit_code=exit_code)

    def _is_alive(self) -> bool:
        return self._process is not None and launcher.identity(self._process.pid) is not None

    async def _restarted(self) -> bool:
        try:
            await self._launch(READY_TIMEOUT_S)
        except (ServerNotReady, OSError) as error:
            log.warning("server_restart_failed", server=self.name, error=str(error))
            return False
        log.info("server_restarted", server=self.name, pid=self.pid, port=self.port)
        return True

    async def _end_process(self, timeout_s: float) -> None:
        self._ready.clear()
        if self._process is None:
            return
        await _ended(self._process, self.name, self.stop_signal, timeout_s)
        self._process = None
        self._pid_file.unlink(missing_ok=True)

    async def _stop_leftover(self) -> None:
        try:
            recorded = self._pid_file.read_text("ascii")
            pid = int(recorded.split()[0])
        except (FileNotFoundError, ValueError, IndexError):
            return
        for number in (self.stop_signal, signal.SIGKILL):
            if launcher.identity(pid) != recorded:
                break
            log.warning("server_leftover_stopped", server=self.name, pid=pid, signal=number.name)
            with suppress(ProcessLookupError):
                os.kill(pid, number)
            await _until_gone(pid, recorded, STOP_TIMEOUT_S)
        self._pid_file.unlink(missing_ok=True)

    def _not_ready(self, reason: str) -> ServerNotReady:
        return ServerNotReady(
            server=self.name,
            reason=reason,
            log_path=self.log_path,
            log_tail=_tail(self.log_path),
        )

    @property
    def _pid_file(self) -> Path:
        return self.folder / "pid"

    @property
    def _port_file(self) -> Path:
        return self.folder / "port"


def launched(
    command: Sequence[str],
    death_signal: signal.Signals,
    pid_file: Path | None,
    account: Account | None,
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


def server_environment() -> dict[str, str]:
    """Return our environment without what would steer Postgres, and with a plain locale."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PG", "LC_", "LANG"))}
    return {**kept, "LC_ALL": "C"}


async def _ended(
    process: Process, name: str, stop_signal: signal.Signals, timeout_s: float
) -> None:
    _signal(process, stop_signal)
    try:
        async with asyncio.timeout(timeout_s):
            await process.wait()
    except TimeoutError:
        log.warning("server_stop_forced", server=name, pid=process.pid)
        _signal(process, signal.SIGKILL)
        await process.wait()


def _signal(process: Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        process.send_signal(number)


async def _until_gone(pid: int, recorded: str, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:  # not our child, so there is nothing to wait on
        if launcher.identity(pid) != recorded:
            return
        await asyncio.sleep(PROBE_INTERVAL_S)


def _shorten(log_path: Path) -> None:
    if log_path.exists() and log_path.stat().st_size > LOG_KEEP_BYTES:
        log_path.replace(log_path.with_suffix(".log.1"))


def _tail(log_path: Path) -> str:
    if not log_path.exists():
        return "(none)"
    with log_path.open("rb") as file:
        file.seek(max(0, log_path.stat().st_size - LOG_TAIL_BYTES))
        lines = file.read().decode("utf-8", "replace").splitlines()
    return "\n".join(lines[-LOG_TAIL_LINES:]) or "(none)"
