"""The process of one server: launched, probed until it answers, and relaunched when it has died.

A first start that fails because its port was taken in the meantime continues with another port; any
other failure of it raises `ServerNotReady` with the end of the server's log. Later restarts are repeated
without limit, while clients wait and reconnect.
"""

import asyncio
import signal
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import structlog

from hocket.kit.child_processes.output import end_of, opened, shorten
from hocket.kit.child_processes.supervisor import (
    RESTART_DELAY_FIRST_S,
    Supervisor,
    launched,
)
from hocket.kit.embedded.account import Account
from hocket.kit.embedded.errors import ServerNotReady
from hocket.kit.embedded.ports import port_is_free

READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
PROBE_TIMEOUT_S = 2.0
PROBE_INTERVAL_S = 0.01
PROBE_INTERVAL_GROWTH = 1.3
PROBE_INTERVAL_MAX_S = 0.25
STABLE_AFTER_S = 5.0
LOG_KEEP_BYTES = 10 * 1024 * 1024
LOG_TAIL_BYTES = 4_000
LOG_TAIL_LINES = 4

log = structlog.get_logger(__name__)


class NotAnswering(Exception):
    """The port is open but the server behind it is not ready."""


class ServerProgram(Protocol):
    """How a server is run and probed, as `SupervisedServer` implements it."""

    port: int
    log_path: Path
    pid_file: Path
    account: Account | None

    @property
    def name(self) -> str: ...

    @property
    def stop_signal(self) -> signal.Signals: ...

    @property
    def passing_failure(self) -> str: ...

    def before_launch(self) -> None: ...

    def command(self) -> Sequence[str]: ...

    def environment(self) -> dict[str, str]: ...

    async def probe(self) -> None: ...

    async def change_port(self) -> None: ...


class ServerProcess:
    """The process of one server program."""

    def __init__(self, program: ServerProgram) -> None:
        self._program = program
        self._ready = asyncio.Event()
        self.supervisor = Supervisor(
            program.name,
            stop_signal=program.stop_signal,
            stable_after_s=STABLE_AFTER_S,
            died=self._died,
            restart=self._restarted,
        )

    async def first_launch(self, timeout_s: float) -> None:
        """Launch the server and wait until it answers, or raise ServerNotReady."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            try:
                return await self._launch(timeout_s)
            except ServerNotReady as error:
                if time.monotonic() >= deadline_s:
                    raise
                passing = self._program.passing_failure
                if passing and passing in str(error):
                    await asyncio.sleep(RESTART_DELAY_FIRST_S)
                elif not port_is_free(self._program.port):
                    await self._program.change_port()
                else:
                    raise

    async def until_answering(self, timeout_s: float) -> None:
        """Wait until the server answers, or raise ServerNotReady. An answer does not count if the
        process has died, even before its death was noticed here."""
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    await self._ready.wait()
                    if self.supervisor.is_alive and await self._answers():
                        return
                    await asyncio.sleep(PROBE_INTERVAL_S)
        except TimeoutError as error:
            raise self._not_ready(f"it did not answer within {timeout_s:g} s") from error

    def is_ending(self) -> None:
        """Note that the process is about to end, so that the server no longer counts as ready."""
        self._ready.clear()

    async def end(self, timeout_s: float) -> None:
        """End the process gracefully, or by force after `timeout_s`; it is not restarted."""
        self._ready.clear()
        if self.supervisor.process is None:
            return
        await self.supervisor.end(timeout_s)
        self.supervisor.forget()
        self._program.pid_file.unlink(missing_ok=True)

    async def _launch(self, timeout_s: float) -> None:
        self._program.before_launch()
        process = await self._spawn()
        self.supervisor.adopt(process)
        try:
            await self._until_ready(process, timeout_s)
        except BaseException:
            await self.end(STOP_TIMEOUT_S)
            raise
        self._ready.set()

    async def _spawn(self) -> Process:
        program = self._program
        shorten(program.log_path, LOG_KEEP_BYTES)
        command = launched(
            program.command(), program.stop_signal, program.pid_file, program.account
        )
        with opened(program.log_path) as output:
            return await asyncio.create_subprocess_exec(
                *command,
                stdin=DEVNULL,
                stdout=output,
                stderr=output,
                env=program.environment(),
            )

    async def _until_ready(self, process: Process, timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        interval_s = PROBE_INTERVAL_S
        while time.monotonic() < deadline_s:
            if process.returncode is not None:
                raise self._not_ready(f"it ended with exit code {process.returncode}")
            if await self._answers():
                return
            await asyncio.sleep(interval_s)
            interval_s = min(interval_s * PROBE_INTERVAL_GROWTH, PROBE_INTERVAL_MAX_S)
        raise self._not_ready(f"it did not answer within {timeout_s:g} s")

    async def _answers(self) -> bool:
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                await self._program.probe()
        except (OSError, NotAnswering):
            return False
        return True

    async def _died(self, process: Process, exit_code: int) -> bool:
        self._ready.clear()
        name = self._program.name
        log.warning("server_died", server=name, pid=process.pid, exit_code=exit_code)
        return True

    async def _restarted(self) -> bool:
        name = self._program.name
        try:
            await self._launch(READY_TIMEOUT_S)
        except (ServerNotReady, OSError) as error:
            log.warning("server_restart_failed", server=name, error=str(error))
            return False
        process = self.supervisor.process
        pid = None if process is None else process.pid
        log.info("server_restarted", server=name, pid=pid, port=self._program.port)
        return True

    def _not_ready(self, reason: str) -> ServerNotReady:
        lines = end_of(self._program.log_path, max_bytes=LOG_TAIL_BYTES).splitlines()
        return ServerNotReady(
            server=self._program.name,
            reason=reason,
            log_path=self._program.log_path,
            log_tail="\n".join(lines[-LOG_TAIL_LINES:]) or "(none)",
        )
