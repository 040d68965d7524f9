"""`make cluster-test SECONDS=60`: three NATS servers with certificates on both sides, replicas 3, two
coordinators and three workers; tasks come in while the leader of LOG is killed every 15 s and started
again. Every task that was acknowledged must be one run that succeeded."""

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import asyncpg

from hocket.cli.local.platform import Platform
from hocket.kit.embedded import EmbeddedServers
from hocket.kit.embedded.ports import LOOPBACK, remembered_port
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from support.certificates import Authority

KILL_EVERY_S = 15.0
PAUSE_S = 0.1
SETTLED_S = 120
SERVERS = 3
PIPELINE = {
    "pipeline": "cluster",
    "slo_ms": 600_000,
    "input": {"type": "object"},
    "nodes": {
        "one": {"type": "python", "handler": "hocket.workers.builtin:echo", "with": {"n": 1}},
        "two": {
            "type": "python",
            "handler": "hocket.workers.builtin:echo",
            "with": {"n": "{{ nodes.one.output.n }}"},
        },
    },
}


class Cluster:
    """Three servers in a folder, each in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._authority = Authority(folder / "tls")
        self._authority.issue("client")
        self._ports = [remembered_port(folder / f"{n}.port") for n in range(SERVERS)]
        self._routes = [remembered_port(folder / f"{n}.route") for n in range(SERVERS)]
        self.processes: list[subprocess.Popen[bytes]] = []
        for number in range(SERVERS):
            (folder / f"n{number}.conf").write_text(self._config(number))
            self.processes.append(self._started(number))

    @property
    def url(self) -> str:
        tls = self._authority.folder
        servers = ",".join(f"tls://{LOOPBACK}:{port}" for port in self._ports)
        return f"{servers}?ca={tls}/ca.crt&cert={tls}/client.crt&key={tls}/client.key"

    def restart(self, name: str) -> None:
        """Kill a server and start it again."""
        number = int(name[1:])
        self.processes[number].kill()
        self.processes[number].wait(10)
        self.processes[number] = self._started(number)

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait(10)

    def _started(self, number: int) -> subprocess.Popen[bytes]:
        server = Path(sys.executable).parent / "nats-server"
        command = [server, "-c", self._folder / f"n{number}.conf"]
        return subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def _config(self, number: int) -> str:
        tls = self._authority.server_block(f"n{number}")
        routes = ", ".join(f"nats-route://{LOOPBACK}:{port}" for port in self._routes)
        return (
            f"server_name: n{number}\nlisten: {LOOPBACK}:{self._ports[number]}\n{tls}"
            f"cluster {{ name: hocket, listen: {LOOPBACK}:{self._routes[number]}, "
            f"routes: [{routes}], {tls.strip()} }}\n"
            f"jetstream {{ store_dir: {self._folder}/js{number}, max_file_store: 30GB }}\n"
        )


async def leader(bus: Bus) -> str:
    """Return the server that leads LOG, when one does."""
    while True:
        try:
            found = await bus.api("STREAM.INFO.LOG", {}, timeout_ms=3_000)
        except BusUnavailable:
            found = {}
        if name := found.get("cluster", {}).get("leader"):
            return str(name)
        await asyncio.sleep(0.2)


async def main() -> None:
    parser = argparse.ArgumentParser(prog="make cluster-test")
    parser.add_argument("--seconds", type=float, default=60.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hocket-cluster-") as name:
        folder = Path(name)
        cluster = Cluster(folder)
        try:
            async with EmbeddedServers(folder / "servers") as servers:
                bus = await Bus.connect(cluster.url, name="play")
                while "error" in await bus.api("INFO", {}, timeout_ms=10_000):  # noqa: ASYNC110
                    await asyncio.sleep(0.5)
                async with Platform(
                    folder / "platform",
                    coordinators=2,
                    workers=3,
                    nats_url=cluster.url,
                    database_url=servers.database_url,
                    env={"HOCKET_STREAM_REPLICAS": "3"},
                    ready_timeout_s=120,
                ) as platform:
                    await asyncio.to_thread(platform.api().post, "/v1/pipelines", PIPELINE)
                    sys.exit(await _play(cluster, bus, servers.database_url, asked.seconds))
        finally:
            cluster.stop()


async def _play(cluster: Cluster, bus: Bus, database_url: str, seconds: float) -> int:
    posts, kills = [], 0
    began = killed = time.monotonic()
    while time.monotonic() < began + seconds:
        posts.append(bus.publish_durable("hocket.task.default.cluster", b"{}"))
        if time.monotonic() > killed + KILL_EVERY_S:
            await asyncio.to_thread(cluster.restart, await leader(bus))
            killed, kills = time.monotonic(), kills + 1
        await asyncio.sleep(PAUSE_S)
    await asyncio.wait_for(asyncio.gather(*posts), SETTLED_S)
    connection = await asyncpg.connect(database_url)
    until = time.monotonic() + SETTLED_S
    ended = "SELECT count(*) FROM hocket.run WHERE status = 'succeeded'"
    while await connection.fetchval(ended) < len(posts) and time.monotonic() < until:  # noqa: ASYNC110
        await asyncio.sleep(0.5)
    row = await connection.fetchrow(
        "SELECT count(*) AS runs, count(*) FILTER (WHERE status = 'succeeded') AS good, "
        "percentile_cont(ARRAY[0.5, 0.99, 1]) WITHIN GROUP "
        "(ORDER BY extract(epoch FROM finished_at - accepted_at)) AS took FROM hocket.run"
    )
    await connection.close()
    await bus.close()
    p50, p99, most = row["took"]
    print(f"{len(posts)} tasks acknowledged, {kills} leaders killed: {row['runs']} runs, ", end="")
    print(f"{row['good']} succeeded; p50 {p50:.3f} s, p99 {p99:.2f} s, longest {most:.2f} s")
    return int(row["runs"] != len(posts) or row["good"] != len(posts))


if __name__ == "__main__":
    asyncio.run(main())
