"""Runs whose expressions and schemas are bombs, beside healthy load: how much later healthy ones end.

A platform of its own (NATS, Postgres, coordinator, worker, ledger, REST). The bombs are those of
tests/support/templates/hostile.py that can be applied as a pipeline; how many are refused then is told.
Healthy runs (two no-op steps with a template) come with Poisson gaps at `--rate` a second, in turns of
`--turn` seconds without and with bombs at `--bombs` a second, one after the other from the list,
`--turns` of each. Times are from before a task's publish to its end as the publisher hears it.

The exit code is 1 unless every healthy run succeeds, every bomb ends, and with bombs the p99 of the
healthy runs is at most 20 ms above that without.

    .venv/bin/python -m bench.resilience.hostile_expressions
"""

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from itertools import cycle
from pathlib import Path
from typing import Any

import nats
import structlog
import uvloop
from nats.aio.client import Client
from nats.aio.msg import Msg

from bench.support.machine import machine_text
from bench.support.places import HANDLERS
from hocket.cli.local.platform import Platform
from hocket.kit.nats.cloudevents import REPLY_TO
from hocket.schemas import subjects
from hocket.schemas.errors import HocketError
from tests.support.templates import hostile

TENANT = "default"
SERVICES = ("coordinator", "ledger", "admin", "worker")
MOST_GROWTH_MS = 20.0
END_TIMEOUT_S = 60.0
WARMUP_RUNS = 100
STEP = {"type": "python", "handler": "handlers:pass_along"}
HEALTHY = {
    "pipeline": "healthy",
    "nodes": {
        "one": STEP | {"with": {"text": "Dear {{ input.name | title }},"}},
        "two": STEP | {"with": {"text": "{{ nodes.one.output.text }}"}},
    },
    "output": "{{ nodes.two.output.text }}",
}
GIVEN = (
    "{% set xs = range(20000) | list %}{% set s = 'a' * 100000 %}{% set long = 'ab' * 200000 %}"
    "{% set texts = ['a' * 100] * 2000 %}{% set lines = 'a\\n' * 50000 %}{% set x = 3 %}"
    "{% set wide = 'ü' * 50000 %}{% set map = {'a': 1} %}{% set deep = [[[1]]] %}"
    "{% set rows = [{'a': 1, 'b': 'x', 'c': [1]}] * 5000 %}"
)
"""What the bombs read, made by their own templates."""


def bombs() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return pipelines, each with the input of its runs."""
    texts = [*hostile.TIME, *hostile.MEMORY, *hostile.RECURSION]
    braced = [text if "{{" in text or "{%" in text else "{{ " + text + " }}" for text in texts]
    found = [({"nodes": {"a": STEP | {"with": {"x": GIVEN + text}}}}, {"v": 1}) for text in braced]
    for schema, value in hostile.SCHEMAS:
        if isinstance(schema, dict):
            wrapped = {"type": "object", "properties": {"v": schema}}
            found.append(({"input": wrapped, "nodes": {"a": STEP}}, {"v": value}))
    grown = {"until": "false", "max_rounds": 300, "on_exhausted": "accept"}
    found += (
        ({"nodes": {"a": STEP | {"loop": grown, "with": {"p": given}}}}, {})
        for given in ("{{ previous.p ~ previous.p if round > 1 else 'ab' }}", ["{{ previous }}"])
    )
    return [({"pipeline": f"bomb-{i}", **spec}, given) for i, (spec, given) in enumerate(found)]


class Load:
    """Publishes tasks and hears how they end."""

    def __init__(self, client: Client, seed: int) -> None:
        self._client = client
        self._jetstream = client.jetstream(publish_async_max_pending=10_000)
        self._inbox = client.new_inbox()
        self._waiting: dict[str, asyncio.Future[Any]] = {}
        self._published = 0
        self._dice = random.Random(seed)

    async def start(self) -> None:
        await self._client.subscribe(f"{self._inbox}.*", cb=self._heard)

    async def one(self, pipeline: str, given: dict[str, Any]) -> tuple[str, float]:
        """Run one task; return its status and how many milliseconds it took."""
        self._published += 1
        token = str(self._published)
        heard = self._waiting[token] = asyncio.get_running_loop().create_future()
        begun_s = time.monotonic()
        await self._jetstream.publish_async(
            subjects.task(TENANT, pipeline),
            json.dumps(given).encode(),
            headers={REPLY_TO: f"{self._inbox}.{token}"},
        )
        async with asyncio.timeout(END_TIMEOUT_S):
            end, at_s = await heard
        return end.get("status", "rejected"), (at_s - begun_s) * 1_000

    async def many(self, seconds: float, rate_per_s: float, tasks: Any) -> list[Any]:
        """Run tasks with Poisson gaps, and wait for their ends."""
        running = []
        until_s = (at_s := time.monotonic()) + seconds
        while (at_s := at_s + self._dice.expovariate(rate_per_s)) < until_s:
            await asyncio.sleep(max(0.0, at_s - time.monotonic()))
            running.append(asyncio.create_task(self.one(*next(tasks))))
        return await asyncio.gather(*running)

    async def _heard(self, message: Msg) -> None:
        heard = self._waiting.pop(message.subject.rpartition(".")[2], None)
        if heard is not None and not heard.done():
            heard.set_result((json.loads(message.data), time.monotonic()))


async def main(arguments: argparse.Namespace) -> None:
    print(machine_text(), file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="hkt-") as folder:
        env = {"PYTHONPATH": HANDLERS}
        async with Platform(
            Path(folder),
            env=env,
            services=SERVICES,
            handlers=("handlers",),
            worker_types=("python",),
            log_level="error",
        ) as platform:
            api = platform.api(TENANT)
            await asyncio.to_thread(api.post, "/v1/pipelines", HEALTHY)
            kept, slowest_ms = [], 0.0
            every = bombs()
            for document, given in every:
                begun_s = time.monotonic()
                try:
                    await asyncio.to_thread(api.post, "/v1/pipelines", document)
                    kept.append((document["pipeline"], given))
                except (HocketError, RecursionError):  # too deep to be sent at all
                    pass
                slowest_ms = max(slowest_ms, (time.monotonic() - begun_s) * 1_000)
            client = await nats.connect(platform.nats_url)
            try:
                load = Load(client, arguments.seed)
                await load.start()
                result = await play(load, kept, arguments)
            finally:
                await client.close()
    result |= {
        "bombs": len(every),
        "refused_at_apply": len(every) - len(kept),
        "slowest_apply_ms": round(slowest_ms),
    }
    print(json.dumps(result))
    good = result["healthy_failed"] == 0 and result["growth_ms"] <= MOST_GROWTH_MS
    sys.exit(0 if good else 1)


async def play(
    load: Load, kept: list[tuple[str, dict[str, Any]]], arguments: argparse.Namespace
) -> dict[str, Any]:
    """Take turns without and with bombs; return what healthy runs took in each."""
    healthy = cycle([("healthy", {"name": "ada"})])
    hostile_tasks = cycle(kept)
    for _ in range(WARMUP_RUNS):
        await load.one(*next(healthy))
    took: dict[bool, list[float]] = {False: [], True: []}
    ends: Counter[str] = Counter()
    failed = 0
    for turn in range(2 * arguments.turns):
        with_bombs = turn % 2 == 1
        playing = [load.many(arguments.turn, arguments.rate, healthy)]
        if with_bombs:
            playing.append(load.many(arguments.turn, arguments.bombs, hostile_tasks))
        found, *others = await asyncio.gather(*playing)
        took[with_bombs] += [ms for _, ms in found]
        failed += sum(status != "succeeded" for status, _ in found)
        ends.update(status for other in others for status, _ in other)
    without, beside = (percentiles(took[one]) for one in (False, True))
    return {
        "healthy_runs": sum(map(len, took.values())),
        "healthy_failed": failed,
        "bomb_ends": dict(ends),
        "without_ms": without,
        "beside_ms": beside,
        "growth_ms": round(beside["p99"] - without["p99"], 1),
    }


def percentiles(values: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(values, n=100)
    return {"p50": round(cuts[49], 1), "p95": round(cuts[94], 1), "p99": round(cuts[98], 1)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rate", type=float, default=50.0, help="healthy runs a second")
    parser.add_argument("--bombs", type=float, default=1.0, help="bombs a second")
    parser.add_argument("--turn", type=float, default=10.0, help="seconds of a turn")
    parser.add_argument("--turns", type=int, default=6, help="turns of each kind")
    parser.add_argument("--seed", type=int, default=1)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    uvloop.run(main(parser.parse_args()))
