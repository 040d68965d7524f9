"""Measure ten times the load for a minute on a model that autoscales: who waits, who is refused, and
how.

Uses its own platform (NATS, Postgres, coordinator, worker, gateway, ledger, REST), and `hocket emulate`
with `--replicas` engines that run 10 times as fast as real ones: one is warm; the others are cold and
take 85 s to get a machine and 65 s to load the model, 15 s here in total. This script is their
autoscaler: once a second it requests as many engines as the calls held by the gateway would fill, as a
KEDA trigger would; a cold engine refuses its calls.

Each run is a step, a model call of 0.26 s on an idle engine, and another step. 30 % of the runs are
interactive (2 s to their deadline), 15 % standard (60 s), 10 % batch (300 s), 40 % batch that is useful
only within 1.5 s (`soon`: `on_overload: reject`), and 5 % batch that can wait up to 8 s (`patient`: it
queues until it can be done, and is refused when it no longer can). While one engine serves,
interactive, standard and `soon` alone exceed its capacity. Tasks arrive as a Poisson process drawn from
`--seed`: 20 s at `--rate` per second, 60 s at ten times as much, then 20 s as before; the bench waits
for the end of every run. An admitted interactive run must be served as well as ever; batch may wait; a
refusal must say so with a code and when to try again. Times are from just before a task is published to
its end as heard by the publisher; a run that did not succeed counts as infinitely late. What the
interactive runs of the spike waited for is read from their critical paths.

The exit code is 1 unless interactive p95 in the spike is at most 1.5 times that of the steady phase
before, tasks were refused, every refusal is structured (a code, a class, and in its details
`retry_after_ms` and `limited_by`), and every other run ends well (runs of `soon` and `patient` were
predicted to: they must end in time, or be stopped at their deadline).

    .venv/bin/python -m bench.scheduling.spike
"""

import argparse
import asyncio
import json
import math
import random
import sys
import tempfile
import time
import urllib.request
from collections import Counter
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

from bench.support.emulators import NotStarted, emulated
from bench.support.machine import machine_text
from bench.support.places import HANDLERS
from hocket.cli.local.platform import Platform
from hocket.cli.local.processes import health_url
from hocket.kit.nats.cloudevents import REPLY_TO
from hocket.schemas import subjects

TENANT = "default"
KINDS = (
    ("interactive", 0.3, {"class": "interactive", "slo_ms": 2_000}),
    ("standard", 0.15, {"class": "standard", "slo_ms": 60_000}),
    ("batch", 0.1, {"class": "batch", "slo_ms": 300_000}),
    ("soon", 0.4, {"class": "batch", "slo_ms": 1_500, "on_overload": "reject"}),
    ("patient", 0.05, {"class": "batch", "slo_ms": 8_000}),
)
"""Pipelines: name, share of the tasks, and service settings."""
PHASES = (("steady", 20.0, 1.0), ("spike", 60.0, 10.0), ("after", 20.0, 1.0))
"""Name, seconds, and multiple of the rate."""
WARMUP_RUNS = 40
SPEED = 10
MAX_RUNNING = 8
PROFILE = {
    "model": "llm",
    "decode_tokens_per_s": 25,
    "output_tokens": 64,
    "max_running": MAX_RUNNING,
    "provision_s": 85,
    "load_s": 65,
    "while_cold": "refuse",
}
SCALE_EVERY_S = 1.0
MOST_WORSE = 1.5
MOST_DISTURBED = 1.25
"""If p95 of the steady phase exceeds its median by more than this factor, it says nothing about the
spike."""
MAY_BE_LATE_S = {"soon": 1.5, "patient": 8.0}
"""Kinds whose runs may be stopped at their deadline, with the time that they have."""
STOPPED_WITHIN_S = 0.1
"""How close to its deadline such a run must be stopped."""
SLOWEST = 0.1
"""Share of the interactive runs, the slowest ones, whose waiting times are broken down."""
PIECES = """
    SELECT node, kind, sum(ms) AS ms FROM report.run_critical_path
    WHERE run_id = ANY($1) GROUP BY node, kind ORDER BY ms DESC
"""
CONNECT_TIMEOUT_S = 10.0
END_TIMEOUT_S = 120.0


class DoesNotHold(Exception):
    """Something that must hold does not."""


@dataclass(frozen=True, slots=True)
class Told:
    """A publisher's view of its task."""

    kind: str
    phase: str
    status: str
    took_s: float
    error: Mapping[str, Any] | None
    run_id: str | None = None


def pipeline(kind: str, service: Mapping[str, Any]) -> dict[str, Any]:
    """Return the pipeline of one kind."""
    step = {"type": "python", "handler": "handlers:pass_along"}
    return {
        "pipeline": kind,
        **service,
        "nodes": {
            "plan": step | {"with": {"text": "{{ input.text }}"}},
            "answer": {
                "type": "llm",
                "model": "writer",
                "prompt": "{{ input.text }}",
                "with": {"text": "{{ nodes.plan.output.text }}"},
            },
            "check": step | {"with": {"text": "{{ nodes.answer.output.text }}"}},
        },
    }


# ---- the engines ----------------------------------------------------------------------------


def engines(replicas: int) -> dict[str, Any]:
    """Return the emulator's configuration: one warm engine and several cold ones."""
    return {
        "speed": SPEED,
        "engines": [
            {"port": 0, "profile": PROFILE},
            {"port": 0, "replicas": replicas - 1, "profile": PROFILE | {"warm": False}},
        ],
    }


class Autoscaler:
    """Requests engines for the calls that the gateway holds; `asked` records when, and how many."""

    def __init__(self, urls: Sequence[str], metrics_url: str) -> None:
        self.asked: list[tuple[float, int]] = [(time.monotonic(), 1)]
        self._urls = urls
        self._metrics_url = metrics_url

    async def run(self) -> None:
        """Scale until cancelled; engines are never removed."""
        while True:
            await asyncio.sleep(SCALE_EVERY_S)
            calls = _sample(await _get(self._metrics_url), "hocket_gateway_in_flight")
            wanted = min(len(self._urls), math.ceil(calls / MAX_RUNNING))
            have = self.asked[-1][1]
            if wanted > have:
                self.asked.append((time.monotonic(), wanted))
                for url in self._urls[have:wanted]:
                    await _get(f"{url}/emulator/load", b"")


async def _get(url: str, data: bytes | None = None) -> str | None:
    def read() -> str | None:
        try:
            with urllib.request.urlopen(url, data, timeout=5) as answer:
                return str(answer.read().decode())
        except OSError:
            return None

    return await asyncio.to_thread(read)


def _sample(text: str | None, name: str) -> float:
    for line in (text or "").splitlines():
        if line.startswith(name + " "):
            return float(line.rpartition(" ")[2])
    return 0.0


# ---- the load -------------------------------------------------------------------------------


class Load:
    """Publishes tasks when they are due and hears how they end."""

    def __init__(self, client: Client, seed: int) -> None:
        self._jetstream = client.jetstream(publish_async_max_pending=10_000)
        self._client = client
        self._inbox = client.new_inbox()
        self._waiting: dict[str, asyncio.Future[Any]] = {}
        self._published = 0
        self.repeats = 0
        self._dice = random.Random(seed)

    async def start(self) -> None:
        """Listen to all inboxes."""
        await self._client.subscribe(f"{self._inbox}.*", cb=self._heard)

    async def warm_up(self) -> None:
        """Run some tasks one after another."""
        for number in range(WARMUP_RUNS):
            await self._one(KINDS[number % len(KINDS)][0], "warm-up")

    async def run(self, rate_per_s: float) -> list[Told]:
        """Go through the phases; return the results when all runs have ended."""
        tasks: list[asyncio.Task[Told]] = []
        at_s = time.monotonic()
        for phase, seconds, times in PHASES:
            until_s = at_s + seconds
            while (at_s := at_s + self._dice.expovariate(rate_per_s * times)) < until_s:
                await asyncio.sleep(max(0.0, at_s - time.monotonic()))
                kind = self._dice.choices(KINDS, [share for _, share, _ in KINDS])[0][0]
                tasks.append(asyncio.create_task(self._one(kind, phase)))
            at_s = until_s
        return list(await asyncio.gather(*tasks))

    async def _one(self, kind: str, phase: str) -> Told:
        self._published += 1
        token = str(self._published)
        heard = self._waiting[token] = asyncio.get_running_loop().create_future()
        begun_s = time.monotonic()
        await self._jetstream.publish_async(
            subjects.task(TENANT, kind),
            json.dumps({"text": f"Say something about {token}."}).encode(),
            headers={REPLY_TO: f"{self._inbox}.{token}"},
        )
        async with asyncio.timeout(END_TIMEOUT_S):
            end, at_s = await heard
        return Told(
            kind,
            phase,
            end.get("status", "rejected"),
            at_s - begun_s,
            end.get("error"),
            end.get("run_id"),
        )

    async def _heard(self, message: Msg) -> None:
        heard = self._waiting.pop(message.subject.rpartition(".")[2], None)
        if heard is None:
            self.repeats += 1  # an answer may be delivered twice
        else:
            heard.set_result((json.loads(message.data), time.monotonic()))


async def main(arguments: argparse.Namespace) -> None:
    """Start everything, play, print, and check the goals."""
    print(machine_text(), file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="hkt-") as folder:
        async with emulated(Path(folder), engines(arguments.replicas)) as found:
            urls = [url.removesuffix("/v1") for url in found[PROFILE["model"]]]
            config = Path(folder) / "hocket.yaml"
            replicas = [{"base_url": f"{url}/v1", "limit": MAX_RUNNING} for url in urls]
            backends = [
                replica | {"model": "llm", "pool": f"engine{number}"}
                for number, replica in enumerate(replicas)
            ]
            pool = {
                "max_concurrency": MAX_RUNNING,
                "reserved_fast": 0,
                "interactive_share": arguments.places_share,
            }
            routing = {
                "models": {"writer": {"backends": backends}},
                "pools": {backend["pool"]: pool for backend in backends},
            }
            config.write_text(yaml.safe_dump(routing))
            async with Platform(
                Path(folder) / "d",
                env={
                    "HOCKET_HANDLERS": "handlers",
                    "PYTHONPATH": HANDLERS,
                    "HOCKET_INTERACTIVE_SHARE": str(arguments.slots_share),
                },
                worker_types=("python", "llm"),
                config=config,
                log_level="warning",
            ) as platform:
                told, scaler = await _play(platform, urls, arguments)
                waited_for = await _waited_for(platform.database_url, told)
    report(told, scaler, waited_for, arguments)


async def _play(
    platform: Platform, urls: Sequence[str], arguments: argparse.Namespace
) -> tuple[list[Told], Autoscaler]:
    api = platform.api(TENANT)
    for kind, _, service in KINDS:
        await asyncio.to_thread(api.post, "/v1/pipelines", pipeline(kind, service))
    pid = platform.process("gateway").pid
    url = health_url(platform.data_dir / "run", pid) if pid else None
    scaler = Autoscaler(urls, f"{url}/metrics")
    client = await nats.connect(platform.nats_url, connect_timeout=CONNECT_TIMEOUT_S)
    load = Load(client, arguments.seed)
    await load.start()
    await load.warm_up()
    scaling = asyncio.create_task(scaler.run())
    try:
        told = await load.run(arguments.rate)
        print(f"{load.repeats} answers came twice", file=sys.stderr)
        return told, scaler
    finally:
        scaling.cancel()
        await client.close()


async def _waited_for(database_url: str, told: Sequence[Told]) -> dict[str, dict[str, float]]:
    """Return where interactive runs in the spike spent their time: ms by node and kind, averaged over
    all runs and over the slowest."""
    runs = sorted(
        (t for t in told if (t.kind, t.phase) == ("interactive", "spike") and t.run_id),
        key=lambda t: t.took_s,
    )
    slowest = runs[-max(1, int(len(runs) * SLOWEST)) :]
    connection = await asyncpg.connect(database_url, timeout=CONNECT_TIMEOUT_S)
    try:
        return {
            name: {
                f"{row['node']} {row['kind']}": round(float(row["ms"]) / len(some), 1)
                for row in await connection.fetch(PIECES, [t.run_id for t in some])
            }
            for name, some in (("all", runs), ("slowest", slowest))
        }
    finally:
        await connection.close()


# ---- the outcome ----------------------------------------------------------------------------


def report(
    told: Sequence[Told],
    scaler: Autoscaler,
    waited_for: Mapping[str, Mapping[str, float]],
    arguments: argparse.Namespace,
) -> None:
    """Print a table and a line of JSON; raise DoesNotHold if a goal is missed."""
    figures: dict[str, Any] = {}
    print(
        "| class | phase | runs | refused | p50 s | p95 s | max s |\n|---|---|---|---|---|---|---|"
    )
    for kind, _, _ in KINDS:
        for phase, _, _ in PHASES:
            some = [t for t in told if (t.kind, t.phase) == (kind, phase)]
            begun = sorted(
                t.took_s if t.status == "succeeded" else math.inf
                for t in some
                if t.status != "rejected"
            )
            found = {
                "runs": len(some),
                "refused": len(some) - len(begun),
                "p50_s": round(_place(begun, 0.5), 3),
                "p95_s": round(_place(begun, 0.95), 3),
                "max_s": round(_place(begun, 1.0), 3),
            }
            figures[f"{kind} {phase}"] = found
            print("| " + " | ".join([kind, phase, *(str(v) for v in found.values())]) + " |")
    refusals = Counter(
        f"{t.kind} {(t.error or {}).get('code')}" for t in told if t.status == "rejected"
    )
    ends = Counter(
        f"{t.kind} {t.status} {(t.error or {}).get('code', '')}".strip()
        for t in told
        if t.status != "rejected"
    )
    begun_s = scaler.asked[0][0]
    asked = [(round(at_s - begun_s, 1), count) for at_s, count in scaler.asked]
    settings = vars(arguments)
    found = {
        "phases": figures,
        "ends": ends,
        "refusals": refusals,
        "interactive_ms": waited_for,
        "engines_asked": asked,
    }
    print(json.dumps(settings | found).replace("Infinity", "null"), flush=True)
    for t in told:
        if t.status == "rejected" and not _is_structured(t.error):
            raise DoesNotHold(f"a refusal says too little: {t.error}")
        late = t.took_s >= MAY_BE_LATE_S.get(t.kind, math.inf) - STOPPED_WITHIN_S
        if t.status not in ("succeeded", "rejected") and not late:
            raise DoesNotHold(f"a run of `{t.kind}` that was begun is {t.status}: {t.error}")
    if not refusals:
        raise DoesNotHold("nothing was refused: the spike is none for this machine's engines")
    steady, spike = figures["interactive steady"]["p95_s"], figures["interactive spike"]["p95_s"]
    if steady > MOST_DISTURBED * figures["interactive steady"]["p50_s"]:
        raise DoesNotHold(f"the steady time was disturbed (p95 {steady} s): compare with another")
    if spike > MOST_WORSE * steady:
        raise DoesNotHold(f"interactive p95 is {spike / steady:.2f} times the steady one")
    print(f"interactive p95: {spike / steady:.2f} times the steady one", file=sys.stderr)


def _is_structured(error: Mapping[str, Any] | None) -> bool:
    if error is None or not error.get("code") or not error.get("error_class"):
        return False
    return {"retry_after_ms", "limited_by"} <= error.get("details", {}).keys()


def _place(ordered: Sequence[float], place: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * place))] if ordered else math.nan


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", type=float, default=4.0, help="runs a second in the steady time")
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--slots-share", type=float, default=0.125, help="of the workers' slots, for interactive"
    )
    parser.add_argument(
        "--places-share", type=float, default=0.125, help="of the engines' places, for interactive"
    )
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    try:
        uvloop.run(main(parser.parse_args()))
    except (DoesNotHold, NotStarted) as error:
        print(f"does not hold: {error}", file=sys.stderr)
        sys.exit(1)
