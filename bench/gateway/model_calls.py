"""Measure model calls per second through the whole product: pipeline, worker, gateway, an in-process
model that answers at once, and ledger.

Uses its own platform in a temporary folder (embedded NATS and Postgres with fsync on, everything else
as processes). Each run has `--width` parallel llm nodes; `--inflight` runs are kept in flight for
`--seconds` after a warm-up. With `--calls-per-step` the nodes are python nodes instead, whose handler
makes that many calls one after another, as an agent in a loop does. A figure is printed only if

- every published run succeeded with all its steps, and its caller was told so;
- the model's own count of calls (a file in shared memory) equals the ledger's rows and the calls of
  all steps; each row has a distinct call id, and each step has rows;
- the total cost of the rows is the number of calls times the price of one, to the last digit.

The load generator (this process) shares the cores. CPU time is that of all other processes, by kind.

    .venv/bin/python -m bench.gateway.model_calls --seconds 60
"""

import argparse
import asyncio
import json
import mmap
import os
import statistics
import sys
import tempfile
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import asyncpg
import nats
import structlog
import uvloop
import yaml
from nats.aio.client import Client

from bench.support.load import TENANT, RunsMissing, check, slots
from bench.support.machine import children, cpu_s, machine_text
from bench.support.places import HANDLERS
from bench.support.quick_model import CALLS_FILE, COUNTS, INPUT_TOKENS, OUTPUT_TOKENS
from hocket.cli.local.platform import Platform
from hocket.kit.nats.cloudevents import REPLY_TO
from hocket.schemas import subjects

PIPELINE = "calls"
INPUT_USD_PER_MTOK, OUTPUT_USD_PER_MTOK = Decimal("0.15"), Decimal("0.60")
GOAL_CALLS_PER_S = 2_250
WARM_UP_S = 5.0
RUN_TIMEOUT_S = 60.0
LEDGER_TIMEOUT_S = 60.0
CONNECT_TIMEOUT_S = 10.0


class Load:
    """Keeps a number of runs in flight until a given time."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._jetstream = client.jetstream(timeout=CONNECT_TIMEOUT_S)
        self._inbox = client.new_inbox()
        self._waiting: dict[str, asyncio.Future[bytes]] = {}
        self.published = 0
        self.latencies_ms: list[float] = []

    async def start(self) -> None:
        async def ended(message: Any) -> None:
            self._waiting.pop(message.subject.rpartition(".")[2]).set_result(message.data)

        await self._client.subscribe(f"{self._inbox}.*", cb=ended)

    async def until(self, moment_s: float, inflight: int) -> int:
        """Keep `inflight` runs going until `moment_s`, wait for the last to end, and return how many
        ended before it."""
        in_time = 0

        async def one_after_the_other() -> None:
            nonlocal in_time
            while time.perf_counter() < moment_s:
                await self._one()
                in_time += time.perf_counter() < moment_s

        await asyncio.gather(*(one_after_the_other() for _ in range(inflight)))
        return in_time

    async def _one(self) -> None:
        self.published += 1
        token = str(self.published)
        ended = self._waiting[token] = asyncio.get_running_loop().create_future()
        headers = {REPLY_TO: f"{self._inbox}.{token}"}
        began_s = time.perf_counter()
        subject = subjects.task(TENANT, PIPELINE)
        await self._jetstream.publish_async(subject, b'{"text":"How high?"}', headers=headers)
        async with asyncio.timeout(RUN_TIMEOUT_S):
            end = json.loads(await ended)
        if end["status"] != "succeeded":
            raise RunsMissing(f"a run ended {end['status']}: {end['error']}")
        self.latencies_ms.append((time.perf_counter() - began_s) * 1000)


def pipeline(width: int, calls_per_step: int | None) -> dict[str, Any]:
    node: dict[str, Any] = {
        "type": "llm",
        "model": "quick",
        "prompt": "{{ input.text }}",
        "with": {"text": "{{ input.text }}"},
        "max_tokens": 16,
    }
    if calls_per_step is not None:
        given = {"model": "quick", "text": "{{ input.text }}", "calls": calls_per_step}
        node = {"type": "python", "handler": "handlers:call_in_turn", "with": given}
    return {
        "pipeline": PIPELINE,
        "input": {"type": "object", "properties": {"text": {"type": "string"}}},
        "nodes": {f"ask{number}": node for number in range(width)},
    }


def configuration(concurrency: int | None) -> dict[str, Any]:
    prices = {
        "input_usd_per_mtok": str(INPUT_USD_PER_MTOK),
        "output_usd_per_mtok": str(OUTPUT_USD_PER_MTOK),
    }
    backend = {"function": "quick_model:answer", "limit": 4_096, "prices": prices}
    config: dict[str, Any] = {"models": {"quick": {"backends": [backend]}}}
    if concurrency is not None:
        config |= slots(concurrency, "llm", "python")
    return config


async def main(options: argparse.Namespace) -> None:
    """Start a platform, measure, check and print."""
    print(machine_text(), file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="hkt-") as folder:
        config, counter = written(Path(folder), options.concurrency)
        env = {"HOCKET_HANDLERS": "handlers", "PYTHONPATH": HANDLERS, CALLS_FILE: str(counter)}
        platform = Platform(
            Path(folder),
            env=env,
            config=config,
            log_level="warning",
            inline_gateway=options.inline_gateway,
            workers=options.workers,
        )
        async with platform:
            api = platform.api(TENANT)
            await asyncio.to_thread(
                api.post, "/v1/pipelines", pipeline(options.width, options.calls_per_step)
            )
            result = await measured(platform, options, counter)
    print(json.dumps(result, indent=2), flush=True)


def written(folder: Path, concurrency: int | None) -> tuple[Path, Path]:
    """Write the configuration and the model's count file into a folder."""
    config, counter = folder / "hocket.yaml", folder / "calls"
    config.write_text(yaml.safe_dump(configuration(concurrency)))
    counter.write_bytes(bytes(COUNTS.size))
    return config, counter


async def measured(
    platform: Platform, options: argparse.Namespace, counter: Path
) -> dict[str, Any]:
    client = await nats.connect(platform.nats_url, connect_timeout=CONNECT_TIMEOUT_S)
    calls_of_a_run = options.width * (options.calls_per_step or 1)
    try:
        load = Load(client)
        await load.start()
        await load.until(time.perf_counter() + WARM_UP_S, options.inflight)
        load.latencies_ms.clear()
        before, metered = cpu_s(os.getpid()), count_of(counter)
        runs = await load.until(time.perf_counter() + options.seconds, options.inflight)
        used = {name: after - before[name] for name, after in cpu_s(os.getpid()).items()}
        made = count_of(counter) - metered
        lag_s = await booked(platform.database_url, load.published * calls_of_a_run)
        rss_mib = {name: round(size) for name, size in rss(os.getpid()).items()}
    finally:
        await client.close()
    await check(platform.database_url, PIPELINE, load.published, options.width)
    steps = load.published * options.width
    calls = load.published * calls_of_a_run
    await check_ledger(platform.database_url, calls, steps, count_of(counter))
    latencies = sorted(load.latencies_ms)
    return {
        "calls_per_s": round(runs * calls_of_a_run / options.seconds),
        "goal_calls_per_s": GOAL_CALLS_PER_S,
        "seconds": options.seconds,
        "runs_in_flight": options.inflight,
        "steps_of_a_run": options.width,
        "calls_of_a_run": calls_of_a_run,
        "inline_gateway": options.inline_gateway,
        "workers": options.workers,
        "concurrency": options.concurrency,
        "calls_booked": calls,
        "run_p50_ms": round(statistics.median(latencies), 1),
        "run_p99_ms": round(latencies[int(len(latencies) * 0.99)], 1),
        "cpu_us_per_call": {name: round(1e6 * s / made) for name, s in used.items() if s > 0.01},
        "cores_used": round(sum(used.values()) / options.seconds, 2),
        "ledger_was_behind_s": round(lag_s, 2),
        "rss_mib": rss_mib,
    }


def count_of(counter: Path) -> int:
    """Return the number of calls that the model has counted."""
    with counter.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as shared:
        return sum(COUNTS.unpack_from(shared))


async def booked(database_url: str, calls: int) -> float:
    """Wait until the ledger has as many rows as calls were made, and return how long that took."""
    connection = await asyncpg.connect(database_url, timeout=CONNECT_TIMEOUT_S)
    began_s = time.perf_counter()
    try:
        while await connection.fetchval("SELECT count(*) FROM hocket.usage") < calls:
            if time.perf_counter() - began_s > LEDGER_TIMEOUT_S:
                raise RunsMissing(f"the ledger has fewer than {calls} calls")
            await asyncio.sleep(0.05)
    finally:
        await connection.close()
    return time.perf_counter() - began_s


async def check_ledger(database_url: str, calls: int, steps: int, metered: int) -> None:
    """Raise RunsMissing unless ledger, model and steps agree."""
    connection = await asyncpg.connect(database_url, timeout=CONNECT_TIMEOUT_S)
    try:
        row = await connection.fetchrow(_LEDGER)
    finally:
        await connection.close()
    assert row is not None
    million = INPUT_TOKENS * INPUT_USD_PER_MTOK + OUTPUT_TOKENS * OUTPUT_USD_PER_MTOK
    expected = (calls, calls, steps, calls * million / 1_000_000)
    if metered != calls or tuple(row) != expected:
        raise RunsMissing(
            f"{calls} calls of {steps} steps, {metered} metered; ledger {tuple(row)} not {expected}"
        )


def rss(root: int) -> dict[str, float]:
    """Return the resident memory (MiB) of the Python processes and the servers below a process."""
    sizes: dict[str, float] = {}
    for pid in children(root):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_text("utf-8").replace("\0", " ").split()
            pages = int(Path(f"/proc/{pid}/statm").read_text("utf-8").split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        name = next((word for word in words if word.startswith("hocket.")), None)
        if name is None and words and words[0].endswith("nats-server"):
            name = "nats-server"
        if name is not None:
            size = pages * os.sysconf("SC_PAGE_SIZE") / 1024**2
            sizes[name] = sizes.get(name, 0.0) + size
    return sizes


_LEDGER = """
SELECT count(*), count(DISTINCT call_id), count(DISTINCT (run_id, step)), sum(cost_usd)
FROM hocket.usage WHERE status = 'ok'
"""

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--inflight", type=int, default=48)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--calls-per-step", type=int, help="python nodes that call so often each")
    parser.add_argument(
        "--concurrency", type=int, help="steps of a type that the worker runs at once"
    )
    parser.add_argument(
        "--inline-gateway", action="store_true", help="the gateway in the worker's process"
    )
    parser.add_argument("--workers", type=int, default=1, help="worker processes")
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    try:
        uvloop.run(main(parser.parse_args()))
    except (RunsMissing, TimeoutError) as error:
        print(f"no figure: {error or 'a run did not end in time'}", file=sys.stderr)
        sys.exit(1)
