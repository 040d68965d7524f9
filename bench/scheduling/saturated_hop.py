"""Measure how the order of steps affects deadlines when one hop is nearly saturated: least slack
against FIFO.

The pipeline has 7 steps in a row; all runs have one class and one tenant. The fourth step, a model
call, has few slots and is busy most of the time; the others have slots to spare. Tasks bring
their own deadlines: 30 % have 2 s, 40 % have 8 s, 30 % have 30 s, regardless of the time the run needs
(0.7 s on average). Arrivals and durations are drawn from `--seed` and are the same for every order.
`--arrivals bursty` (the default) alternates 15 to 25 s at 0.7 times the mean rate with 8 to 12 s at 1.6
times; `poisson` has a constant rate; `azure` uses the gaps of the Azure LLM inference trace
(`HOCKET_DATA`), and the duration of the hot step follows its generated tokens.

The same load is played three times:
- `fifo`: steps run in order of arrival (`HOCKET_DISPATCH_ORDER=arrival`); runs end at their deadlines;
- `fifo, patient`: the same, but runs continue beyond their deadline, which shows how late they would
  be;
- `slack`: the product as it is.

`met` is the share of runs that succeeded before their deadline. `p99` of a kind is over all its runs; a
run that ended at its deadline without a result counts as infinitely late. `p99/slo` is over all runs,
each relative to its own deadline. The exit code is 1 unless slack order meets more deadlines than FIFO
and holds every kind's p99 within its deadline, while patient FIFO's p99 of the tightest kind is twice
the deadline or more.

In simulation (the default) the product's own decisions and gate run over simulated workers and time
(`hop_simulation.py`). With `--real` each play has its own platform: NATS, Postgres, coordinator,
worker, gateway; the hot step calls a model that sleeps, and all figures are taken from the table of
runs. There, patient runs get 20 times their deadline, which arrival order does not look at.

    .venv/bin/python -m bench.scheduling.saturated_hop
    .venv/bin/python -m bench.scheduling.saturated_hop --real --seconds 60
"""

import argparse
import asyncio
import csv
import gzip
import json
import math
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import asyncpg
import nats
import structlog
import uvloop
import yaml

from bench.scheduling.hop_simulation import Ended, Simulation, Task
from bench.support.machine import machine_text
from bench.support.places import DATA, HANDLERS
from hocket.cli.local.platform import Platform
from hocket.kit.nats.cloudevents import DEADLINE_MS, IDEMPOTENCY_KEY
from hocket.schemas import subjects
from hocket.schemas.pipeline.plan import compile_pipeline

TRACE = DATA / "AzureLLMInferenceTrace_conv.csv.gz"
KINDS = (("tight", 0.3, 2_000.0), ("medium", 0.4, 8_000.0), ("loose", 0.3, 30_000.0))
HOPS_MS = {"s1": 20, "s2": 60, "s3": 80, "s4": 400, "s5": 100, "s6": 60, "s7": 30}
"""Mean duration of each step."""
HOT = "s4"
SPREAD = 0.5
"""Standard deviation of a step's duration, as a fraction of its mean (lognormal)."""
MAX_TIMES_MEAN = 4.0
BURST_RATE = 1.6
BURST_S = (8.0, 12.0)
QUIET_S = (15.0, 25.0)
QUIET_RATE = 0.7
PATIENCE = 20
WARMUP_S = 5.0
"""Runs that arrive in these first seconds serve to measure the steps and are not counted."""
TENANT = "default"
PIPELINE = {
    "pipeline": "hops",
    "slo_ms": 60_000,
    "on_overload": "admit",
    "nodes": {
        name: {
            "needs": [list(HOPS_MS)[number - 1]] if number else [],
            "with": {"seconds": f"{{{{ input.{name} }}}}"},
        }
        | (
            {"type": "llm", "model": "sleeper", "prompt": "{{ input.seconds }}"}
            if name == HOT
            else {"type": "python", "handler": "handlers:rest"}
        )
        for number, name in enumerate(HOPS_MS)
    },
}
CONNECT_TIMEOUT_S = 10.0
END_TIMEOUT_S = 120.0
POLL_S = 0.25


class DoesNotHold(Exception):
    """Something that must hold does not."""


# ---- the load -------------------------------------------------------------------------------


def load(arguments: argparse.Namespace) -> list[Task]:
    """Return the tasks of a play, in order of their arrival."""
    dice = random.Random(arguments.seed)
    rate_per_s = arguments.utilisation * arguments.slots / (HOPS_MS[HOT] / 1_000)
    until_s = WARMUP_S + arguments.seconds
    if arguments.arrivals == "azure":
        found = _azure(dice, rate_per_s, until_s)
    elif arguments.arrivals == "poisson":
        found = ((at_s, None) for at_s in _poisson(dice, rate_per_s, until_s))
    else:
        found = ((at_s, None) for at_s in _bursty(dice, rate_per_s, until_s))
    return [_task(dice, at_s, hot_ms) for at_s, hot_ms in found]


def _task(dice: random.Random, at_s: float, hot_ms: float | None) -> Task:
    kind, _, slo_ms = dice.choices(KINDS, [share for _, share, _ in KINDS])[0]
    took_ms = {name: _time_ms(dice, mean_ms) for name, mean_ms in HOPS_MS.items()}
    if hot_ms is not None:
        took_ms[HOT] = hot_ms
    return Task(at_s * 1_000, kind, slo_ms, took_ms)


def _time_ms(dice: random.Random, mean_ms: float) -> float:
    variance = math.log(1 + SPREAD**2)
    drawn = dice.lognormvariate(math.log(mean_ms) - variance / 2, math.sqrt(variance))
    return round(min(drawn, MAX_TIMES_MEAN * mean_ms), 3)


def _poisson(dice: random.Random, rate_per_s: float, until_s: float) -> Iterator[float]:
    at_s = dice.expovariate(rate_per_s)
    while at_s < until_s:
        yield at_s
        at_s += dice.expovariate(rate_per_s)


def _bursty(dice: random.Random, rate_per_s: float, until_s: float) -> Iterator[float]:
    begin_s, burst = 0.0, False
    while begin_s < until_s:
        lasts_s = dice.uniform(*(BURST_S if burst else QUIET_S))
        rate = rate_per_s * (BURST_RATE if burst else QUIET_RATE)
        for at_s in _poisson(dice, rate, min(lasts_s, until_s - begin_s)):
            yield begin_s + at_s
        begin_s, burst = begin_s + lasts_s, not burst


def _azure(dice: random.Random, rate_per_s: float, until_s: float) -> list[tuple[float, float]]:
    """Return a section of the trace from a random place, scaled to the wanted mean rate."""
    with gzip.open(TRACE, "rt", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    wanted = round(rate_per_s * until_s)
    first = dice.randrange(len(rows) - wanted)
    rows = rows[first : first + wanted]
    times = [datetime.fromisoformat(row["TIMESTAMP"][:26]).timestamp() for row in rows]
    tokens = [int(row["GeneratedTokens"]) for row in rows]
    shrink = until_s / (times[-1] - times[0])
    ms_per_token = HOPS_MS[HOT] * len(tokens) / sum(tokens)
    return [
        ((at - times[0]) * shrink, round(max(1.0, count * ms_per_token), 3))
        for at, count in zip(times, tokens, strict=True)
    ]


# ---- plays ----------------------------------------------------------------------------------


def simulate(tasks: Sequence[Task], arguments: argparse.Namespace) -> dict[str, list[Ended]]:
    """Play the load under each order, in simulated time."""
    plan = compile_pipeline(PIPELINE)
    slots = {"python": 4 * arguments.slots, "llm": arguments.slots}
    plays = {
        "fifo": Simulation(plan, slots, order="arrival", enforced=True),
        "fifo, patient": Simulation(plan, slots, order="arrival", enforced=False),
        "slack": Simulation(plan, slots, order="slack", enforced=True),
    }
    return {name: play.play(tasks) for name, play in plays.items()}


async def perform(tasks: Sequence[Task], arguments: argparse.Namespace) -> dict[str, list[Ended]]:
    """Play the load under each order, each on a new platform."""
    return {
        "fifo": await _play(tasks, arguments, "arrival", 1),
        "fifo, patient": await _play(tasks, arguments, "arrival", PATIENCE),
        "slack": await _play(tasks, arguments, "slack", 1),
    }


async def _play(
    tasks: Sequence[Task], arguments: argparse.Namespace, order: str, patience: int
) -> list[Ended]:
    with tempfile.TemporaryDirectory(prefix="hkt-") as folder:
        config = Path(folder) / "hocket.yaml"
        sections = {
            "models": {
                "sleeper": {"backends": [{"function": "sleeping_model:sleep", "limit": 512}]}
            },
            "node_types": {
                "llm": {"concurrency": arguments.slots},
                "python": {"concurrency": 4 * arguments.slots},
            },
        }
        config.write_text(yaml.safe_dump(sections), "utf-8")
        async with Platform(
            Path(folder) / "d",
            env={
                "HOCKET_HANDLERS": "handlers",
                "PYTHONPATH": HANDLERS,
                "HOCKET_DISPATCH_ORDER": order,
            },
            worker_types=("python", "llm"),
            config=config,
            log_level="warning",
        ) as platform:
            api = platform.api(TENANT)
            await asyncio.to_thread(api.post, "/v1/pipelines", PIPELINE)
            client = await nats.connect(platform.nats_url, connect_timeout=CONNECT_TIMEOUT_S)
            try:
                await _publish(client, tasks, patience)
            finally:
                await client.close()
            return await _ends(platform.database_url, tasks)


async def _publish(client: nats.NATS, tasks: Sequence[Task], patience: int) -> None:
    """Publish each task when it is due."""
    jetstream = client.jetstream(publish_async_max_pending=len(tasks) + 1)
    subject = subjects.task(TENANT, PIPELINE["pipeline"])
    begun_s = time.monotonic()
    for number, task in enumerate(tasks):
        wait_s = begun_s + task.at_ms / 1_000 - time.monotonic()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        body = json.dumps({name: took_ms / 1_000 for name, took_ms in task.took_ms.items()})
        headers = {
            IDEMPOTENCY_KEY: str(number),
            DEADLINE_MS: str(round(task.slo_ms * patience)),
        }
        await jetstream.publish_async(subject, body.encode(), headers=headers)
    await jetstream.publish_async_completed()


async def _ends(database_url: str, tasks: Sequence[Task]) -> list[Ended]:
    """Return how the runs ended, once all have ended."""
    connection = await asyncpg.connect(database_url, timeout=CONNECT_TIMEOUT_S)
    try:
        async with asyncio.timeout(END_TIMEOUT_S):
            while await connection.fetchval(_ENDED) < len(tasks):  # noqa: ASYNC110 - not our process
                await asyncio.sleep(POLL_S)
        rows = await connection.fetch(_RUNS)
    finally:
        await connection.close()
    return [Ended(tasks[int(row["number"])], row["status"], row["latency_ms"]) for row in rows]


_ENDED = "SELECT count(*) FROM hocket.run WHERE finished_at IS NOT NULL"
_RUNS = """
SELECT idempotency_key AS number, status,
       (extract(epoch FROM finished_at - accepted_at) * 1000)::double precision AS latency_ms
FROM hocket.run
"""


# ---- the outcome ----------------------------------------------------------------------------


def report(plays: dict[str, list[Ended]], arguments: argparse.Namespace) -> None:
    """Print a table and a line of JSON; raise DoesNotHold if a goal is missed."""
    figures = {name: _figures(ends) for name, ends in plays.items()}
    print("| order | met | " + " | ".join(f"{k} met | {k} p99 s" for k, _, _ in KINDS), end="")
    print(" | p99/slo |\n|---|---|" + "---|---|" * len(KINDS) + "---|")
    for name, found in figures.items():
        cells = [name, f"{found['met']:.1%}"]
        for kind, _, _ in KINDS:
            cells += [f"{found[kind]['met']:.1%}", f"{found[kind]['p99_s']:.2f}"]
        print("| " + " | ".join(cells) + f" | {found['p99_by_slo']:.2f} |")
    settings = {
        key: getattr(arguments, key)
        for key in ("real", "arrivals", "seed", "seconds", "slots", "utilisation")
    }
    runs = len(plays["slack"])
    text = json.dumps(settings | {"runs": runs} | {"orders": figures})
    print(text.replace("Infinity", "null"), flush=True)
    slack, fifo, patient = (figures[name] for name in ("slack", "fifo", "fifo, patient"))
    if slack["met"] <= fifo["met"]:
        raise DoesNotHold("slack order meets no more deadlines than FIFO")
    if patient["tight"]["p99_s"] < 2 * KINDS[0][2] / 1_000:
        raise DoesNotHold("FIFO's p99 is less than twice the deadline: raise --utilisation")
    for kind, _, slo_ms in KINDS:
        if slack[kind]["p99_s"] > slo_ms / 1_000:
            raise DoesNotHold(f"slack order's p99 of {kind} runs is beyond their deadline")


def _figures(ends: Sequence[Ended]) -> dict[str, Any]:
    counted = [end for end in ends if end.task.at_ms >= WARMUP_S * 1_000]
    by_kind: dict[str, list[Ended]] = defaultdict(list)
    for end in counted:
        by_kind[end.task.kind].append(end)
    found: dict[str, Any] = {
        kind: {
            "runs": len(some),
            "met": _met(some),
            "p50_s": _place([_late_ms(end) for end in some], 0.5) / 1_000,
            "p99_s": _place([_late_ms(end) for end in some], 0.99) / 1_000,
        }
        for kind, some in sorted(by_kind.items())
    }
    by_slo = [_late_ms(end) / end.task.slo_ms for end in counted]
    return found | {"met": _met(counted), "p99_by_slo": _place(by_slo, 0.99)}


def _met(ends: Sequence[Ended]) -> float:
    return sum(_late_ms(end) <= end.task.slo_ms for end in ends) / len(ends)


def _late_ms(end: Ended) -> float:
    return end.latency_ms if end.status == "succeeded" else math.inf


def _place(values: Sequence[float], place: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * place))]


async def main(arguments: argparse.Namespace) -> None:
    """Play, print, and check the goals."""
    print(machine_text(), file=sys.stderr)
    tasks = load(arguments)
    plays = await perform(tasks, arguments) if arguments.real else simulate(tasks, arguments)
    report(plays, arguments)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--arrivals", choices=("bursty", "poisson", "azure"), default="bursty")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, help="default: 600, 60 with --real")
    parser.add_argument("--slots", type=int, help="of the hot step; default: 8, 4 with --real")
    parser.add_argument("--utilisation", type=float, default=0.95, help="of the hot step")
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    given = parser.parse_args()
    given.seconds = given.seconds or (60.0 if given.real else 600.0)
    given.slots = given.slots or (4 if given.real else 8)
    try:
        uvloop.run(main(given))
    except DoesNotHold as error:
        print(f"does not hold: {error}", file=sys.stderr)
        sys.exit(1)
