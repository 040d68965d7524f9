"""Measure what a fan-out costs beyond its slowest branch, with many sessions at once.

The pipeline has 4 parallel `python` steps, each of which sleeps as long as its task says: 50 ms to 4
s, log-uniformly distributed. `--sessions` sessions publish concurrently, each one task after another
with its own inbox, on a new platform (NATS, Postgres with fsync on, coordinator, one worker, gateway,
ledger, REST). The measure of each run is the time from just before its publish to its end as the
publisher hears it (after the commit), minus the requested sleep of its slowest branch. This includes
publishing (an fsync), intake, dispatch, late timers, results, joining, and the commit of the end.

The breakdown of that time is shown beside it: before the acceptance, by kind of the critical path
(docs/reference/critical-path.md; a branch's execution minus its sleep), and after the end was
decided. Warm-up runs come first. `--rounds` repeats the measurement on the same platform; all rounds
count.

    .venv/bin/python -m bench.throughput.fan_out
"""

import argparse
import asyncio
import json
import math
import os
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import nats
import structlog
import uvloop
import yaml
from nats.aio.client import Client
from nats.aio.msg import Msg

from bench.support.machine import cpu_s, machine_text
from bench.support.places import HANDLERS
from hocket.cli.local.platform import Platform
from hocket.kit.nats.cloudevents import REPLY_TO
from hocket.schemas import subjects

BRANCHES = 4
LEAST_S, MOST_S = 0.05, 4.0
SLOTS = 512
TENANT = "default"
WARMUP_S = 0.1
WARMUP_RUNS = 4
"""Warm-up runs of each session, with short branches."""
MEAN_GOAL_MS, P99_GOAL_MS = 10.0, 25.0
CONNECT_TIMEOUT_S = 10.0
RUN_TIMEOUT_S = 60.0
PIPELINE = {
    "pipeline": "fan",
    "nodes": {
        f"b{number}": {
            "type": "python",
            "handler": "handlers:rest",
            "with": {"seconds": f"{{{{ input.seconds[{number}] }}}}"},
        }
        for number in range(BRANCHES)
    },
}


class RunWrong(Exception):
    """A run did not end as it should."""


@dataclass(frozen=True, slots=True)
class Ran:
    """A run as seen by its session (epoch seconds)."""

    run_id: str
    slowest_s: float
    published_s: float
    accepted_s: float
    finished_s: float
    heard_s: float

    @property
    def beyond_ms(self) -> float:
        return (self.heard_s - self.published_s - self.slowest_s) * 1_000


class Sessions:
    """Publish tasks and hear their ends."""

    def __init__(self, client: Client, seed: int) -> None:
        self._jetstream = client.jetstream(timeout=CONNECT_TIMEOUT_S)
        self._client = client
        self._inbox = client.new_inbox()
        self._waiting: dict[str, asyncio.Future[tuple[bytes, float]]] = {}
        self._published = 0
        self._dice = random.Random(seed)

    async def start(self) -> None:
        """Listen to all inboxes."""
        await self._client.subscribe(f"{self._inbox}.*", cb=self._ended)

    async def run(
        self, sessions: int, runs: int, most_s: float = MOST_S, *, spread_s: float = 0.0
    ) -> list[Ran]:
        """Run `sessions` concurrent sessions that each publish `runs` tasks one after another; the
        sessions start within `spread_s`."""

        async def session() -> list[Ran]:
            await asyncio.sleep(self._dice.uniform(0, spread_s))
            return [await self._one(most_s) for _ in range(runs)]

        found = await asyncio.gather(*(session() for _ in range(sessions)))
        return [ran for some in found for ran in some]

    async def _one(self, most_s: float) -> Ran:
        seconds = [self._seconds(most_s) for _ in range(BRANCHES)]
        self._published += 1
        token = str(self._published)
        heard = self._waiting[token] = asyncio.get_running_loop().create_future()
        published_s = time.time()
        await self._jetstream.publish(
            subjects.task(TENANT, "fan"),
            json.dumps({"seconds": seconds}).encode(),
            headers={REPLY_TO: f"{self._inbox}.{token}"},
        )
        async with asyncio.timeout(RUN_TIMEOUT_S):
            data, heard_s = await heard
        end = json.loads(data)
        if end["status"] != "succeeded":
            raise RunWrong(f"a run ended {end['status']}: {end['error']}")
        return Ran(
            end["run_id"],
            max(seconds),
            published_s,
            end["accepted_at_ms"] / 1_000,
            end["finished_at_ms"] / 1_000,
            heard_s,
        )

    def _seconds(self, most_s: float) -> float:
        return round(math.exp(self._dice.uniform(math.log(LEAST_S), math.log(most_s))), 4)

    async def _ended(self, message: Msg) -> None:
        heard = self._waiting.pop(message.subject.rpartition(".")[2])
        heard.set_result((message.data, time.time()))


async def main(arguments: argparse.Namespace) -> None:
    """Start a platform, measure and print."""
    print(machine_text(), file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="hkt-") as folder:
        config = Path(folder) / "hocket.yaml"
        sections = {"node_types": {"python": {"concurrency": SLOTS}}}
        config.write_text(yaml.safe_dump(sections), "utf-8")
        async with Platform(
            Path(folder) / "d",
            env={"HOCKET_HANDLERS": "handlers", "PYTHONPATH": HANDLERS},
            worker_types=("python",),
            config=config,
            log_level="warning",
        ) as platform:
            api = platform.api(TENANT)
            await asyncio.to_thread(api.post, "/v1/pipelines", PIPELINE)
            client = await nats.connect(platform.nats_url, connect_timeout=CONNECT_TIMEOUT_S)
            try:
                sessions = Sessions(client, arguments.seed)
                await sessions.start()
                await sessions.run(arguments.sessions, WARMUP_RUNS, WARMUP_S)
                ran: list[Ran] = []
                before, begun_s = cpu_s(os.getpid()), time.monotonic()
                for _ in range(arguments.rounds):
                    some = await sessions.run(
                        arguments.sessions, arguments.runs, spread_s=arguments.spread_s
                    )
                    print(json.dumps(_spread([r.beyond_ms for r in some])), file=sys.stderr)
                    ran += some
                used_s = sum(cpu_s(os.getpid()).values()) - sum(before.values())
                took_s = time.monotonic() - begun_s
            finally:
                await client.close()
            parts = await _parts(platform.database_url, ran)
    beyond = _spread([r.beyond_ms for r in ran])
    result = {
        "sessions": arguments.sessions,
        "spread_s": arguments.spread_s,
        "runs": len(ran),
        "beyond_ms": beyond,
        "mean_ms_by_part": parts,
        "cores_used": round(used_s / took_s, 3),
        "holds": beyond["mean"] <= MEAN_GOAL_MS and beyond["p99"] <= P99_GOAL_MS,
    }
    print(json.dumps(result), flush=True)


async def _parts(database_url: str, ran: Sequence[Ran]) -> Mapping[str, float]:
    """Return the mean of each part of the time beyond the slowest branch (ms)."""
    connection = await asyncpg.connect(database_url, timeout=CONNECT_TIMEOUT_S)
    try:
        rows = await connection.fetch(_PIECES, [r.run_id for r in ran])
    finally:
        await connection.close()
    parts: defaultdict[str, list[float]] = defaultdict(list)
    by_run: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for row in rows:
        by_run[row["run_id"]][row["kind"]] = float(row["ms"])
    for r in ran:
        pieces = by_run[r.run_id]
        parts["until accepted"].append((r.accepted_s - r.published_s) * 1_000)
        parts["after the end"].append((r.heard_s - r.finished_s) * 1_000)
        for kind in ("coordinator", "queue", "execution"):
            slept_ms = r.slowest_s * 1_000 if kind == "execution" else 0.0
            parts[kind].append(pieces.get(kind, 0.0) - slept_ms)
    return {name: round(statistics.fmean(values), 2) for name, values in parts.items()}


def _spread(values: Sequence[float]) -> dict[str, Any]:
    ordered = sorted(values)
    places = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
    return {
        "mean": round(statistics.fmean(ordered), 2),
        **{name: round(ordered[int(len(ordered) * at)], 2) for name, at in places.items()},
        "max": round(ordered[-1], 2),
    }


_PIECES = """
SELECT run_id, kind, sum(ms) AS ms FROM report.run_critical_path
WHERE run_id = ANY($1::text[]) GROUP BY run_id, kind
"""

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sessions", type=int, default=50)
    parser.add_argument("--runs", type=int, default=10, help="of each session and round")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument(
        "--spread-s", type=float, default=2.0, help="within which sessions begin; 0: in one moment"
    )
    parser.add_argument("--seed", type=int, default=1)
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    try:
        uvloop.run(main(parser.parse_args()))
    except RunWrong as error:
        print(f"no figure: {error}", file=sys.stderr)
        sys.exit(1)
