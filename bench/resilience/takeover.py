"""Measure how long runs stand still when a coordinator is killed or asked to stop.

Uses its own platform in a temporary folder, with several coordinators that share the partitions, and a
load of runs that are chains of short steps, so that every partition dispatches constantly. A trial ends
one coordinator (`kill -9` without a restart, or SIGTERM) and measures, for each partition that it
owned, the time until a step that was never dispatched before is sent under a new owner's epoch:
redispatching attempts in flight does not count. Then the coordinator is started again; the next trial
waits until the partitions are evenly distributed.

At the end every published run must have succeeded and each end must have been published exactly once;
otherwise no figure is printed and the exit code is 1.

    .venv/bin/python -m bench.resilience.takeover --trials 50
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import nats
import structlog
import yaml
from nats.aio.client import Client
from nats.aio.msg import Msg

from bench.support.places import HANDLERS
from hocket.cli.local.platform import Platform
from hocket.cli.local.processes import get, health_url
from hocket.kit.nats.cloudevents import REPLY_TO
from hocket.schemas import subjects

TENANT = "default"
PIPELINE = "chain"
STEPS = 25
STEP_S = 0.2
BOUND_S = 60.0
SETTLED_S = 1.0
"""How long runs proceed undisturbed before each trial."""


class RunsMissing(Exception):
    """A published run is missing or did not end as it should."""


class Watch:
    """Observes every step sent to the workers, and records when each partition's runs first moved."""

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}
        self.moved_at_s: dict[tuple[int, int], float] = {}
        """By partition and epoch: when the first step was sent that had never been sent before."""
        self._sent: set[tuple[str, str]] = set()
        self._changed = asyncio.Event()

    async def heard(self, message: Msg) -> None:
        at_s = time.perf_counter()
        request = json.loads(message.data)
        partition, epoch = request["partition"], request["epoch"]
        step = (request["run_id"], request["step"])
        if step in self._sent:
            return
        self._sent.add(step)
        self.epochs[partition] = max(epoch, self.epochs.get(partition, 0))
        self.moved_at_s.setdefault((partition, epoch), at_s)
        self._changed.set()

    async def moved(self, partition: int, after_epoch: int) -> float:
        """Return when a partition's runs first moved under an epoch later than `after_epoch`."""
        while True:
            found = [
                at for (p, e), at in self.moved_at_s.items() if p == partition and e > after_epoch
            ]
            if found:
                return min(found)
            self._changed.clear()
            await self._changed.wait()


class Load:
    """Keeps a number of runs in flight."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._inbox = client.new_inbox()
        self._stopping = False
        self._ended: dict[str, asyncio.Event] = {}
        self.published = 0

    async def start(self, runs: int) -> list[asyncio.Task[None]]:
        await self._client.subscribe(f"{self._inbox}.*", cb=self._heard)
        return [asyncio.create_task(self._one_after_the_other()) for _ in range(runs)]

    def stop(self) -> None:
        """Stop publishing; each task ends with its current run."""
        self._stopping = True

    async def _one_after_the_other(self) -> None:
        jetstream = self._client.jetstream(timeout=BOUND_S)
        while not self._stopping:
            self.published += 1
            token = str(self.published)
            ended = self._ended[token] = asyncio.Event()
            headers = {REPLY_TO: f"{self._inbox}.{token}"}
            await jetstream.publish(subjects.task(TENANT, PIPELINE), b"{}", headers=headers)
            while not ended.is_set():  # an answer is sent once, and may be lost with its sender
                try:
                    await asyncio.wait_for(ended.wait(), STEPS * STEP_S + BOUND_S)
                except TimeoutError:
                    break

    async def _heard(self, message: Msg) -> None:
        self._ended[message.subject.rpartition(".")[2]].set()


async def main(arguments: argparse.Namespace) -> None:
    """Start a platform, end its coordinators again and again, check and print."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    with tempfile.TemporaryDirectory(prefix="hkt-") as folder:
        config = Path(folder) / "hocket.yaml"
        config.write_text(yaml.safe_dump({"node_types": {"python": {"concurrency": 256}}}))
        environment = {
            "HOCKET_HANDLERS": "handlers",
            "PYTHONPATH": HANDLERS,
            "HOCKET_PARTITIONS": str(arguments.partitions),
        }
        async with Platform(
            Path(folder) / "data",
            coordinators=arguments.coordinators,
            services=("coordinator", "worker", "admin"),
            env=environment,
            config=config,
        ) as platform:
            api = platform.api(TENANT)
            await asyncio.to_thread(api.post, "/v1/pipelines", _pipeline())
            client = await nats.connect(platform.nats_url)
            watch = Watch()
            await client.subscribe("hocket.step.>", cb=watch.heard)
            load = Load(client)
            loading = await load.start(arguments.runs)
            figures: dict[str, list[float]] = {"kill": [], "stop": []}
            for trial in range(arguments.trials):
                for how, took_ms in figures.items():
                    found = await _trial(platform, watch, how, trial)
                    took_ms.extend(found)
                    shown = ", ".join(f"{ms:.0f}" for ms in found)
                    print(f"{how} {trial + 1}: {shown} ms", file=sys.stderr, flush=True)
            load.stop()
            await asyncio.gather(*loading)
            await _check(platform, client, load.published)
            await client.close()
    for how, took_ms in figures.items():
        print(json.dumps({"how": how, "trials": arguments.trials, **_summary(took_ms)}), flush=True)


async def _trial(platform: Platform, watch: Watch, how: str, trial: int) -> list[float]:
    """End one coordinator; return, for each of its partitions, how long its runs stood still (ms)."""
    names = [name for name in platform.processes if name.startswith("coordinator")]
    await _balanced(platform, names)
    await asyncio.sleep(SETTLED_S)
    name = names[trial % len(names)]
    process = platform.process(name)
    owned = await _owned_by(platform, name)
    before = {number: watch.epochs[number] for number in owned}
    end: Callable[[], Awaitable[None]] = (
        process.stop if how == "stop" else lambda: process.kill(restart=False)
    )
    began_s = time.perf_counter()
    ending = asyncio.ensure_future(end())
    async with asyncio.timeout(BOUND_S):
        moved = [await watch.moved(number, before[number]) for number in owned]
    await ending
    await process.start()
    await process.wait_ready()
    return [1_000 * (at_s - began_s) for at_s in moved]


async def _balanced(platform: Platform, names: list[str]) -> None:
    """Wait until the coordinators report fair shares of the partitions."""
    async with asyncio.timeout(BOUND_S):
        while True:
            shares = [await _share(platform, name) for name in names]
            if min(shares) >= 0 and max(shares) - min(shares) <= 1 and sum(shares) > 0:
                return
            await asyncio.sleep(0.1)


async def _share(platform: Platform, name: str) -> int:
    url = health_url(platform.data_dir / "run", platform.process(name).pid)
    _, body = await get(url, "/metrics") if url else (0, b"")
    for line in body.decode().splitlines():
        if line.startswith("hocket_partitions_owned "):
            return int(float(line.split()[1]))
    return -1


async def _owned_by(platform: Platform, name: str) -> list[int]:
    connection = await asyncpg.connect(platform.database_url)
    rows = await connection.fetch("SELECT partition FROM hocket.partition WHERE owner = $1", name)
    await connection.close()
    return [row["partition"] for row in rows]


async def _check(platform: Platform, client: Client, published: int) -> None:
    """Raise RunsMissing unless every run succeeded and every end was published once."""
    connection = await asyncpg.connect(platform.database_url)
    rows = await connection.fetch("SELECT status, count(*) AS runs FROM hocket.run GROUP BY status")
    await connection.close()
    found = {row["status"]: row["runs"] for row in rows}
    if found != {"succeeded": published}:
        raise RunsMissing(f"{published} were published, Postgres has {found}")
    told: Counter[str] = Counter()
    subscription = await client.jetstream().subscribe(
        subjects.event(TENANT, PIPELINE, "run-finished"), ordered_consumer=True
    )
    async with asyncio.timeout(BOUND_S):
        while len(told) < published:
            message = await subscription.next_msg(timeout=BOUND_S)
            told[(message.headers or {})["ce-subject"]] += 1
    if max(told.values()) > 1:
        raise RunsMissing("an end was told twice")
    print(f"checked: {published} runs succeeded, each end told once", file=sys.stderr)


def _summary(took_ms: list[float]) -> dict[str, Any]:
    ordered = sorted(took_ms)
    return {
        "partitions": len(ordered),
        "p50_ms": round(statistics.median(ordered)),
        "p99_ms": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]),
        "max_ms": round(ordered[-1]),
    }


def _pipeline() -> dict[str, Any]:
    step = {"type": "python", "handler": "handlers:rest", "with": {"seconds": STEP_S}}
    nodes = {f"s{n}": step if n == 0 else {**step, "needs": [f"s{n - 1}"]} for n in range(STEPS)}
    return {"pipeline": PIPELINE, "slo_ms": 600_000, "nodes": nodes}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trials", type=int, default=50, help="of each kind")
    parser.add_argument("--coordinators", type=int, default=2)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--runs", type=int, default=32, help="in flight")
    try:
        asyncio.run(main(parser.parse_args()))
    except RunsMissing as error:
        sys.exit(f"takeover: {error}")
