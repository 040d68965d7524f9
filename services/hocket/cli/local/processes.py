"""One process of the platform, kept alive.

States: stopped -> starting -> ready -> (died -> starting) ... -> stopped. A process that ends is
started again after a delay that doubles from `RESTART_DELAY_FIRST_S` to `RESTART_DELAY_MAX_S` and
falls back once it has been up for `STABLE_AFTER_S`. One that ends before it was ever ready raises
`ProcessNotReady` from `wait_ready` with the end of its log, since starting it again would not help.

The kernel ends it with its parent (see hocket.kit.embedded.launcher). Readiness is its own: it
writes the address of its health server to `run/<service>-<pid>.json` and answers `/readyz`.
"""

import asyncio
import json
import os
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import structlog

from hocket.cli.terminal.errors import ProcessNotReady
from hocket.kit.embedded.supervisor import launched
from hocket.kit.process import process_secrets

READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
PROBE_INTERVAL_S = 0.02
PROBE_TIMEOUT_S = 2.0
RESTART_DELAY_FIRST_S = 0.05
RESTART_DELAY_MAX_S = 5.0
STABLE_AFTER_S = 10.0
LOG_KEEP_BYTES = 20 * 1024 * 1024
LOG_TAIL_BYTES = 2_000
MAX_PROBE_BYTES = 65_536

log = structlog.get_logger(__name__)


class PlatformProcess:
    """`python -m <module> <arguments>` as a supervised child process.

    `on_restart` is called each time that it was started again, and has a new process id.
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
    ) -> None:
        self.name = name
        self._on_restart = on_restart
        self.log_path = log_path
        self._command = [sys.executable, "-m", module, *arguments]
        self._env = env
        self._run_dir = run_dir
        self._process: Process | None = None
        self._supervision: asyncio.Task[None] | None = None
        self._was_ready = False
        self._log_start = 0

    @property
    def runs(self) -> bool:
        """Whether it is started, or is about to be started again."""
        return self._process is not None

    @property
    def pid(self) -> int:
        """The process id; it changes when the process is started again."""
        if self._process is None:
            raise self._not_ready("it is stopped")
        return self._process.pid

    async def start(self) -> None:
        """Start the process and keep it alive from then on; `wait_ready` tells when it is ready."""
        if self._supervision is not None:
            return
        self._was_ready = False
        self._process = await self._spawn()
        self._supervision = asyncio.create_task(self._supervise(), name=f"supervise-{self.name}")

    async def wait_ready(self, *, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until the process that runs now says that it is ready; raises ProcessNotReady."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            process = self._process
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
        """Kill the process as a crash would; it is started again (see `wait_ready`), or else stays
        away until `start`."""
        process = self._process
        if process is None:
            raise self._not_ready("it is stopped")
        if not restart and self._supervision is not None:
            supervision, self._supervision = self._supervision, None
            supervision.cancel()
            await asyncio.wait({supervision})
        _signal(process, signal.SIGKILL)
        await process.wait()
        if not restart:
            forget_health(self._run_dir, process.pid)
            self._process = None

    async def stop(self, *, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Ask the process to end, force it after `timeout_s`; it stays away until `start`."""
        supervision, self._supervision = self._supervision, None
        if supervision is not None:
            supervision.cancel()
            await asyncio.wait({supervision})
        process, self._process = self._process, None
        if process is None:
            return
        _signal(process, signal.SIGTERM)
        try:
            async with asyncio.timeout(timeout_s):
                await process.wait()
        except TimeoutError:
            log.warning("process_stop_forced", process=self.name, pid=process.pid)
            _signal(process, signal.SIGKILL)
            await process.wait()
        if supervision is not None and not supervision.cancelled():
            supervision.result()  # it ends by itself only through a fault of ours

    async def _spawn(self) -> Process:
        self.log_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.log_path.exists() and self.log_path.stat().st_size > LOG_KEEP_BYTES:
            self.log_path.replace(self.log_path.with_suffix(".log.1"))
        self._log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
        plain, secrets = process_secrets.split(self._env)
        pipe = process_secrets.handed_over(secrets)
        try:
            with os.fdopen(_opened_log(self.log_path), "ab") as output:
                return await asyncio.create_subprocess_exec(
                    *launched(self._command, signal.SIGTERM, None, None),
                    stdin=DEVNULL,
                    stdout=output,
                    stderr=output,
                    env={**plain, process_secrets.PIPE: str(pipe)},
                    pass_fds=(pipe,),
                )
        finally:
            os.close(pipe)

    async def _supervise(self) -> None:
        delay_s = RESTART_DELAY_FIRST_S
        while True:
            assert self._process is not None, "only a started process is supervised"
            began = time.monotonic()
            exit_code = await self._process.wait()
            forget_health(self._run_dir, self._process.pid)
            if not self._was_ready and not await self._answered_before():
                log.error("process_failed", process=self.name, exit_code=exit_code)
                return
            log.warning("process_died", process=self.name, exit_code=exit_code)
            if time.monotonic() - began >= STABLE_AFTER_S:
                delay_s = RESTART_DELAY_FIRST_S
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, RESTART_DELAY_MAX_S)
            self._process = await self._spawn()
            log.info("process_restarted", process=self.name, pid=self._process.pid)
            self._on_restart()

    async def _answered_before(self) -> bool:
        """Give a waiter that has just seen the readiness the chance to say so."""
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
            log_tail=_tail(self.log_path, self._log_start),
        )


def _opened_log(path: Path) -> int:
    """Return the descriptor of a log, which only its user may read."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def health_url(run_dir: Path, pid: int) -> str | None:
    """Return the address of a process's health server; None while it has not written one."""
    for path in run_dir.glob(f"*-{pid}.json"):
        try:
            return str(json.loads(path.read_text("utf-8"))["health_url"])
        except (FileNotFoundError, ValueError, KeyError):  # half written or just removed
            continue
    return None


def forget_health(run_dir: Path, pid: int) -> None:
    """Remove what a process that has ended wrote about its health server, had it no time to."""
    for path in run_dir.glob(f"*-{pid}.json"):
        path.unlink(missing_ok=True)


async def is_ready(url: str) -> bool:
    """Tell whether a health server answers `/readyz` with 200 and names what is ready."""
    status, body = await get(url, "/readyz")
    return status == 200 and bool(json.loads(body)["components"])


async def get(url: str, path: str) -> tuple[int, bytes]:
    """Return status and body of one GET; status 0 where nobody answers."""
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


def _signal(process: Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        process.send_signal(number)


def _tail(log_path: Path, start: int) -> str:
    if not log_path.exists():
        return "(none)"
    with log_path.open("rb") as file:
        file.seek(max(start, log_path.stat().st_size - LOG_TAIL_BYTES))
        return file.read().decode("utf-8", "replace").strip() or "(none)"
