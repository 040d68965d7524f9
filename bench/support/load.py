"""Workloads of no-op steps, a load generator that publishes tasks and hears their ends, and the final
check."""

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import asyncpg
from nats.aio.client import Client
from nats.aio.msg import Msg

from bench.support.machine import cpu_s
from hocket.kit.nats.cloudevents import REPLY_TO
from hocket.schemas import subjects

TENANT = "default"
TEXT = "{{ %s.text }}"
BODY = {"text": "x" * 189}
BODY_BYTES = 200
RUN_TIMEOUT_S = 60.0
CONNECT_TIMEOUT_S = 10.0
QUERY_TIMEOUT_S = 60.0
MAX_INFLIGHT = 10_000


class RunsMissing(Exception):
    """Something that was published is not there, or not as it should be."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A graph of no-op steps: the nodes that each node needs, and its longest path."""

    needs: Mapping[str, tuple[str, ...]]
    hops: int

    @property
    def steps(self) -> int:
        """Number of steps of one run."""
        return len(self.needs)

    def pipeline(self, name: str) -> dict[str, Any]:
        """Return the pipeline's spec. Every step's input is the task's body, taken from one of its
        parents."""
        return {
            "pipeline": name,
            "input": {
                "type": "object",
                "required": ["text"],
                "properties": {"text": {"type": "string"}},
            },
            "nodes": {
                node: {
                    "type": "python",
                    "handler": "handlers:pass_along",
                    "needs": list(parents),
                    "with": {"text": TEXT % (f"nodes.{parents[0]}.output" if parents else "input")},
                }
                for node, parents in self.needs.items()
            },
        }


def _chain(length: int) -> dict[str, tuple[str, ...]]:
    return {f"s{i}": (f"s{i - 1}",) if i else () for i in range(length)}


def _fan(width: int) -> dict[str, tuple[str, ...]]:
    branches = tuple(f"b{i}" for i in range(width))
    return {"split": (), **dict.fromkeys(branches, ("split",)), "join": branches}


_LOOK_UPS = ("retrieve", "sql", "classify")
WORKLOADS: Mapping[str, Workload] = {
    "chain10": Workload(_chain(10), hops=10),
    "agent6": Workload(
        {
            "plan": (),
            **dict.fromkeys(_LOOK_UPS, ("plan",)),
            "llm": _LOOK_UPS,
            "verify": ("llm",),
        },
        hops=4,
    ),
    "fan8": Workload(_fan(8), hops=3),
}


@dataclass(frozen=True, slots=True)
class Round:
    """One measurement."""

    took_s: float
    latencies_ms: list[float]
    cpu_s_by_process: Mapping[str, float]

    @property
    def cpu_s(self) -> float:
        return sum(self.cpu_s_by_process.values())

    @property
    def p50_ms(self) -> float:
        return statistics.median(self.latencies_ms)

    @property
    def p99_ms(self) -> float:
        return sorted(self.latencies_ms)[int(len(self.latencies_ms) * 0.99)]


class Load:
    """Publishes tasks and hears how their runs end."""

    def __init__(self, client: Client, pipeline: str) -> None:
        self._client = client
        self._jetstream = client.jetstream(
            timeout=CONNECT_TIMEOUT_S, publish_async_max_pending=2 * MAX_INFLIGHT
        )
        self._subject = subjects.task(TENANT, pipeline)
        self._body = json.dumps(BODY, separators=(",", ":")).encode()
        assert len(self._body) == BODY_BYTES, len(self._body)
        self._inbox = client.new_inbox()
        self._waiting: dict[str, asyncio.Future[bytes]] = {}
        self._heard: set[str] = set()
        self.published = 0

    async def start(self) -> None:
        """Listen to all inboxes."""
        await self._client.subscribe(f"{self._inbox}.*", cb=self._ended)

    async def run(self, runs: int, inflight: int, pids_of: int) -> Round:
        """Publish `runs` tasks, `inflight` at a time, and wait for all to end. CPU time is that of the
        processes below `pids_of`."""
        latencies_ms: list[float] = []
        left = iter(range(runs))

        async def one_after_the_other() -> None:
            for _ in left:
                latency_ms = await self.one()
                latencies_ms.append(latency_ms)

        cpu_before, began_s = cpu_s(pids_of), time.perf_counter()
        await asyncio.gather(*(one_after_the_other() for _ in range(inflight)))
        took_s = time.perf_counter() - began_s
        used = {name: after - cpu_before[name] for name, after in cpu_s(pids_of).items()}
        return Round(took_s, latencies_ms, used)

    async def one(self) -> float:
        """Publish a task and wait for the end of its run; return the time from publish to end in
        milliseconds. Raises RunsMissing."""
        self.published += 1
        token = str(self.published)
        ended: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[token] = ended
        headers = {REPLY_TO: f"{self._inbox}.{token}"}
        began_s = time.perf_counter()
        stored = await self._jetstream.publish_async(self._subject, self._body, headers=headers)
        async with asyncio.timeout(RUN_TIMEOUT_S):
            data = await ended
            latency_ms = 1000 * (time.perf_counter() - began_s)
            await stored
        self._check(data)
        return latency_ms

    def _check(self, data: bytes) -> None:
        end = json.loads(data)
        if end["status"] != "succeeded" or end["output"] != BODY:
            raise RunsMissing(f"a run ended {end['status']}: {end['error']}")
        if end["run_id"] in self._heard:
            raise RunsMissing(f"run {end['run_id']} answered two tasks")
        self._heard.add(end["run_id"])

    async def _ended(self, message: Msg) -> None:
        ended = self._waiting.pop(message.subject.rpartition(".")[2])
        ended.set_result(message.data)


async def check(database_url: str, pipeline: str, runs: int, steps: int) -> None:
    """Raise RunsMissing unless Postgres holds every run with every step, all succeeded."""
    connection = await asyncpg.connect(
        database_url, timeout=CONNECT_TIMEOUT_S, command_timeout=QUERY_TIMEOUT_S
    )
    try:
        rows = await connection.fetch(_RUNS, TENANT, pipeline)
        found = {row["status"]: row["runs"] for row in rows}
        if found != {"succeeded": runs}:
            raise RunsMissing(f"Postgres has {found} of {runs} runs")
        rows = await connection.fetch(_STEPS, TENANT, pipeline)
        found = {row["state"]: row["steps"] for row in rows}
        if found != {"succeeded": runs * steps}:
            raise RunsMissing(f"Postgres has {found} of {runs * steps} steps")
        late = await connection.fetchval("SELECT count(*) FROM hocket.attempt")
        print(f"checked: {runs} runs, {runs * steps} steps, {late} late attempts", file=sys.stderr)
    finally:
        await connection.close()


def slots(concurrency: int, *types: str) -> dict[str, Any]:
    """Return the configuration of a worker that runs `concurrency` steps of each type at once."""
    return {"node_types": {name: {"concurrency": concurrency} for name in types}}


_RUNS = """
SELECT status, count(*) AS runs FROM hocket.run WHERE tenant = $1 AND pipeline = $2 GROUP BY 1
"""
_STEPS = """
SELECT step.state, count(*) AS steps FROM hocket.step JOIN hocket.run USING (run_id)
WHERE run.tenant = $1 AND run.pipeline = $2 GROUP BY 1
"""
