"""A platform on a NATS cluster of one's own: three real servers, named with commas."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from hocket.cli.local.platform import Platform
from hocket.kit.embedded.nats import nats_program
from hocket.kit.nats import streams
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.nats.streams import StreamOfOneServer, ensure_streams, stream_configs

READY_S = 60.0
NO_LEADER = 10_008
NAMES = [one["name"] for one in stream_configs()]


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def config(folder: Path, number: int, ports: list[int], routes: list[int], more: str = "") -> str:
    others = ", ".join(f"nats://127.0.0.1:{port}" for port in routes)
    return (
        f"server_name: n{number}\nhost: 127.0.0.1\nport: {ports[number]}\nmax_payload: 4MB\n"
        f'jetstream {{ store_dir: "{folder}/n{number}", max_file_store: 64GB }}\n'
        f"cluster {{ name: c, host: 127.0.0.1, port: {routes[number]}, routes: [{others}] }}\n"
        f"{more}"
    )


class Servers:
    """Three servers that are started one by one."""

    def __init__(self, folder: Path, more: str = "") -> None:
        *ports, one, two, three = free_ports(6)
        self.urls = [f"nats://127.0.0.1:{port}" for port in ports]
        self._files = [folder / f"n{number}.conf" for number in range(3)]
        for number, file in enumerate(self._files):
            file.write_text(config(folder, number, ports, [one, two, three], more))
        self._running: list[asyncio.subprocess.Process] = []

    async def start(self, number: int) -> None:
        quiet = asyncio.subprocess.DEVNULL
        self._running.append(
            await asyncio.create_subprocess_exec(
                nats_program(), "--config", self._files[number], stdout=quiet, stderr=quiet
            )
        )

    async def kill(self, number: int) -> None:
        """Kill a server, of those that were started in order."""
        self._running[number].kill()
        await self._running[number].wait()

    async def stop(self) -> None:
        for server in self._running:
            with contextlib.suppress(ProcessLookupError):
                server.kill()
        await asyncio.gather(*(server.wait() for server in self._running))


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[Servers]:
    servers = Servers(tmp_path)
    yield servers
    await servers.stop()


@pytest.fixture
async def cluster(servers: Servers) -> str:
    for number in range(3):
        await servers.start(number)
    url = ",".join(servers.urls)
    async with asyncio.timeout(READY_S):
        await leader(url)
    return url


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


async def test_streams_wait_for_a_server_that_the_cluster_is_missing(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "FORMS_S", READY_S)  # elections take long on a busy machine
    for number in range(2):
        await servers.start(number)
    bus = await Bus.connect(servers.urls[0], name="test")
    async with asyncio.timeout(3 * READY_S):
        answer: dict[str, Any] = {}
        while answer.get("error", {}).get("err_code") != NO_LEADER:
            with contextlib.suppress(BusUnavailable):  # at first nothing is answered at all
                answer = await bus.api("STREAM.INFO.LOG", {}, timeout_ms=2_000)
        with capture_logs() as logs:
            making = asyncio.create_task(ensure_streams(bus, replicas=3))
            while not making.done() and not any(one["event"] == "cluster_awaited" for one in logs):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert not making.done(), making
            await servers.start(2)
            await making
    for wanted in stream_configs(replicas=3):
        found = await bus.api(f"STREAM.INFO.{wanted['name']}", {}, timeout_ms=5_000)
        assert found["config"]["num_replicas"] == 3
        assert found["config"]["max_bytes"] == wanted["max_bytes"], "it was made smaller"
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


async def test_streams_of_one_server_are_not_brought_to_three_and_what_to_do_is_said(
    cluster: str,
) -> None:
    bus = await Bus.connect(cluster, name="test")
    try:
        await ensure_streams(bus, replicas=1)
        before = [await bus.api(f"STREAM.INFO.{n}", {}, timeout_ms=5_000) for n in NAMES]
        with pytest.raises(StreamOfOneServer, match="#from-one-server-to-three"):
            await ensure_streams(bus, replicas=3)
        after = [await bus.api(f"STREAM.INFO.{n}", {}, timeout_ms=5_000) for n in NAMES]
        assert [one["config"] for one in after] == [one["config"] for one in before]
    finally:
        await bus.close()
