"""Measure what many waiting runs cost, and check that they wake up: 100,000 runs parked on an approval.

Uses its own platform in a temporary folder (coordinator, worker, REST), and a pipeline whose runs wait
for an approval and then execute one step. Runs are published in batches; the memory of every process is
printed as a curve while they arrive and are parked (from then on their state is in Postgres only,
docs/how-to/runs.md). WARM runs of another pipeline are executed first, so that the memory which
processes hold in any case is not counted.

Then the coordinator is killed and its memory is measured again after the restart, and some of the runs
are approved: each of these must succeed, and the others must stay parked. Otherwise the exit code is 1.

    .venv/bin/python -m bench.resilience.parked --runs 100000 --wake 1000
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import asyncpg
import nats
import structlog
from nats.aio.client import Client

from bench.support.memory import Curve, memory_mib
from hocket.cli.local.platform import Platform
from hocket.schemas import subjects
from hocket.schemas.messages import SignalReceived

TENANT = "default"
STEP = {"type": "python", "handler": "hocket.workers.builtin:echo", "with": {"value": 1}}
WARM_SPEC = {"pipeline": "warm", "slo_ms": 3_600_000, "nodes": {"a": STEP}}
PARKED_SPEC = {
    "pipeline": "asking",
    "slo_ms": 7 * 24 * 3_600_000,
    "nodes": {
        "ask": {"type": "approval", "wait_ms": 6 * 24 * 3_600_000},
        "after": STEP | {"needs": ["ask"]},
    },
}
WARM = 5_000
BATCH = 500
AHEAD = 5_000
"""Maximum number of published runs that are not yet in Postgres."""
BOUND_S = 1_200.0
SAMPLE_S = 5.0


class RunsMissing(Exception):
    """A run is not as it should be."""


class Rig:
    """A client of the platform, its database, and the curve of its memory."""

    def __init__(
        self, platform: Platform, client: Client, database: "asyncpg.Connection[asyncpg.Record]"
    ) -> None:
        self.platform = platform
        self.curve = Curve(platform)
        self._client = client
        self._database = database
        self._sampled_s = 0.0

    async def publish(self, pipeline: str, count: int) -> None:
        """Publish `count` tasks, staying at most AHEAD in front of what is accepted."""
        jetstream = self._client.jetstream(timeout=60, publish_async_max_pending=2 * BATCH)
        for first in range(0, count, BATCH):
            number = min(BATCH, count - first)
            subject = subjects.task(TENANT, pipeline)
            stored = [await jetstream.publish_async(subject, b"{}") for _ in range(number)]
            await asyncio.gather(*stored)
            await self.until(pipeline, "true", first + number - AHEAD)

    async def until(self, pipeline: str, what: str, count: int) -> None:
        """Wait until `count` runs of a pipeline satisfy `what` (SQL); print the memory curve meanwhile.
        x"""
        query = f"SELECT count(*) FROM hocket.run WHERE pipeline = $1 AND {what}"
        while (found := await self._database.fetchval(query, pipeline)) < count:
            self.sample(f"{pipeline}: {found} {what}")
            await asyncio.sleep(0.25)

    def sample(self, note: str) -> None:
        if time.monotonic() - self._sampled_s >= SAMPLE_S:
            self._sampled_s = time.monotonic()
            self.curve.sample(note)

    async def approve(self, count: int) -> list[str]:
        """Approve runs as REST does: with a message to the log of their partition."""
        query = "SELECT run_id, partition FROM hocket.run WHERE pipeline = 'asking' LIMIT $1"
        jetstream = self._client.jetstream(timeout=60)
        rows = await self._database.fetch(query, count)
        for row in rows:
            signal = SignalReceived(
                run_id=row["run_id"],
                signal_id=row["run_id"],
                name="ask",
                payload={"approved": True},
                by="bench",
            )
            subject = subjects.log(row["partition"], SignalReceived.kind)
            await jetstream.publish(subject, signal.model_dump_json().encode())
        return [row["run_id"] for row in rows]

    async def counts(self) -> dict[str, int]:
        rows = await self._database.fetch(
            "SELECT status, parked_until IS NOT NULL AS parked, count(*) FROM hocket.run "
            "WHERE pipeline = 'asking' GROUP BY 1, 2"
        )
        return {f"{row['status']}{' parked' * row['parked']}": row["count"] for row in rows}


async def main(arguments: argparse.Namespace) -> None:
    """Park runs, kill the coordinator, wake some runs, check and print."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    with tempfile.TemporaryDirectory(prefix="hkt-") as folder:
        services = ("coordinator", "worker", "admin")
        async with Platform(Path(folder) / "data", services=services) as platform:
            api = platform.api(TENANT)
            for spec in (WARM_SPEC, PARKED_SPEC):
                await asyncio.to_thread(api.post, "/v1/pipelines", spec)
            client = await nats.connect(platform.nats_url)
            database = await asyncpg.connect(platform.database_url)
            async with asyncio.timeout(BOUND_S):
                figures = await _measured(Rig(platform, client, database), arguments)
            await database.close()
            await client.close()
    print(json.dumps(figures), flush=True)


async def _measured(rig: Rig, arguments: argparse.Namespace) -> dict[str, Any]:
    await rig.publish("warm", WARM)
    await rig.until("warm", "finished_at IS NOT NULL", WARM)
    before = rig.curve.sample("warm")
    began_s = time.monotonic()
    await rig.publish("asking", arguments.runs)
    await rig.until("asking", "parked_until IS NOT NULL", arguments.runs)
    parked_s = time.monotonic() - began_s
    after = rig.curve.sample("all parked")
    await rig.platform.kill("coordinator")
    await rig.platform.wait_ready()
    restarted = memory_mib(rig.platform)
    began_s = time.monotonic()
    await rig.approve(arguments.wake)
    await rig.until("asking", "status = 'succeeded'", arguments.wake)
    woken_s = time.monotonic() - began_s
    last = rig.curve.sample("some woken")
    counts = await rig.counts()
    if counts != {"succeeded": arguments.wake, "running parked": arguments.runs - arguments.wake}:
        raise RunsMissing(f"runs: {counts}")
    grew = {name: round(after[name] - mib, 1) for name, mib in before.items()}
    return {
        "runs": arguments.runs,
        "parked_after_s": round(parked_s, 1),
        "grew_mib": grew,
        "grew_total_mib": round(sum(grew.values()), 1),
        "coordinator_restarted_mib": round(restarted["coordinator"], 1),
        "woken": arguments.wake,
        "woken_after_s": round(woken_s, 1),
        "mib_last": {name: round(mib, 1) for name, mib in last.items()},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--wake", type=int, default=1_000)
    try:
        asyncio.run(main(parser.parse_args()))
    except RunsMissing as error:
        sys.exit(f"parked: {error}")
