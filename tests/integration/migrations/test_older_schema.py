"""Processes that start before their schema is there wait for it, and say so at `/readyz`."""

import asyncio
import json
import os
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from hocket.kit.embedded.servers import EmbeddedServers
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.streams import ensure_streams
from hocket.kit.postgres import migrations

BOUND_S = 90.0
PROCESSES = {
    "rest": ("hocket.admin",),
    "worker": ("hocket.workers", "--types", "retrieval"),
}


@pytest.fixture
async def empty_url(servers: EmbeddedServers) -> AsyncIterator[str]:
    """The URL of a database without a schema."""
    root = await asyncpg.connect(servers.database_url)
    await root.execute("CREATE DATABASE before_all")
    try:
        yield servers.postgres.url_of("before_all")
    finally:
        await root.execute("DROP DATABASE before_all WITH (FORCE)")
        await root.close()


@pytest.mark.parametrize("name", PROCESSES)
async def test_a_process_waits_for_its_schema_and_says_so(
    servers: EmbeddedServers, empty_url: str, tmp_path: Path, name: str
) -> None:
    bus = await Bus.connect(servers.nats_url, name="test")
    await ensure_streams(bus, replicas=1)
    await bus.close()
    port = _free_port()
    env = {key: value for key, value in os.environ.items() if not key.startswith("HOCKET_")}
    env |= {
        "DATABASE_URL": empty_url,
        "NATS_URL": servers.nats_url,
        "HOCKET_DATA_DIR": str(tmp_path),
        "HOCKET_HEALTH_PORT": str(port),
        "HOCKET_API_PORT": "0",
        "HOCKET_CAPABILITY_KEY": "c" * 40,
    }
    with (tmp_path / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", *PROCESSES[name], env=env, stdout=log, stderr=log
        )
    try:
        async with asyncio.timeout(BOUND_S):
            waiting = await _reported(process, port, "schema", ok=False)
            assert "needs" in waiting
            assert "hocket migrate" in waiting
            await migrations.migrate(empty_url)
            await _reported(process, port, "schema", ok=True)
            await _reported(process, port, "started", ok=True)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
    assert "schema_not_ready" in (tmp_path / "log").read_text()


async def _reported(
    process: asyncio.subprocess.Process, port: int, component: str, *, ok: bool
) -> str:
    """Wait until a process reports this state of a component at `/readyz`; return the detail."""
    while process.returncode is None:
        found = await asyncio.to_thread(_asked, f"http://127.0.0.1:{port}/readyz")
        if component in found and found[component]["ok"] is ok:
            return str(found[component]["detail"])
        await asyncio.sleep(0.1)
    return pytest.fail(f"the process has ended: {process.returncode}")


def _asked(url: str) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            body = answer.read()
    except urllib.error.HTTPError as error:
        body = error.read()
    except OSError:
        return {}
    components: dict[str, Any] = json.loads(body)["components"]
    return components


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
