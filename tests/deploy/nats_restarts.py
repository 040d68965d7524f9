"""`make nats-restarts TIMES=10`: restarts of a platform's only NATS server.

It is ended by SIGTERM, killed, or all connections to it are broken, TIMES times each, under 20 runs a
second with one model call each. No run may be lost or fail, and the model's own meter must show one
paid answer for each."""

import argparse
import asyncio
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog

from deploy.cluster.link import Link
from deploy.cluster.nats_cluster import CLIENTS, NatsCluster, ports_of
from deploy.releases import PRESENT
from deploy.upgrade_play import BOUND_S, NOT_ENDED, Load, none_left, rolled_platform
from hocket.kit.embedded.ports import remembered_port

BETWEEN_S = 5.0
NOT_SUCCEEDED = "SELECT count(*) FROM hocket.run WHERE status <> 'succeeded'"

Trouble = Callable[[], Awaitable[None]]


def troubles(cluster: NatsCluster, link: Link) -> dict[str, Trouble]:
    """Return the troubles that can happen to the server, by name."""

    async def ended(number: signal.Signals) -> None:
        (server,) = cluster.processes
        server.send_signal(number)
        await asyncio.to_thread(server.wait)
        cluster.restart(0)

    async def broken() -> None:
        link.drop()

    return {
        "ended by SIGTERM": lambda: ended(signal.SIGTERM),
        "killed": lambda: ended(signal.SIGKILL),
        "connections broken": broken,
    }


async def played(folder: Path, times: int, name: str) -> list[str]:
    """Let one trouble happen `times` times; return what does not hold."""
    port = remembered_port(folder / "link.port")
    link = Link(port, ports_of(folder / "nats", 1)[0][0])
    await link.start()
    cluster = NatsCluster(folder / "nats", 1, {(CLIENTS, 0): port})
    happen = troubles(cluster, link)[name]
    try:
        async with rolled_platform(folder, cluster, PRESENT) as platform:
            load = Load(platform.bus, platform.api)
            loading = asyncio.create_task(load.run())
            for _ in range(times):
                await asyncio.sleep(BETWEEN_S)
                await happen()
            await asyncio.sleep(BETWEEN_S)
            load.stop()
            await loading
            accepted = list(load.accepted)
            lost = await none_left(platform.connection, NOT_ENDED, accepted, bound_s=BOUND_S)
            failed = await platform.connection.fetchval(NOT_SUCCEEDED)
            faults = platform.meter.faults(load.accepted)
            if lost or failed:
                faults.append(f"{lost} runs have not ended, {failed} did not succeed")
            twice = platform.meter.paid_twice
            print(f"{name} {times} times: {len(accepted)} runs, {twice} paid twice", flush=True)
            return faults
    finally:
        cluster.stop()
        await link.stop()


async def main() -> None:
    parser = argparse.ArgumentParser(prog="make nats-restarts")
    parser.add_argument("--times", type=int, default=10)
    times = parser.parse_args().times
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    faults: list[str] = []
    for name in ("connections broken", "ended by SIGTERM", "killed"):
        with tempfile.TemporaryDirectory(prefix="hkt-") as folder:
            faults += await played(Path(folder), times, name)
    print("\n".join(faults) or "No fault.")
    sys.exit(bool(faults))


if __name__ == "__main__":
    asyncio.run(main())
