"""Measure how much cold starts delay a pipeline, and what it costs to avoid them, at 100 times real
speed.

Uses its own platform in a temporary folder, with `hocket emulate` at speed 100 as the model servers.
The pipeline calls an embedder (30 s to start), a classifier (20 s) and, after the embedder, a writer
(150 s: 85 s to get a machine, 65 s to load the model). Each warming strategy has its own pipeline and
its own models, which are cold before each run:

  hot           all three are kept loaded: the duration of a run without any cold start
  uncoordinated no `warm:` at all: each engine starts on its first request and unloads when idle
  coordinated   accepted runs start the models that they will need, all from cold
  pool          the same, but a machine is kept provisioned for the writer
  schedule      all three are loaded for 100 s every 20 real seconds (2,000 virtual ones), by cron
  forecast      all three are started in time for the next expected run, learnt from four runs at
                intervals of 600 virtual seconds
  critical      only the writer follows the schedule; the accepted run starts the others

A run's delay is its duration minus the median duration of the hot runs. The time that models were held,
the time wasted (idle, or a machine without a model) and the cost are taken from report.warm_time, from
a strategy's first run until its models are cold again, divided by the number of runs. All printed
seconds are virtual.

    .venv/bin/python -m bench.gateway.cold_start --runs 5
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asyncpg
import structlog
import yaml

from bench.support.emulators import NotStarted, emulated
from hocket.cli.local.platform import Platform
from hocket.cli.remote.api import Api

SPEED = 100.0
WINDOW_S = 20.0
"""Real seconds between the starts of two windows of the schedule."""
CRON = "*/20 * * * * *"
SCHEDULED_S = 1.0
FORECAST_EVERY_S = 6.0
TRAINING_RUNS = 4
IDLE_S = 0.3
MIN_WARM_S = 0.2
WAIT_MS = 20_000
COLD_TIMEOUT_S = 30.0
LEDGER_S = 2.5
MODELS = {
    "embedder": (0.0, 30.0, "0.80"),
    "classifier": (0.0, 20.0, "0.80"),
    "writer": (85.0, 65.0, "4.00"),
}
"""Virtual seconds to get a machine and to load the model, and the price in US dollars per hour."""
WAYS = ("hot", "uncoordinated", "coordinated", "pool", "schedule", "forecast", "critical")


class NoFigure(Exception):
    """A run did not end as it should."""


def engines() -> dict[str, Any]:
    """Return the emulator's configuration: three engines for each strategy."""
    groups = []
    for way in WAYS:
        for model, (provision_s, load_s, _) in MODELS.items():
            profile = {
                "model": f"{model}-{way}",
                "output_tokens": 4,
                "warm": way == "hot",
                "provision_s": provision_s,
                "load_s": load_s,
                "while_cold": "wait" if way == "uncoordinated" else "refuse",
            }
            groups.append({"port": 0, "profile": profile})
    return {"speed": SPEED, "engines": groups}


def models(urls: dict[str, str]) -> dict[str, Any]:
    """Return the gateway's model configuration."""
    return {
        f"{model}-{way}": {
            "backends": [
                {
                    "base_url": urls[f"{model}-{way}"],
                    "model": f"{model}-{way}",
                    "prices": {"request_usd": "0"},
                    **warm_of(way, model),
                }
            ]
        }
        for way in WAYS
        for model in MODELS
    }


def warm_of(way: str, model: str) -> dict[str, Any]:
    """Return the `warm:` section for one model under one strategy. Times are real: the gateway is not
    sped up."""
    if way == "uncoordinated":
        return {}
    provision_s, load_s, usd = MODELS[model]
    machine = {
        "provision": "{url}/emulator/provision?wait",
        "unload": "{url}/emulator/unload?keep",
        "release": "{url}/emulator/unload",
    }
    webhook = {"load": "{url}/emulator/load?wait", "ready": "{url}/health"}
    warm: dict[str, Any] = {
        "tier": "hot" if way == "hot" else "cold",
        "webhook": webhook | (machine if provision_s else {"unload": "{url}/emulator/unload"}),
        "provision_s": provision_s / SPEED,
        "load_s": load_s / SPEED,
        "idle_s": IDLE_S,
        "min_warm_s": MIN_WARM_S,
        "usd_per_hour": usd,
    }
    if way == "pool" and model == "writer":
        warm["tier"] = "warm"
    if way == "schedule" or (way == "critical" and model == "writer"):
        warm["schedules"] = [{"cron": CRON, "for_s": SCHEDULED_S}]
    if way == "forecast":
        warm["forecast"] = True
    return {"warm": warm}


def pipeline(way: str) -> dict[str, Any]:
    """Return the pipeline of one strategy."""
    return {
        "pipeline": way,
        "slo_ms": 60_000,
        "nodes": {
            "embed": {"type": "llm", "model": f"embedder-{way}", "prompt": "Embed this."},
            "classify": {"type": "llm", "model": f"classifier-{way}", "prompt": "Which kind?"},
            "answer": {
                "type": "llm",
                "model": f"writer-{way}",
                "prompt": "Answer.",
                "needs": ["embed"],
            },
        },
        "output": "done",
    }


class Bench:
    """The platform, its model servers and the database connection."""

    def __init__(self, api: Api, connection: asyncpg.Connection, urls: dict[str, str]) -> None:
        self.api = api
        self.connection = connection
        self.urls = urls

    async def run(self, way: str) -> float:
        """Run a strategy's pipeline once; return its duration in virtual seconds."""
        body = {"pipeline": way, "input": {}, "wait_ms": WAIT_MS}
        end = await asyncio.to_thread(self.api.post, "/v1/runs", body)
        if end.get("status") != "succeeded":
            raise NoFigure(f"{way} ended so: {end}")
        row = await self.connection.fetchrow(_TOOK, end["run_id"])
        return float(row["took_s"]) * SPEED

    async def cold(self, way: str, *, but: str = "") -> None:
        """Wait until every model of a strategy is cold (the model `but`: provisioned)."""
        wanted = {model: "provisioned" if model == but else "cold" for model in MODELS}
        deadline = time.monotonic() + COLD_TIMEOUT_S
        while True:
            found = {m: (await self.state(f"{m}-{way}"))["state"] for m in MODELS}
            if found == wanted:
                return
            if time.monotonic() > deadline:
                raise NoFigure(f"the models of {way} are {found}")
            await asyncio.sleep(0.05)

    async def unload(self, way: str) -> None:
        """Unload all engines of a strategy."""
        for model in MODELS:
            await self._ask(f"{model}-{way}", "/emulator/unload", b"")

    async def state(self, model: str) -> dict[str, Any]:
        """Return the state of an engine."""
        found: dict[str, Any] = await self._ask(model, "/emulator", None)
        return found

    async def _ask(self, model: str, path: str, body: bytes | None) -> Any:
        url = self.urls[model].removesuffix("/v1") + path

        def read() -> Any:
            with urllib.request.urlopen(urllib.request.Request(url, body), timeout=5) as answer:
                return json.load(answer)

        return await asyncio.to_thread(read)

    async def spent(self, way: str, since_s: float) -> dict[str, float]:
        """Return how long a strategy's models have been held since `since_s`, and what that cost."""
        await asyncio.sleep(LEDGER_S)
        row = await self.connection.fetchrow(_HELD, f"%-{way}", since_s)
        found = {name: float(value or 0) for name, value in row.items()}
        seconds = {name: found[name] * SPEED for name in ("held_s", "busy_s", "wasted_s")}
        usd = {name: found[name] * SPEED for name in ("cost_usd", "wasted_usd")}
        return seconds | usd


async def measure(bench: Bench, runs: int, chosen: Sequence[str]) -> dict[str, Any]:
    """Measure the chosen strategies, and always `hot` and `uncoordinated`; return the result."""
    for way in WAYS:
        await asyncio.to_thread(bench.api.post, "/v1/pipelines", pipeline(way))
    for _ in range(3):
        await bench.run("hot")
    took: dict[str, list[float]] = {way: [] for way in WAYS}
    spent: dict[str, dict[str, float]] = {}
    took["hot"] = [await bench.run("hot") for _ in range(10)]
    for _ in range(runs):
        await bench.unload("uncoordinated")
        took["uncoordinated"].append(await bench.run("uncoordinated"))
    for way, kept in (("coordinated", ""), ("pool", "writer")):
        if way not in chosen:
            continue
        since_s = time.time()
        for _ in range(runs):
            await bench.cold(way, but=kept)
            took[way].append(await bench.run(way))
        if way == "coordinated":
            await bench.cold(way)
        spent[way] = per_run(await bench.spent(way, since_s), runs)
    if "forecast" in chosen:
        took["forecast"], spent["forecast"] = await forecast(bench, runs)
    for way in ("schedule", "critical"):
        if way not in chosen:
            continue
        took[way], spent[way] = await scheduled(bench, way, min(runs, 4))
    return report(took, spent)


async def forecast(bench: Bench, runs: int) -> tuple[list[float], dict[str, float]]:
    """Run at regular intervals; only the runs after the training runs are measured."""
    took: list[float] = []
    since_s = 0.0
    begun_s = time.monotonic()
    for number in range(TRAINING_RUNS + runs):
        await asyncio.sleep(max(begun_s + number * FORECAST_EVERY_S - time.monotonic(), 0))
        if number == TRAINING_RUNS:
            since_s = time.time() - FORECAST_EVERY_S / 2
        took.append(await bench.run("forecast"))
    await asyncio.sleep(FORECAST_EVERY_S / 2)
    return took[TRAINING_RUNS:], per_run(await bench.spent("forecast", since_s), runs)


async def scheduled(bench: Bench, way: str, runs: int) -> tuple[list[float], dict[str, float]]:
    """Run once in each window of the schedule, shortly after it opens."""
    await until_window(WINDOW_S / 2)
    since_s, took = time.time(), []
    for _ in range(runs):
        await until_window(0.1)
        took.append(await bench.run(way))
    await until_window(WINDOW_S / 2)
    return took, per_run(await bench.spent(way, since_s), runs)


async def until_window(after_s: float) -> None:
    """Sleep until `after_s` seconds into a window; half a window means its middle."""
    now_s = time.time()
    await asyncio.sleep((after_s - now_s) % WINDOW_S)


def per_run(spent: dict[str, float], runs: int) -> dict[str, float]:
    """Return the amounts per run."""
    return {name: value / runs for name, value in spent.items()}


def report(took: dict[str, list[float]], spent: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Return the figures of each strategy. Costs are also given relative to keeping all three models
    hot for the time from one window to the next."""
    warm_s = statistics.median(took["hot"])
    hot_usd = sum(float(usd) for _, _, usd in MODELS.values()) / 3600 * WINDOW_S * SPEED
    whole_s = statistics.median(took["uncoordinated"]) - warm_s
    ways: dict[str, Any] = {"hot": {"run_s": round(warm_s, 1), "runs": len(took["hot"])}}
    for way in (way for way in WAYS[1:] if took[way]):
        delays = [one - warm_s for one in took[way]]
        delay_s = statistics.median(delays)
        ways[way] = {
            "delay_s": round(delay_s, 1),
            "delays_s": [round(one, 1) for one in delays],
            "gone": round(1 - delay_s / whole_s, 4),
            "runs": len(delays),
        }
        if way in spent:
            ways[way] |= {name: round(value, 4) for name, value in spent[way].items()}
            ways[way]["cost_of_hot"] = round(spent[way]["cost_usd"] / hot_usd, 4)
    return {"speed": SPEED, "hot_usd": round(hot_usd, 4), "ways": ways}


async def main(arguments: argparse.Namespace) -> None:
    """Start everything, measure, and print the result."""
    with tempfile.TemporaryDirectory(prefix="hkt-") as name:
        folder = Path(name)
        async with emulated(folder, engines()) as found:
            urls = {model: url for model, (url,) in found.items()}
            config = folder / "hocket.yaml"
            config.write_text(yaml.safe_dump({"models": models(urls)}), "utf-8")
            async with Platform(
                folder / "d", worker_types=("llm",), config=config, log_level="warning"
            ) as platform:
                connection = await asyncpg.connect(platform.database_url)
                try:
                    bench = Bench(platform.api(), connection, urls)
                    result = await measure(bench, arguments.runs, arguments.ways)
                finally:
                    await connection.close()
    print(json.dumps(result, indent=2), flush=True)


_TOOK = """
SELECT extract(epoch FROM finished_at - accepted_at)::double precision AS took_s
FROM hocket.run WHERE run_id = $1
"""
_HELD = """
SELECT sum(held_s)::double precision AS held_s, sum(busy_s)::double precision AS busy_s,
       sum(wasted_s)::double precision AS wasted_s, sum(cost_usd)::double precision AS cost_usd,
       sum(wasted_usd)::double precision AS wasted_usd
FROM report.warm_time WHERE model LIKE $1 AND from_at >= to_timestamp($2)
"""

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--ways", nargs="+", choices=WAYS[2:], default=WAYS[2:])
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    print(f"load {os.getloadavg()[0]:.2f} before the start", file=sys.stderr)
    try:
        asyncio.run(main(parser.parse_args()))
    except (NoFigure, NotStarted) as error:
        print(f"no figure: {error}", file=sys.stderr)
        sys.exit(1)
