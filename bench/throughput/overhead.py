"""Measure what Hocket itself costs per run and step: throughput, latency, CPU and memory of the whole
product.

Uses its own platform in a temporary folder: embedded NATS and Postgres (fsync on), coordinator, one
separate worker process, gateway, ledger, REST API. The pipeline is applied over REST; its steps are
`python` nodes whose handler returns its input, 200 bytes of JSON. Workloads: `chain10` (10 steps in
a row), `agent6` (plan -> {retrieve, sql, classify} -> llm -> verify), `fan8` (split -> 8 parallel ->
join).

Tasks are published to JetStream with nats-py, each with its own inbox in `Hocket-Reply-To` and without
an idempotency key: the run's identity is the message's time and position in TASKS, so intake needs no
look-up in Postgres. A run's latency is measured from just before its publish to its RunFinished, which
the coordinator sends after the commit of its end. `--mode latency` runs one run at a time, `throughput`
keeps `--inflight` runs in flight; `idle` runs none and reports what the processes use meanwhile.
Warm-up runs come first and are not measured. With `--rounds` the measurement is repeated on the same
platform and the best round is printed (a shared machine only ever slows it down); every round is shown
on stderr, and so is the machine.

`cpu_s_per_1000_steps` is the user and system time of all processes of the platform, including NATS,
Postgres and their children, from /proc; the load generator (this process) is excluded. `rss_mb` is the
sum of their resident sets at the end, in MiB; pages that Postgres' processes share are counted once per
process. `per_hop_ms` is p50 divided by the number of steps on the longest path.

At the end Postgres is checked: every published run, including the warm-up, must be there as
succeeded with all its steps succeeded, and as many ends must have been heard, each with the output that
was put in. Otherwise no figure is printed and the exit code is 1.

    .venv/bin/python -m bench.throughput.overhead --workload agent6 --mode throughput \\
        --runs 5000 --inflight 64
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import nats
import structlog
import uvloop

from bench.support.load import (
    CONNECT_TIMEOUT_S,
    MAX_INFLIGHT,
    TENANT,
    WORKLOADS,
    Load,
    Round,
    RunsMissing,
    Workload,
    check,
    slots,
)
from bench.support.machine import MIB, children, cpu_s, machine_text, rss_bytes
from bench.support.places import HANDLERS
from hocket.cli.local.platform import Platform
from hocket.workers.configuration import MAX_CONCURRENCY

IDLE_FROM_S = 10.0
"""Delay after the last run, so that its aftermath is over."""
IDLE_S = 30.0
MIN_WARMUP_RUNS = 20


async def main(arguments: argparse.Namespace) -> None:
    """Start a platform, measure, check and print."""
    workload = WORKLOADS[arguments.workload]
    inflight = arguments.inflight if arguments.mode == "throughput" else 1
    print(machine_text(), file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="hkt-") as folder:
        platform = Platform(
            Path(folder),
            env={"HOCKET_HANDLERS": "handlers", "PYTHONPATH": HANDLERS},
            config=written(Path(folder), arguments.concurrency),
            log_level="warning",
        )
        async with platform:
            name = arguments.workload
            api = platform.api(TENANT)
            await asyncio.to_thread(api.post, "/v1/pipelines", workload.pipeline(name))
            client = await nats.connect(platform.nats_url, connect_timeout=CONNECT_TIMEOUT_S)
            try:
                load = Load(client, name)
                await load.start()
                warmup = max(MIN_WARMUP_RUNS, arguments.runs // 5)
                await load.run(warmup, inflight, os.getpid())
                if arguments.mode == "idle":
                    print(json.dumps(await idle(os.getpid())), flush=True)
                    return
                rounds: list[Round] = []
                for number in range(arguments.rounds):
                    rounds.append(await load.run(arguments.runs, inflight, os.getpid()))
                    _show(f"round {number + 1}", rounds[-1], workload)
                rss_mb = sum(rss_bytes(pid) for pid in children(os.getpid())) / MIB
            finally:
                await client.close()
            await check(platform.database_url, name, load.published, workload.steps)
    best = min(rounds, key=lambda r: r.took_s if arguments.mode == "throughput" else r.p50_ms)
    steps = arguments.runs * workload.steps
    result = {
        "system": "hocket",
        "workload": arguments.workload,
        "mode": arguments.mode,
        "runs": arguments.runs,
        "inflight": inflight,
        "runs_per_s": round(arguments.runs / best.took_s, 1),
        "steps_per_s": round(steps / best.took_s, 1),
        "p50_ms": round(best.p50_ms, 3),
        "p99_ms": round(best.p99_ms, 3),
        "per_hop_ms": round(best.p50_ms / workload.hops, 3),
        "cpu_s_per_1000_steps": round(best.cpu_s * 1000 / steps, 3),
        "rss_mb": round(rss_mb, 1),
    }
    print(json.dumps(result), flush=True)


async def idle(root: int) -> dict[str, Any]:
    """Return the CPU that the platform uses without any request, in per cent of a core."""
    await asyncio.sleep(IDLE_FROM_S)
    before = cpu_s(root)
    await asyncio.sleep(IDLE_S)
    used = {name: 100 * (s - before[name]) / IDLE_S for name, s in cpu_s(root).items()}
    shares = {name: round(share, 2) for name, share in sorted(used.items())}
    return {"mode": "idle", "percent_of_a_core": round(sum(used.values()), 2), "by_process": shares}


def written(folder: Path, concurrency: int | None) -> Path | None:
    """Write a configuration file if the default does not suffice, and return it."""
    if concurrency is None:
        return None
    config = folder / "hocket.yaml"
    config.write_text(json.dumps(slots(concurrency, "python")))
    return config


def _show(name: str, measured: Round, workload: Workload) -> None:
    runs = len(measured.latencies_ms)
    print(
        f"{name}: {runs / measured.took_s:.0f} runs/s, "
        f"{runs * workload.steps / measured.took_s:.0f} steps/s, p50 {measured.p50_ms:.2f} ms, "
        f"p99 {measured.p99_ms:.2f} ms, "
        f"{1000 * measured.cpu_s / (runs * workload.steps):.3f} CPU s per 1000 steps",
        file=sys.stderr,
    )
    shares = sorted(measured.cpu_s_by_process.items(), key=lambda item: -item[1])
    text = ", ".join(f"{n} {1e6 * s / (runs * workload.steps):.0f}" for n, s in shares if s)
    print(f"  CPU us per step: {text}", file=sys.stderr)


def _whole(low: int, high: int) -> Any:
    def parse(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"use {low} to {high}")
        return value

    return parse


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workload", choices=sorted(WORKLOADS), required=True)
    parser.add_argument("--mode", choices=("latency", "throughput", "idle"), required=True)
    parser.add_argument("--runs", type=_whole(1, 10_000_000), default=1_000)
    parser.add_argument("--inflight", type=_whole(1, MAX_INFLIGHT), default=64)
    parser.add_argument("--rounds", type=_whole(1, 100), default=1)
    parser.add_argument(
        "--concurrency",
        type=_whole(1, MAX_CONCURRENCY),
        help="steps that the worker runs at once, else its default",
    )
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    try:
        uvloop.run(main(parser.parse_args()))
    except (RunsMissing, TimeoutError) as error:
        print(f"no figure: {error or 'a run did not end in time'}", file=sys.stderr)
        sys.exit(1)
