"""Very many runs through one instance: is the memory of every process flat after the warm-up?

A platform of its own in a temporary folder, with every service, and one-step runs through it, so many in
flight at a time. Every `--every` runs the memory of each process is printed, with the rate. What grew
is told at the end, per process, by a straight line through the samples after the first quarter (the
warm-up: memories that are bounded by number fill, Postgres fills its buffers).

At the end Postgres is asked: as many runs as were published must have succeeded; otherwise the exit
code is 1. The disk needs about 2 KB a run.

    .venv/bin/python bench/million.py --runs 1000000
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import asyncpg
import nats
import structlog
from memory import Curve
from nats.aio.client import Client
from nats.aio.msg import Msg

from hocket.cli.api import Api
from hocket.cli.platform import Platform
from hocket.schemas import subjects

TENANT = "default"
PIPELINE = "one"
STEP = {
    "type": "python",
    "handler": "hocket.schemas.ids:content_hash",
    "with": {"value": "{{ input.n }}"},
}
SPEC = {"pipeline": PIPELINE, "slo_ms": 3_600_000, "nodes": {"a": STEP}}
BATCH = 100
PER = 100_000
WARM_UP = 0.25
SILENT_S = 120.0


class RunsMissing(Exception):
    """Something that was published did not end well."""


class Load:
    """Publishes tasks, so many in flight at a time, and counts ends. A listener may hear one twice:
    where the stream's acknowledgement came late, the coordinator posted it again."""

    def __init__(self, client: Client, in_flight: int) -> None:
        self._ended: set[str] = set()
        self._client = client
        self._in_flight = in_flight
        self._published = 0
        self._some = asyncio.Event()

    @property
    def ended(self) -> int:
        """Runs whose end was heard."""
        return len(self._ended)

    async def listen(self) -> None:
        await self._client.subscribe(f"hocket.event.{TENANT}.{PIPELINE}.>", cb=self._hear)

    async def run(self, runs: int) -> None:
        """Publish so many more, and wait for all ends."""
        jetstream = self._client.jetstream(timeout=60, publish_async_max_pending=4 * BATCH)
        subject = subjects.task(TENANT, PIPELINE)
        until = self._published + runs
        while self._published < until:
            number = min(BATCH, until - self._published)
            await self._reached(self._published + number - self._in_flight)
            bodies = [b'{"n": %d}' % n for n in range(self._published, self._published + number)]
            stored = [await jetstream.publish_async(subject, body) for body in bodies]
            await asyncio.gather(*stored)
            self._published += number
        await self._reached(until)

    async def _reached(self, count: int) -> None:
        while self.ended < count:
            self._some.clear()
            async with asyncio.timeout(SILENT_S):
                await self._some.wait()

    async def _hear(self, message: Msg) -> None:
        if message.subject.endswith(".run-finished"):
            self._ended.add((message.headers or {})["ce-subject"])
            self._some.set()


async def main(arguments: argparse.Namespace) -> None:
    """Run, print the curve, check."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    with tempfile.TemporaryDirectory(prefix="hkt-") as folder:
        async with Platform(Path(folder) / "data", env={"HOCKET_LOG_LEVEL": "warning"}) as platform:
            api = Api(platform.api_url, TENANT)
            await asyncio.to_thread(api.post, "/v1/pipelines", SPEC)
            client = await nats.connect(platform.nats_url)
            load, curve = Load(client, arguments.in_flight), Curve(platform)
            await load.listen()
            done: list[int] = []
            for first in range(0, arguments.runs, arguments.every):
                number, began_s = min(arguments.every, arguments.runs - first), time.monotonic()
                await load.run(number)
                rate = number / (time.monotonic() - began_s)
                curve.sample(f"{load.ended} runs, {rate:.0f} runs/s")
                done.append(load.ended)
            await client.close()
            await _check(platform, arguments.runs)
    print(json.dumps(_figures(done, curve.samples)), flush=True)


def _figures(done: list[int], samples: list[dict[str, float]]) -> dict[str, Any]:
    warm = [n for n, runs in enumerate(done) if runs >= WARM_UP * done[-1]]
    grew = {}
    for name in sorted(samples[-1]):
        line = statistics.linear_regression(
            [done[n] for n in warm], [samples[n][name] for n in warm]
        )
        grew[name] = round(line.slope * PER, 2)
    return {
        "runs": done[-1],
        "warm_after": done[warm[0]],
        "mib_warm": {name: round(mib, 1) for name, mib in sorted(samples[warm[0]].items())},
        "mib_last": {name: round(mib, 1) for name, mib in sorted(samples[-1].items())},
        "grew_mib_per_100000_runs": grew,
    }


async def _check(platform: Platform, runs: int) -> None:
    connection = await asyncpg.connect(platform.database_url)
    rows = await connection.fetch("SELECT status, count(*) FROM hocket.run GROUP BY status")
    await connection.close()
    found = {row["status"]: row["count"] for row in rows}
    if found != {"succeeded": runs}:
        raise RunsMissing(f"{runs} were published, Postgres has {found}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--in-flight", type=int, default=512)
    parser.add_argument("--every", type=int, default=10_000, help="runs between two samples")
    try:
        asyncio.run(main(parser.parse_args()))
    except RunsMissing as error:
        sys.exit(f"million: {error}")
