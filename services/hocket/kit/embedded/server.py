"""One embedded server in a folder of its own, kept alive from its start to its stop.

States: stopped -> starting -> ready -> (died -> starting) ... -> stopped. `start` returns when the
server answers; from then on, if it ends, it is restarted on the same port with the same data
(`kit/child_processes/supervisor.py`). A server that a killed parent left running is recognised by its
pid file when its folder is used again, and is ended first.
"""

import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import structlog

from hocket.kit.child_processes.supervisor import end_leftover, raise_fault
from hocket.kit.embedded import server_process
from hocket.kit.embedded.account import Account
from hocket.kit.embedded.errors import ServerStopped
from hocket.kit.embedded.ports import new_port, port_is_free, remembered_port
from hocket.kit.embedded.server_process import READY_TIMEOUT_S, STOP_TIMEOUT_S, ServerProcess

log = structlog.get_logger(__name__)


class SupervisedServer(ABC):
    """One server in a folder of its own; subclasses define how it is prepared, run and probed."""

    name: ClassVar[str]
    stop_signal: ClassVar[signal.Signals]
    passing_failure: ClassVar[str] = ""
    """Text in the log that shows that a first start failed for a reason that will soon pass."""

    def __init__(self, folder: Path, *, port: int = 0) -> None:
        self.folder = folder
        self._wanted_port = port
        self.log_path = folder / f"{self.name}.log"
        self.pid_file = folder / "pid"
        self.port = 0
        self.account: Account | None = None
        """The account that the server runs under; None for the account of this process."""
        self._port_file = folder / "port"
        self._server = ServerProcess(self)

    @property
    def pid(self) -> int:
        """The process id of the server; it changes when the server is restarted."""
        process = self._server.supervisor.process
        if process is None:
            raise ServerStopped(server=self.name)
        return process.pid

    async def start(self, *, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Start the server, wait until it answers, and keep it alive from then on."""
        if self._server.supervisor.is_supervising:
            return
        started_s = time.monotonic()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        await end_leftover(
            self.pid_file, self.name, self.stop_signal, server_process.STOP_TIMEOUT_S
        )
        self.port = self._chosen_port()
        await self._prepare()
        await self._server.first_launch(timeout_s)
        self._server.supervisor.begin()
        log.info(
            "server_started",
            server=self.name,
            pid=self.pid,
            port=self.port,
            latency_ms=round((time.monotonic() - started_s) * 1000),
        )

    async def stop(self, *, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop the server gracefully, or by force after `timeout_s`; it stays down until `start`."""
        supervision = await self._server.supervisor.let_go()
        await self._server.end(timeout_s)
        log.info("server_stopped", server=self.name)
        raise_fault(supervision)

    async def kill(self) -> None:
        """Kill the server as a crash would; it is restarted (see `wait_ready`)."""
        if self._server.supervisor.process is None:
            raise ServerStopped(server=self.name)
        self._server.is_ending()
        await self._server.supervisor.kill()

    async def restart(self, *, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop the server gracefully, or by force after `timeout_s`; it is started again."""
        if self._server.supervisor.process is None:
            raise ServerStopped(server=self.name)
        self._server.is_ending()
        await self._server.supervisor.end(timeout_s)

    async def wait_ready(self, *, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until the server answers; raises `ServerNotReady` after `timeout_s`."""
        if not self._server.supervisor.is_supervising:
            raise ServerStopped(server=self.name)
        await self._server.until_answering(timeout_s)

    async def change_port(self) -> None:
        """Switch to another port, because another process has taken the current one."""
        taken, self.port = self.port, new_port(self._port_file)
        log.warning("server_port_taken", server=self.name, taken=taken, port=self.port)
        await self._prepare()

    def environment(self) -> dict[str, str]:
        """Return our environment without variables that affect Postgres, and with a plain locale."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PG", "LC_", "LANG"))}
        return {**kept, "LC_ALL": "C"}

    @abstractmethod
    def before_launch(self) -> None:
        """Clean up what a killed server may have left behind; called before each launch."""

    @abstractmethod
    def command(self) -> Sequence[str]:
        """Return the program, by absolute path, and its arguments."""

    @abstractmethod
    async def probe(self) -> None:
        """Return when the server answers; raise `OSError` or `NotAnswering` if it does not."""

    @abstractmethod
    async def _prepare(self) -> None:
        """Write configuration and data files; called by `start`, with `port` known."""

    def _chosen_port(self) -> int:
        """Return the first of these ports that is free: the previous one, the wanted one, the one stored
        in the folder."""
        if self.port and port_is_free(self.port):
            return self.port
        wanted = self._wanted_port
        if not wanted or port_is_free(wanted):
            return wanted or remembered_port(self._port_file)
        port = remembered_port(self._port_file)
        log.warning("server_port_taken", server=self.name, taken=wanted, port=port)
        return port
