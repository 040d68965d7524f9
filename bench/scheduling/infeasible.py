"""Measure what is spent on runs that can no longer meet their deadline, and what degrading saves.

The pipeline has five model calls in a row (plan, research, enrich, draft, check; 2.75 s on average, 5 s
to the deadline), whose durations are drawn from `--seed` with long tails, so that many runs become
doomed on the way; the calls' slots are utilised as `--utilisation` says. The same tasks are played
three times, each on a new platform (NATS, Postgres, coordinator, worker, gateway, ledger):

- `hope`: steps run in order of arrival, and nothing is done about runs that are late (`continue`);
- `fail`: the product's order, `on_infeasible: fail`;
- `degrade`: the product's order, `on_infeasible: degrade`; nodes with long tails can be spared:
  `enrich` is optional, and `research` and `draft` have a `fast` variant that stands in for a smaller
  model: a fifth of the mean, and no long tail.

A run became infeasible when the time left until its deadline first fell below the sum of the means of
the steps that it had not yet started. (These are the means that durations are drawn with; the platform
has to learn them.) This moment is computed here from the times at which the run's steps became ready,
began and ended. A doomed run is one that missed its deadline. Spending is what the model meters call by
call, including stopped calls; the ledger must agree about every call that was not stopped. A call in
progress when its run became infeasible is counted in proportion.

The exit code is 1 unless with `fail` less than 2 % of what doomed runs spent was spent after they
became infeasible, and with `degrade` 99 % of the runs that missed their deadline with `hope` end well
within it.

    .venv/bin/python -m bench.scheduling.infeasible
"""

import argparse
import asyncio
import json
import math
import os
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import nats
import structlog
import uvloop
import yaml

from bench.support.machine import machine_text
from bench.support.places import HANDLERS
from bench.support.sleeping_model import METER
from hocket.cli.local.platform import Platform
from hocket.kit.nats.cloudevents import IDEMPOTENCY_KEY
from hocket.schemas import subjects

MEANS_MS = {"plan": 300.0, "research": 500.0, "enrich": 450.0, "draft": 1_200.0, "check": 300.0}
SPREAD = {"plan": 0.2, "research": 0.8, "enrich": 0.8, "draft": 0.8, "check": 0.2}
"""Standard deviation of a call's duration, as a fraction of its mean (lognormal)."""
FAST = ("research", "draft")
FAST_SHARE = 0.2
FAST_SPREAD = 0.2
SLO_MS = 5_000.0
MAX_TIMES_MEAN = 6.0
USD_PER_MTOK = 10
USD_PER_MS = USD_PER_MTOK / 1e6
"""Price of a millisecond, in which the model generates one token."""
WARMUP_S = 8.0
"""Runs that arrive in these first seconds serve to measure the steps and are not counted."""
MAX_LATE_SPEND = 0.02
MIN_SAVED = 0.99
TENANT = "default"
CONNECT_TIMEOUT_S = 10.0
END_TIMEOUT_S = 120.0
POLL_S = 0.25
PLAYS = {
    "hope": ("arrival", "continue"),
    "fail": ("slack", "fail"),
    "degrade": ("slack", "degrade"),
}


class DoesNotHold(Exception):
    """Something that must hold does not."""


@dataclass(frozen=True, slots=True)
class Task:
    """A task of the load, and the durations of its calls by node."""

    at_s: float
    took_s: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Call:
    """A call as the model metered it (epoch ms)."""

    node: str
    begun_ms: float
    ended_ms: float


@dataclass(frozen=True, slots=True)
class Played:
    """A run as stored in Postgres (epoch ms), with its calls. `ready` lists its steps in order, with
    the time at which each became ready."""

    number: int
    status: str
    code: str | None
    accepted_ms: float
    deadline_ms: float
    finished_ms: float
    ready: Sequence[tuple[str, float]]
    calls: Sequence[Call]

    @property
    def met(self) -> bool:
        return self.status in ("succeeded", "degraded") and self.finished_ms <= self.deadline_ms


# ---- the load -------------------------------------------------------------------------------


def load(arguments: argparse.Namespace) -> list[Task]:
    """Return the tasks, in order of their arrival."""
    dice = random.Random(arguments.seed)
    rate_per_s = arguments.utilisation * arguments.slots * 1_000 / sum(MEANS_MS.values())
    tasks, at_s = [], dice.expovariate(rate_per_s)
    while at_s < WARMUP_S + arguments.seconds:
        took_s = {name: _time_s(dice, mean_ms, SPREAD[name]) for name, mean_ms in MEANS_MS.items()}
        for name in FAST:
            took_s[f"{name}_fast"] = _time_s(dice, FAST_SHARE * MEANS_MS[name], FAST_SPREAD)
        tasks.append(Task(at_s, took_s))
        at_s += dice.expovariate(rate_per_s)
    return tasks


def _time_s(dice: random.Random, mean_ms: float, spread: float) -> float:
    variance = math.log(1 + spread**2)
    drawn = dice.lognormvariate(math.log(mean_ms) - variance / 2, math.sqrt(variance))
    return round(min(drawn, MAX_TIMES_MEAN * mean_ms) / 1_000, 6)


def pipeline(on_infeasible: str) -> dict[str, Any]:
    """Return the pipeline with the given policy."""
    nodes: dict[str, Any] = {}
    for number, name in enumerate(MEANS_MS):
        needs = [list(MEANS_MS)[number - 1]] if number else []
        nodes[name] = _node(name, MEANS_MS[name], SPREAD[name]) | {"needs": needs}
    nodes["enrich"]["optional"] = True
    for name in FAST if on_infeasible == "degrade" else ():
        mean_ms = FAST_SHARE * MEANS_MS[name]
        nodes[name]["fast"] = _node(f"{name}_fast", mean_ms, FAST_SPREAD)
    return {
        "pipeline": "infeasible",
        "slo_ms": SLO_MS,
        "on_infeasible": on_infeasible,
        "on_overload": "admit",
        "nodes": nodes,
        "output": "{{ nodes.check.output.text }}",
    }


def _node(seconds: str, mean_ms: float, spread: float) -> dict[str, Any]:
    return {
        "type": "llm",
        "model": "sleeper",
        "prompt": "{{ input.seconds }}",
        "with": {"seconds": f"{{{{ input.{seconds} }}}}"},
        "expect": {"mean_ms": mean_ms, "sd_ms": mean_ms * spread},
    }


# ---- a play ---------------------------------------------------------------------------------


async def play(tasks: Sequence[Task], name: str, slots: int) -> list[Played]:
    """Play the tasks on a new platform; return the runs."""
    order, on_infeasible = PLAYS[name]
    with tempfile.TemporaryDirectory(prefix="hkt-") as folder:
        config, meter = Path(folder) / "hocket.yaml", Path(folder) / "meter"
        meter.touch()
        sleeper = {
            "function": "sleeping_model:sleep",
            "limit": 512,
            "prices": {"output_usd_per_mtok": USD_PER_MTOK},
        }
        sections = {
            "models": {"sleeper": {"backends": [sleeper]}},
            "node_types": {"llm": {"concurrency": slots}},
        }
        config.write_text(yaml.safe_dump(sections), "utf-8")
        env = {
            "HOCKET_HANDLERS": "handlers",
            "PYTHONPATH": HANDLERS,
            "HOCKET_DISPATCH_ORDER": order,
            METER: str(meter),
        }
        async with Platform(
            Path(folder) / "d",
            env=env,
            worker_types=("llm",),
            config=config,
            log_level="warning",
        ) as platform:
            api = platform.api(TENANT)
            await asyncio.to_thread(api.post, "/v1/pipelines", pipeline(on_infeasible))
            client = await nats.connect(platform.nats_url, connect_timeout=CONNECT_TIMEOUT_S)
            try:
                await _publish(client, tasks)
            finally:
                await client.close()
            return await _played(platform.database_url, meter, len(tasks))


async def _publish(client: nats.NATS, tasks: Sequence[Task]) -> None:
    """Publish each task when it is due."""
    jetstream = client.jetstream(publish_async_max_pending=len(tasks) + 1)
    subject = subjects.task(TENANT, "infeasible")
    begun_s = time.monotonic()
    for number, task in enumerate(tasks):
        wait_s = begun_s + task.at_s - time.monotonic()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        body = json.dumps(dict(task.took_s)).encode()
        await jetstream.publish_async(subject, body, headers={IDEMPOTENCY_KEY: str(number)})
    await jetstream.publish_async_completed()


async def _played(database_url: str, meter: Path, tasks: int) -> list[Played]:
    connection = await asyncpg.connect(database_url, timeout=CONNECT_TIMEOUT_S)
    try:
        async with asyncio.timeout(END_TIMEOUT_S):
            while await connection.fetchval(_ENDED) < tasks:  # noqa: ASYNC110 - not our process
                await asyncio.sleep(POLL_S)
            calls = await _calls(connection, meter)
        ready: dict[str, list[tuple[str, float]]] = defaultdict(list)
        for row in await connection.fetch(_STEPS):
            ready[row["run_id"]].append((row["node"], row["ready_ms"]))
        return [
            Played(
                int(row["number"]),
                row["status"],
                row["code"],
                row["accepted_ms"],
                row["deadline_ms"],
                row["finished_ms"],
                ready[row["run_id"]],
                calls.get(row["run_id"], ()),
            )
            for row in await connection.fetch(_RUNS)
        ]
    finally:
        await connection.close()


async def _calls(connection: asyncpg.Connection, meter: Path) -> dict[str, list[Call]]:
    """Return the model's calls by run, once the ledger has all of them; raise DoesNotHold if the ledger
    disagrees about the answered ones."""
    while True:
        text = await asyncio.to_thread(meter.read_text, "utf-8")
        lines = [json.loads(line) for line in text.splitlines()]
        if await connection.fetchval("SELECT count(*) FROM report.usage") == len(lines):
            break
        await asyncio.sleep(POLL_S)
    answered = [line for line in lines if line[5]]
    metered = (len(answered), sum(tokens * USD_PER_MTOK for _, _, tokens, *_ in answered))
    booked = tuple(await connection.fetchrow(_BOOKED))
    if booked != metered:
        raise DoesNotHold(f"the ledger has {booked} calls and microdollars, the model {metered}")
    found: dict[str, list[Call]] = defaultdict(list)
    for run_id, node, _, begun_s, ended_s, _ in lines:
        found[run_id].append(Call(node, begun_s * 1_000, ended_s * 1_000))
    return found


_ENDED = "SELECT count(*) FROM hocket.run WHERE finished_at IS NOT NULL"
_BOOKED = "SELECT count(*), sum(cost_usd) * 1000000 FROM report.usage WHERE status = 'ok'"
_MS = "(extract(epoch FROM {}) * 1000)::double precision AS {}"
_STEPS = f"""
SELECT run_id, path AS node, {_MS.format("ready_at", "ready_ms")}
FROM hocket.step WHERE path NOT LIKE '%!%' AND state <> 'skipped' ORDER BY run_id, ready_at
"""
_RUNS = f"""
SELECT run_id, idempotency_key AS number, status, error ->> 'code' AS code,
       {_MS.format("accepted_at", "accepted_ms")}, {_MS.format("deadline_at", "deadline_ms")},
       {_MS.format("finished_at", "finished_ms")}
FROM hocket.run
"""


# ---- the outcome ----------------------------------------------------------------------------


def infeasible_since_ms(run: Played) -> float | None:
    """Return when a run became infeasible by the means of its steps (epoch ms), or None."""
    nodes = list(MEANS_MS)
    began = {call.node: call.begun_ms for call in run.calls}
    for place, (node, ready_ms) in enumerate(run.ready):
        after_ms = sum(MEANS_MS[name] for name in nodes[nodes.index(node) + 1 :])
        left_by_ms = run.deadline_ms - after_ms
        last_start_ms = left_by_ms - MEANS_MS[node]
        is_last = place + 1 == len(run.ready)
        end_ms = run.finished_ms if is_last else run.ready[place + 1][1]
        if began.get(node, end_ms) > last_start_ms:
            return max(ready_ms, last_start_ms)
        if end_ms > left_by_ms:
            return left_by_ms
    return None


def late_spend(runs: Sequence[Played]) -> tuple[int, float, float]:
    """Return the number of doomed runs, what they spent, and how much of it after they were infeasible
    (USD)."""
    doomed, spent_ms, late_ms = 0, 0.0, 0.0
    for run in runs:
        if run.met:
            continue
        doomed += 1
        since_ms = infeasible_since_ms(run) or math.inf
        for call in run.calls:
            spent_ms += call.ended_ms - call.begun_ms
            late_ms += max(0.0, call.ended_ms - max(call.begun_ms, since_ms))
    return doomed, spent_ms * USD_PER_MS, late_ms * USD_PER_MS


def report(plays: Mapping[str, Sequence[Played]], arguments: argparse.Namespace) -> None:
    """Print a table and a line of JSON; raise DoesNotHold if a goal is missed."""
    missed = {run.number for run in plays["hope"] if not run.met}
    figures: dict[str, Any] = {}
    print("| | met | of those missed by hope | doomed | spent | of it too late |")
    print("|---|---|---|---|---|---|")
    for name, runs in plays.items():
        doomed, spent_usd, late_usd = late_spend(runs)
        saved = [run for run in runs if run.number in missed and run.met]
        whole_usd = USD_PER_MS * sum(
            call.ended_ms - call.begun_ms for run in runs for call in run.calls
        )
        figures[name] = {
            "runs": len(runs),
            "ends": Counter(f"{r.status} {r.code or ''}".strip() for r in runs),
            "met": sum(run.met for run in runs) / len(runs),
            "missed_by_hope_met": len(saved),
            "missed_by_hope_ends": Counter(r.status for r in runs if r.number in missed),
            "spent_usd": whole_usd,
            "doomed": doomed,
            "doomed_spent_usd": spent_usd,
            "doomed_late_usd": late_usd,
        }
        share = late_usd / spent_usd if spent_usd else 0.0
        print(
            f"| {name} | {figures[name]['met']:.1%} | {len(saved)} of {len(missed)} | {doomed} "
            f"| {whole_usd:.4f}, by doomed runs {spent_usd:.4f} USD | {share:.2%} |"
        )
    keys = ("seed", "seconds", "slots", "utilisation")
    settings = {key: getattr(arguments, key) for key in keys}
    print(json.dumps(settings | {"plays": figures}), flush=True)
    if "fail" not in figures:
        return
    fail, degrade = figures["fail"], figures["degrade"]
    if not fail["doomed"] or not missed:
        raise DoesNotHold("no run was doomed: raise --utilisation")
    if fail["doomed_late_usd"] >= MAX_LATE_SPEND * fail["doomed_spent_usd"]:
        raise DoesNotHold("with `fail` too much is spent on runs that are infeasible")
    if degrade["missed_by_hope_met"] < MIN_SAVED * len(missed):
        raise DoesNotHold("with `degrade` too many runs miss their deadline")


async def main(arguments: argparse.Namespace) -> None:
    """Play three times, print, and check the goals."""
    print(machine_text(), file=sys.stderr)
    tasks = load(arguments)
    counted = {n for n, task in enumerate(tasks) if task.at_s >= WARMUP_S}
    plays = {}
    for name in arguments.plays:
        runs = await play(tasks, name, arguments.slots)
        plays[name] = [run for run in runs if run.number in counted]
    if arguments.verbose:
        for run in plays["degrade"]:
            if not run.met:
                _show(run, tasks[run.number])
    report(plays, arguments)


def _show(run: Played, task: Task) -> None:
    """Print when the steps of a run were ready, and when its calls began and ended."""
    begun_ms = run.accepted_ms
    ready = [f"{node} {at_ms - begun_ms:.0f}" for node, at_ms in run.ready]
    calls = [f"{c.node} {c.begun_ms - begun_ms:.0f}-{c.ended_ms - begun_ms:.0f}" for c in run.calls]
    took = {name: round(1_000 * seconds) for name, seconds in task.took_s.items()}
    print(run.number, run.status, run.code, "ready", ready, "calls", calls, took, file=sys.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=45.0)
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--utilisation", type=float, default=0.8, help="of the slots, by means")
    parser.add_argument("--verbose", action="store_true", help="show runs that were not saved")
    parser.add_argument("--plays", nargs="*", choices=PLAYS, default=list(PLAYS))
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    print(f"load {os.getloadavg()[0]:.2f} before the start", file=sys.stderr)
    try:
        uvloop.run(main(parser.parse_args()))
    except DoesNotHold as error:
        print(f"does not hold: {error}", file=sys.stderr)
        sys.exit(1)
