"""Measure throughput with more coordinators and more workers on one machine.

Each pair of `--coordinators` and `--workers` gets a new platform (8 partitions) that runs agent6,
measured as in `overhead.py`. On a machine with few cores the rate does not show what several processes
could do on several machines; it shows whether another process costs more CPU for the same step, and
where. Therefore CPU per step is given with each rate, by process; `coordinator_share` is how busy each
coordinator was, in cores.

    .venv/bin/python -m bench.throughput.scaling --coordinators 1 2 4 --workers 1 2 4
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path

import nats
import structlog
import uvloop

from bench.support.load import TENANT, WORKLOADS, Load, Round, check
from bench.support.machine import machine_text
from bench.support.places import HANDLERS
from hocket.cli.local.platform import Platform

WORKLOAD = "agent6"
COORDINATOR = "hocket.coordinator"


async def main(arguments: argparse.Namespace) -> None:
    """Measure every pair and print a line of JSON for each."""
    print(machine_text(), file=sys.stderr)
    for coordinators in arguments.coordinators:
        for workers in arguments.workers:
            rounds = await measured(arguments, coordinators, workers)
            print(json.dumps(figures(arguments, coordinators, workers, rounds)), flush=True)


async def measured(arguments: argparse.Namespace, coordinators: int, workers: int) -> list[Round]:
    """Start a platform, measure its rounds, and check what Postgres holds."""
    with tempfile.TemporaryDirectory(prefix="hkt-") as folder:
        platform = Platform(
            Path(folder),
            coordinators=coordinators,
            workers=workers,
            env={"HOCKET_HANDLERS": "handlers", "PYTHONPATH": HANDLERS},
            log_level="warning",
        )
        async with platform:
            api = platform.api(TENANT)
            spec = WORKLOADS[WORKLOAD].pipeline(WORKLOAD)
            await asyncio.to_thread(api.post, "/v1/pipelines", spec)
            client = await nats.connect(platform.nats_url)
            try:
                load = Load(client, WORKLOAD)
                await load.start()
                await load.run(arguments.runs // 4, arguments.inflight, os.getpid())
                rounds = [
                    await load.run(arguments.runs, arguments.inflight, os.getpid())
                    for _ in range(arguments.rounds)
                ]
            finally:
                await client.close()
            steps = WORKLOADS[WORKLOAD].steps
            await check(platform.database_url, WORKLOAD, load.published, steps)
    return rounds


def figures(
    arguments: argparse.Namespace, coordinators: int, workers: int, rounds: list[Round]
) -> dict[str, object]:
    """Return the best round of a pair."""
    best = min(rounds, key=lambda r: r.took_s)
    steps = arguments.runs * WORKLOADS[WORKLOAD].steps
    us = {name: round(1e6 * s / steps) for name, s in best.cpu_s_by_process.items()}
    share = best.cpu_s_by_process.get(COORDINATOR, 0.0) / best.took_s / coordinators
    return {
        "coordinators": coordinators,
        "workers": workers,
        "inflight": arguments.inflight,
        "steps_per_s": round(steps / best.took_s),
        "cpu_s_per_1000_steps": round(1000 * best.cpu_s / steps, 3),
        "cpu_us_per_step": {name: used for name, used in sorted(us.items()) if used},
        "coordinator_share": round(share, 2),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--coordinators", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--runs", type=int, default=2_000)
    parser.add_argument("--inflight", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=2)
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    uvloop.run(main(parser.parse_args()))
