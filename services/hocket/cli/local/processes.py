"""One process of the platform, kept alive.

States: stopped -> starting -> ready -> (died -> starting) ... -> stopped. A process that ends is
restarted (`kit/child_processes/supervisor.py`). If it ends before it was ever ready, `wait_ready` raises
`ProcessNotReady` with the end of its log, since a restart would not help.

The kernel kills it when its parent dies (`kit/child_processes/launcher.py`). The process reports its own
readiness: it writes the address of its health server to `run/<service>-<pid>.json` and answers
`/readyz`.
"""

import asyncio
import json
import os
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import structlog

from hocket.cli.terminal.errors import ProcessNotReady
from hocket.kit.child_processes.output import end_of, opened, shorten
from hocket.kit.child_processes.supervisor import Supervisor, end_process, launched, raise_fault
from hocket.kit.process import process_secrets

READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
"""For a process that was never ready, or whose plan says nothing."""
PROBE_INTERVAL_S = 0.02
PROBE_TIMEOUT_S = 2.0
STABLE_AFTER_S = 10.0
LOG_KEEP_BYTES = 20 * 1024 * 1024
LOG_TAIL_BYTES = 2_000
MAX_PROBE_BYTES = 65_536

log = structlog.get_logger(__name__)


class PlatformProcess:
    """`python -m <module> <arguments>` as a supervised child process.

    `on_restart` is called after each restart, when it has a new process id. It may take `stop_timeout_s`
    to stop if it was ever ready, since only then it has work to finish.
    """

    def __init__(
        self,
        name: str,
        module: str,
        *arguments: str,
        env: Mapping[str, str],
        run_dir: Path,
        log_path: Path,
        on_restart: Callable[[], None] = lambda: None,
        stop_timeout_s: float = STOP_TIMEOUT_S,
    ) -> None:
        self.name = name
        self._stop_timeout_s = stop_timeout_s
        self._on_restart = on_restart
        self.log_path = log_path
        self._command = [sys.executable, "-m", module, *arguments]
        self._env = env
        self._run_dir = run_dir
        self._supervisor = Supervisor(
            name,
            stop_signal=signal.SIGTERM,
            stable_after_s=STABLE_AFTER_S,
            died=self._died,
            restart=self._restarted,
        )
        self._was_ready = False
        self._log_start = 0

    @property
    def runs(self) -> bool:
        """Whether it is running, or about to be restarted."""
        return self._supervisor.process is not None

    @property
    def pid(self) -> int:
        """The process id; it changes when the process is restarted."""
        if self._supervisor.process is None:
            raise self._not_ready("it is stopped")
        return self._supervisor.process.pid

    async def start(self) -> None:
        """Start the process and keep it alive; use `wait_ready` to wait until it is ready."""
        if self._supervisor.is_supervising:
            return
        self._was_ready = False
        self._supervisor.adopt(await self._spawn())
        self._supervisor.begin()

    async def wait_ready(self, *, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until the current process reports that it is ready; raises ProcessNotReady."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            process = self._supervisor.process
            if process is None:
                raise self._not_ready("it is stopped")
            if process.returncode is None:
                if await self._answers(process.pid):
                    self._was_ready = True
                    return
            elif not self._was_ready:
                raise self._not_ready(f"it ended with exit code {process.returncode}")
            await asyncio.sleep(PROBE_INTERVAL_S)
        raise self._not_ready(f"it was not within {timeout_s:g} s")

    async def kill(self, *, restart: bool = True) -> None:
        """Kill the process like a crash. It is restarted (see `wait_ready`); without `restart`, it stays
        down until `start`."""
        process = self._supervisor.process
        if process is None:
            raise self._not_ready("it is stopped")
        if not restart:
            await self._supervisor.let_go()
        await self._supervisor.kill()
        if not restart:
            forget_health(self._run_dir, process.pid)
            self._supervisor.forget()

    async def stop(self, *, timeout_s: float | None = None) -> None:
        """Ask the process to end, and kill it after `timeout_s`, by default as long as it may take; it
        stays down until `start`."""
        if timeout_s is None:
            timeout_s = self._stop_timeout_s if self._was_ready else STOP_TIMEOUT_S
        supervision = await self._supervisor.let_go()
        process = self._supervisor.process
        if process is None:
            return
        self._supervisor.forget()
        await end_process(process, self.name, signal.SIGTERM, timeout_s)
        raise_fault(supervision)

    async def _spawn(self) -> Process:
        self.log_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shorten(self.log_path, LOG_KEEP_BYTES)
        self._log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
        plain, secrets = process_secrets.split(self._env)
        pipe = process_secrets.handed_over(secrets)
        try:
            with opened(self.log_path) as output:
                return await self._launch(plain, output.fileno(), pipe)
        finally:
            os.close(pipe)

    async def _launch(self, env: Mapping[str, str], output: int, secrets: int) -> Process:
        """Start the process with file descriptors for its output and for the pipe with its secrets."""
        return await asyncio.create_subprocess_exec(
            *launched(self._command, signal.SIGTERM, None, None),
            stdin=DEVNULL,
            stdout=output,
            stderr=output,
            env={**env, process_secrets.PIPE: str(secrets)},
            pass_fds=(secrets,),
        )

    async def _died(self, process: Process, exit_code: int) -> bool:
        forget_health(self._run_dir, process.pid)
        if not self._was_ready and not await self._answered_before():
            log.error("process_failed", process=self.name, exit_code=exit_code)
            return False
        log.warning("process_died", process=self.name, exit_code=exit_code)
        return True

    async def _restarted(self) -> bool:
        process = await self._spawn()
        self._supervisor.adopt(process)
        log.info("process_restarted", process=self.name, pid=process.pid)
        try:
            self._on_restart()
        except OSError as error:  # the disk is full; the process runs all the same
            log.warning("restart_not_told", process=self.name, reason=str(error))
        return True

    async def _answered_before(self) -> bool:
        """Let a waiter that has just seen the process become ready report it first."""
        await asyncio.sleep(0)
        return self._was_ready

    async def _answers(self, pid: int) -> bool:
        url = health_url(self._run_dir, pid)
        return url is not None and await is_ready(url)

    def _not_ready(self, reason: str) -> ProcessNotReady:
        return ProcessNotReady(
            process=self.name,
            reason=reason,
            log_path=self.log_path,
            log_tail=end_of(self.log_path, start=self._log_start, max_bytes=LOG_TAIL_BYTES)
            or "(none)",
        )


def health_url(run_dir: Path, pid: int) -> str | None:
    """Return the URL of a process's health server, or None if it has not been written yet."""
    for path in run_dir.glob(f"*-{pid}.json"):
        try:
            return str(json.loads(path.read_text("utf-8"))["health_url"])
        except (FileNotFoundError, ValueError, KeyError):  # half-written or just removed
            continue
    return None


def forget_health(run_dir: Path, pid: int) -> None:
    """Remove a dead process's file about its health server, in case it had no time to do so itself."""
    for path in run_dir.glob(f"*-{pid}.json"):
        path.unlink(missing_ok=True)


async def is_ready(url: str) -> bool:
    """Tell whether a health server answers `/readyz` with 200 and lists what is ready."""
    status, body = await get(url, "/readyz")
    return status == 200 and bool(json.loads(body)["components"])


async def get(url: str, path: str) -> tuple[int, bytes]:
    """Return status and body of a GET; status 0 if there is no answer."""
    place = urlsplit(url)
    host, port = place.hostname or "127.0.0.1", place.port or 80
    request = f"GET {path} HTTP/1.0\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(request.encode())
                answer = await reader.read(MAX_PROBE_BYTES)
                while chunk := await reader.read(MAX_PROBE_BYTES - len(answer)):
                    answer += chunk
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return 0, b""
    head, _, body = answer.partition(b"\r\n\r\n")
    parts = head.split(maxsplit=2)
    return (int(parts[1]), body) if len(parts) > 1 and parts[1].isdigit() else (0, b"")
