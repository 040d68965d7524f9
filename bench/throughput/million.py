"""Check that the memory of every process stays flat over very many runs on one instance.

Uses its own platform in a temporary folder, with every service, and executes one-step runs with a fixed
number in flight. Every `--every` runs it prints the memory of each process, and the rate. The warm-up
is the first quarter (memory that is bounded by number fills up, Postgres fills its buffers), and at
least WARM_UP_S: NATS keeps message ids for a window of time, and expired ones until they are two thirds
of its list. Growth after that is reported per process, by a straight line and by the means of the first
and second half of the samples.

The exit code is 1 if a mean rose by more than FLAT_SHARE and FLAT_MIB, or if Postgres does not have as
many successful runs as were published. A million runs take 15 to 20 minutes on two otherwise idle
cores.

    .venv/bin/python -m bench.throughput.million --runs 1000000
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
from nats.aio.client import Client
from nats.aio.msg import Msg

from bench.support.memory import Curve
from hocket.cli.local.platform import Platform
from hocket.kit.nats.streams import EVENTS_DEDUP_WINDOW_S
from hocket.schemas import subjects

TENANT = "default"
PIPELINE = "one"
STEP = {
    "type": "python",
    "handler": "hocket.workers.builtin:echo",
    "with": {"value": "{{ input.n }}"},
}
SPEC = {"pipeline": PIPELINE, "slo_ms": 3_600_000, "nodes": {"a": STEP}}
BATCH = 100
PER = 100_000
WARM_UP = 0.25
WARM_UP_S = 3.0 * EVENTS_DEDUP_WINDOW_S
MIN_WARM = 10
"""Number of samples after the warm-up that are needed to judge growth."""
FLAT_SHARE = 0.1
FLAT_MIB = 10.0
SILENT_S = 120.0


class RunsMissing(Exception):
    """Something that was published did not end well."""


class NotFlat(Exception):
    """A process held more and more."""


class Load:
    """Publishes tasks, a fixed number in flight at a time, and counts ends. An end may be heard twice:
    if the stream's acknowledgement came late, the coordinator posted the end again."""

    def __init__(self, client: Client, in_flight: int) -> None:
        self._ended: set[str] = set()
        self._client = client
        self._in_flight = in_flight
        self._published = 0
        self._some = asyncio.Event()

    @property
    def ended(self) -> int:
        """Number of runs whose end was heard."""
        return len(self._ended)

    async def listen(self) -> None:
        await self._client.subscribe(f"hocket.event.{TENANT}.{PIPELINE}.>", cb=self._hear)

    async def run(self, runs: int) -> None:
        """Publish `runs` more tasks, and wait for all ends."""
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
    """Run, print the curve and check it."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    with tempfile.TemporaryDirectory(prefix="hkt-") as folder:
        async with Platform(Path(folder) / "data", env={"HOCKET_LOG_LEVEL": "warning"}) as platform:
            api = platform.api(TENANT)
            await asyncio.to_thread(api.post, "/v1/pipelines", SPEC)
            client = await nats.connect(platform.nats_url)
            load, curve = Load(client, arguments.in_flight), Curve(platform)
            await load.listen()
            done: list[int] = []
            took_s: list[float] = []
            start_s = time.monotonic()
            for first in range(0, arguments.runs, arguments.every):
                number, began_s = min(arguments.every, arguments.runs - first), time.monotonic()
                await load.run(number)
                rate = number / (time.monotonic() - began_s)
                curve.sample(f"{load.ended} runs, {rate:.0f} runs/s")
                done.append(load.ended)
                took_s.append(time.monotonic() - start_s)
            await client.close()
            await _check(platform, arguments.runs)
    warm = [n for n, runs in enumerate(done) if _is_warm(runs / done[-1], took_s[n])]
    if len(warm) < MIN_WARM:
        print(f"{len(warm)} samples after the warm-up: too few to tell of growth", file=sys.stderr)
        return
    figures = _figures(done, took_s, curve.samples, warm)
    print(json.dumps(figures), flush=True)
    if figures["not_flat"]:
        raise NotFlat(f"these held more and more: {', '.join(figures['not_flat'])}")


def _is_warm(share: float, took_s: float) -> bool:
    return share >= WARM_UP and took_s >= WARM_UP_S


def _figures(
    done: list[int], took_s: list[float], samples: list[dict[str, float]], warm: list[int]
) -> dict[str, Any]:
    grew, means = {}, {}
    for name in sorted(samples[-1]):
        held = [samples[n][name] for n in warm]
        grew[name] = round(
            statistics.linear_regression([done[n] for n in warm], held).slope * PER, 2
        )
        half = len(held) // 2
        means[name] = [round(statistics.fmean(part), 1) for part in (held[:half], held[half:])]
    return {
        "runs": done[-1],
        "seconds": round(took_s[-1]),
        "warm_after": done[warm[0]],
        "mib_first": {name: round(mib, 1) for name, mib in sorted(samples[0].items())},
        "mib_warm": {name: round(samples[warm[0]][name], 1) for name in means},
        "mib_last": {name: round(samples[-1][name], 1) for name in means},
        "mib_means_of_halves": means,
        "grew_mib_per_100000_runs": grew,
        "not_flat": [
            name
            for name, (before, after) in means.items()
            if after - before > max(FLAT_MIB, FLAT_SHARE * before)
        ],
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
    except (RunsMissing, NotFlat) as error:
        sys.exit(f"million: {error}")
