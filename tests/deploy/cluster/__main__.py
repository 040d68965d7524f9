"""`make cluster-test`: a platform on a cluster of NATS servers under faults.

There are three NATS servers with mutual TLS and a user for each process, 3 replicas, two coordinators
and three workers, and 20 tasks a second. Every 30 s the server that leads LOG is killed and restarted;
one server is cut off, and one loses its disk. Every acknowledged task must be one run that succeeded.
First a single server is measured for comparison, in alternation."""

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import asyncpg
import structlog

from deploy.cluster.faults import APART, SERVERS, Faults, healthy
from deploy.cluster.link import Link
from deploy.cluster.load import PIPELINE_NAME, Load
from deploy.cluster.nats_cluster import CLIENTS, GivenServers, NatsCluster, ports_of
from hocket.cli.local.platform import Platform
from hocket.kit.embedded import EmbeddedServers
from hocket.kit.embedded.ports import remembered_port
from hocket.kit.nats.bus import Bus
from hocket.schemas.access.nats_table import OWNER

TURNS = 4
TURN_S = 5.0
MIN_MINUTES = 1.5
"""Long enough for each fault to happen."""
FORMED_S = 60.0
CHANGE_S = 6.0
"""Runs submitted within this time after a kill count towards the change of leader."""
ELECTION_S = 12.0
"""Leaders elected within this time after a kill were elected because of it."""
MAX_CHANGE_P99_S = 6.0
MAX_DISTURBED = 1.3
LONG_S = 600.0
MAX_DISTURBED_SHORT = 3.0
"""For a play shorter than LONG_S, in which changes of leader, the cut and the wipe have a larger share.
x"""
MAX_CLUSTER_COST = 2.5
ECHO = "hocket.workers.builtin:echo"
PIPELINE = {
    "pipeline": PIPELINE_NAME,
    "slo_ms": 600_000,
    "nodes": {
        "one": {"type": "python", "handler": ECHO, "with": {"n": "{{ input.n }}"}},
        "two": {"type": "python", "handler": ECHO, "with": {"n": "{{ nodes.one.output.n }}"}},
    },
}


@asynccontextmanager
async def load_on(folder: Path, cluster: NatsCluster) -> AsyncIterator[Load]:
    """Run a platform on a cluster; yield a load for it."""
    async with AsyncExitStack() as stack:
        servers = await stack.enter_async_context(EmbeddedServers(folder / "servers", nats=False))
        bus = await Bus.connect(cluster.url_of(OWNER), name="play")
        stack.push_async_callback(bus.close)
        replicas = len(cluster.processes)
        await _formed(bus, replicas)
        platform = Platform(
            folder / "platform",
            coordinators=2,
            workers=3,
            nats_url=cluster.url_of(OWNER),
            database_url=servers.database_url,
            env={"HOCKET_STREAM_REPLICAS": str(replicas)},
            ready_timeout_s=120,
        )
        platform.backing = GivenServers(folder / "platform", cluster, servers.database_url)
        await stack.enter_async_context(platform)
        await asyncio.to_thread(platform.api().post, "/v1/pipelines", PIPELINE)
        connection = await asyncpg.connect(servers.database_url)
        stack.push_async_callback(connection.close)
        yield Load(bus, connection)


async def _formed(bus: Bus, replicas: int) -> None:
    """Wait until the servers know each other, so that a stream can be placed on all of them."""
    config = {"name": "FORMED", "subjects": ["formed"], "num_replicas": replicas}
    async with asyncio.timeout(FORMED_S):
        while "error" in await bus.api("STREAM.CREATE.FORMED", config, timeout_ms=10_000):  # noqa: ASYNC110
            await asyncio.sleep(0.5)
    await bus.api("STREAM.DELETE.FORMED", {}, timeout_ms=10_000)


@asynccontextmanager
async def one_server(folder: Path) -> AsyncIterator[Load]:
    """Yield a load for a platform on a single server."""
    cluster = NatsCluster(folder / "nats", servers=1)
    try:
        async with load_on(folder, cluster) as load:
            yield load
    finally:
        cluster.stop()


@asynccontextmanager
async def three_servers(folder: Path) -> AsyncIterator[tuple[Load, Faults]]:
    """Yield a load for a platform on three servers, and the faults for them."""
    clients, routes = ports_of(folder / "nats", SERVERS)
    links: list[Link] = []
    ports: dict[tuple[int, int], int] = {}
    for caller in (CLIENTS, *range(SERVERS)):
        for called in range(SERVERS):
            if caller != called and APART in (caller, called):
                port = remembered_port(folder / f"link{caller}-{called}.port")
                ports[caller, called] = port
                links.append(Link(port, (clients if caller == CLIENTS else routes)[called]))
    async with AsyncExitStack() as stack:
        for link in links:
            await link.start()
            stack.push_async_callback(link.stop)
        cluster = NatsCluster(folder / "nats", SERVERS, ports)
        stack.callback(cluster.stop)
        load = await stack.enter_async_context(load_on(folder, cluster))
        await healthy(load.bus)
        yield load, Faults(cluster, links, load.bus)


async def played(folder: Path, seconds: float) -> list[str]:
    """Play everything; return what does not hold."""
    async with three_servers(folder / "three") as (load, faults):
        calm: list[int] = []
        alone: list[int] = []
        async with one_server(folder / "one") as single:
            for _ in range(TURNS):
                alone += await single.run(TURN_S)
                calm += await load.run(TURN_S)
            await single.settle()
        happening = asyncio.create_task(faults.happen(seconds))
        disturbed = await load.run(seconds)
        await happening
        await load.settle()
        wrong = _changes(load, faults)
        alone_s, calm_s = single.took(alone, 50), load.took(calm, 50)
        disturbed_s = load.took(disturbed, 50)
    changing = [n for kill in faults.kills for n in load.given_between(kill, kill + CHANGE_S)]
    change_s = load.took(changing, 99)
    print(f"{len(load.given)} tasks acknowledged, {len(faults.kills)} leaders killed")
    print(f"p50: one server {alone_s * 1e3:.0f} ms, three {calm_s * 1e3:.0f} ms, ", end="")
    print(f"with faults {disturbed_s * 1e3:.0f} ms; p99 of {len(changing)} runs ", end="")
    print(f"given while a leader changed {change_s:.2f} s", flush=True)
    statuses = Counter(row["status"] for rows in load.runs.values() for row in rows)
    bounds = {
        "lost": (len(load.given) - len(load.runs), 0),
        "doubled": (sum(len(rows) > 1 for rows in load.runs.values()), 0),
        "not succeeded": (statuses.total() - statuses["succeeded"], 0),
        "kinds of fault that did not happen": (2 - len(faults.others) + (not faults.kills), 0),
        "p99 during a change of leader, s": (change_s, MAX_CHANGE_P99_S),
        "p50 with faults, of that without": (
            disturbed_s / calm_s,
            MAX_DISTURBED if seconds >= LONG_S else MAX_DISTURBED_SHORT,
        ),
        "p50 of three servers, of that of one": (calm_s / alone_s, MAX_CLUSTER_COST),
    }
    return wrong + [
        f"{what}: {n:.2f}, at most {bound}" for what, (n, bound) in bounds.items() if n > bound
    ]


def _changes(load: Load, faults: Faults) -> list[str]:
    """Print each change of leader; return what is wrong with them."""
    wrong: list[str] = []
    for number, kill in enumerate(faults.kills, 1):
        elected = faults.cluster.elected(kill, ELECTION_S)
        if elected is None:
            wrong.append(f"kill {number}: nobody was elected within {ELECTION_S:g} s")
            continue
        ended = max(load.ended(load.given_between(kill, elected)), default=elected)
        print(f"  {number}: last leader elected after {elected - kill:.1f} s, ", end="")
        print(f"all runs of before ended {ended - elected:+.1f} s from then", flush=True)
    print(*faults.others, sep="\n", flush=True)
    return wrong


async def main() -> None:
    parser = argparse.ArgumentParser(prog="make cluster-test")
    parser.add_argument("--minutes", type=float, default=2.0, help="how long there are faults")
    seconds = max(MIN_MINUTES, parser.parse_args().minutes) * 60
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    with tempfile.TemporaryDirectory(prefix="hocket-cluster-") as name:
        wrong = await played(Path(name), seconds)
    if wrong:
        sys.exit("FAILED:\n" + "\n".join(wrong))


if __name__ == "__main__":
    asyncio.run(main())
