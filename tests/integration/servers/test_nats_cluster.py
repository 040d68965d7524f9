"""A platform on a NATS cluster of one's own: three real servers, named with commas."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hocket.cli.local.platform import Platform
from hocket.kit.embedded.nats import nats_program
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.streams import stream_configs

READY_S = 60.0


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def config(folder: Path, number: int, ports: list[int], routes: list[int]) -> str:
    others = ", ".join(f"nats://127.0.0.1:{port}" for port in routes)
    return (
        f"server_name: n{number}\nhost: 127.0.0.1\nport: {ports[number]}\nmax_payload: 4MB\n"
        f'jetstream {{ store_dir: "{folder}/n{number}", max_file_store: 64GB }}\n'
        f"cluster {{ name: c, host: 127.0.0.1, port: {routes[number]}, routes: [{others}] }}\n"
    )


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[str]:
    *ports, one, two, three = free_ports(6)
    routes = [one, two, three]
    servers = []
    for number in range(3):
        file = tmp_path / f"n{number}.conf"
        file.write_text(config(tmp_path, number, ports, routes))
        servers.append(
            await asyncio.create_subprocess_exec(
                nats_program(), "--config", file, stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
            )
        )  # fmt: skip
    url = ",".join(f"nats://127.0.0.1:{port}" for port in ports)
    try:
        async with asyncio.timeout(READY_S):
            await leader(url)
            yield url
    finally:
        for server in servers:
            with contextlib.suppress(ProcessLookupError):
                server.kill()
        await asyncio.gather(*(server.wait() for server in servers))


async def leader(url: str) -> None:
    """Wait until JetStream has a leader: until then each question of it goes unanswered."""
    bus = await Bus.connect(url, name="test")
    try:
        while True:
            with contextlib.suppress(Exception):
                if "error" not in await bus.api("INFO", {}, timeout_ms=500):
                    return
            await asyncio.sleep(0.1)
    finally:
        await bus.close()


async def test_streams_of_up_are_on_as_many_servers_as_the_setting_says(
    cluster: str, tmp_path: Path
) -> None:
    env = {"HOCKET_STREAM_REPLICAS": "3"}
    async with Platform(
        tmp_path / "data", nats_url=cluster, env=env, services=("coordinator", "gateway", "ledger")
    ):
        bus = await Bus.connect(cluster, name="test")
        try:
            for wanted in stream_configs(replicas=3):
                found = await bus.api(f"STREAM.INFO.{wanted['name']}", {}, timeout_ms=5_000)
                assert found["config"]["num_replicas"] == 3
                assert len(found["cluster"]["replicas"]) == 2
        finally:
            await bus.close()
