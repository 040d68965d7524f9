"""A supervised process of the platform: readiness, restart, stop, and its tie to its parent."""

import asyncio
import errno
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hocket.cli.local.processes import STOP_TIMEOUT_S, PlatformProcess
from hocket.cli.terminal.errors import ProcessNotReady
from hocket.kit.child_processes.launcher import identity

WAIT_S = 20.0

SERVICE = """
import http.server, json, os, pathlib, signal, sys

signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/readyz" else 404)
        self.end_headers()
        self.wfile.write(b'{"ready": true, "components": {"started": {"ok": true}}}')
    def log_message(self, *_): ...

server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
url = f"http://127.0.0.1:{server.server_port}"
file = pathlib.Path(os.environ["RUN_DIR"]) / f"service-{os.getpid()}.json"
file.write_text(json.dumps({"service": "service", "pid": os.getpid(), "health_url": url}))
print("serving", flush=True)
server.serve_forever()
"""
BROKEN = "import sys; sys.exit('the setting `x` is missing')"
STUBBORN = SERVICE.replace("lambda *_: sys.exit(0)", "signal.SIG_IGN")

PARENT = """
import asyncio, os, sys
from pathlib import Path
from hocket.cli.local.processes import PlatformProcess

async def main():
    folder = Path(sys.argv[1])
    env = {**os.environ, "PYTHONPATH": str(folder), "RUN_DIR": str(folder)}
    process = PlatformProcess(
        "service", "service", env=env, run_dir=folder, log_path=folder / "service.log"
    )
    await process.start()
    await process.wait_ready()
    print(process.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def process_of(
    folder: Path, code: str, *, stop_timeout_s: float = STOP_TIMEOUT_S
) -> PlatformProcess:
    (folder / "service.py").write_text(code, "utf-8")
    env = {**os.environ, "PYTHONPATH": str(folder), "RUN_DIR": str(folder)}
    return PlatformProcess(
        "service",
        "service",
        env=env,
        run_dir=folder,
        log_path=folder / "logs" / "service.log",
        stop_timeout_s=stop_timeout_s,
    )


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[PlatformProcess]:
    process = process_of(tmp_path, SERVICE)
    await process.start()
    await process.wait_ready(timeout_s=WAIT_S)
    yield process
    await process.stop()


async def test_its_output_goes_to_its_log(service: PlatformProcess) -> None:
    assert service.log_path.read_text("utf-8") == "serving\n"


async def test_a_killed_process_is_ready_again_under_another_pid(service: PlatformProcess) -> None:
    before = service.pid

    await service.kill()
    await service.wait_ready(timeout_s=WAIT_S)

    assert service.pid != before
    assert identity(before) is None
    facts = [path.name for path in service.log_path.parent.parent.glob("service-*.json")]
    assert facts == [f"service-{service.pid}.json"]


async def test_a_process_that_ends_by_itself_is_started_again(service: PlatformProcess) -> None:
    before = service.pid
    os.kill(before, signal.SIGTERM)
    async with asyncio.timeout(WAIT_S):
        while service.pid == before:  # noqa: ASYNC110 - supervision has no event for it
            await asyncio.sleep(0.01)

    await service.wait_ready(timeout_s=WAIT_S)

    assert identity(service.pid) is not None


async def test_a_stopped_process_stays_away(service: PlatformProcess) -> None:
    pid = service.pid

    await service.stop()

    assert identity(pid) is None
    with pytest.raises(ProcessNotReady, match="it is stopped"):
        await service.wait_ready(timeout_s=0.1)


async def test_a_process_that_cannot_start_says_why(tmp_path: Path) -> None:
    process = process_of(tmp_path, BROKEN)
    await process.start()

    with pytest.raises(ProcessNotReady, match="the setting `x` is missing"):
        await process.wait_ready(timeout_s=WAIT_S)

    await process.stop()


async def test_a_process_that_does_not_listen_is_stopped_by_force(tmp_path: Path) -> None:
    process = process_of(tmp_path, STUBBORN)
    await process.start()
    await process.wait_ready(timeout_s=WAIT_S)
    pid, began = process.pid, time.monotonic()

    await process.stop(timeout_s=0.2)

    assert identity(pid) is None
    assert time.monotonic() - began < WAIT_S


async def test_a_process_ends_with_its_killed_parent(tmp_path: Path) -> None:
    (tmp_path / "service.py").write_text(SERVICE, "utf-8")
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    async with asyncio.timeout(WAIT_S):
        pid = int(await parent.stdout.readline())
        recorded = identity(pid)
        parent.kill()
        await parent.wait()
        while identity(pid) == recorded:  # noqa: ASYNC110 - not our child to wait for
            await asyncio.sleep(0.01)

    assert recorded is not None


async def killed_and_back(process: PlatformProcess) -> None:
    before = process.pid
    await process.kill()
    async with asyncio.timeout(WAIT_S):
        while process.pid == before:  # noqa: ASYNC110 - supervision has no event for it
            await asyncio.sleep(0.01)
    await process.wait_ready(timeout_s=WAIT_S)


async def test_it_is_kept_alive_where_nobody_can_be_told_of_its_restart(
    service: PlatformProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(service, "_on_restart", full)

    await killed_and_back(service)
    await killed_and_back(service)


async def test_it_is_kept_alive_where_a_restart_failed(
    service: PlatformProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawn, failures = service._spawn, [OSError(errno.EMFILE, "Too many open files")]

    async def failing_once() -> asyncio.subprocess.Process:
        if failures:
            raise failures.pop()
        return await spawn()

    monkeypatch.setattr(service, "_spawn", failing_once)

    await killed_and_back(service)

    assert not failures


async def test_a_process_that_was_ready_has_its_own_time_to_stop(tmp_path: Path) -> None:
    process = process_of(tmp_path, STUBBORN, stop_timeout_s=0.2)
    await process.start()
    await process.wait_ready(timeout_s=WAIT_S)
    began = time.monotonic()

    await process.stop()

    assert 0.2 <= time.monotonic() - began < STOP_TIMEOUT_S
