"""Compare Hocket with the floor of commit 5d479bd, in alternating rounds of one measurement.

The floor (that commit's bench module `floor`, with the kit and the store of that time) is extracted
from the repository's history into a temporary folder, and both platforms run side by side: while one is
measured, the other is idle. Each round loads the floor and then Hocket, and the next round the other
way round, so that a busy machine affects both. The floor moves messages along the workload's graph,
stage by stage.

For each workload: steps/s and CPU time at `--inflight` runs, p50 and p99 of one run at a time, all as
the median over the rounds, and the ratio of Hocket to the floor. At the end the Postgres of both must
hold every run.

    .venv/bin/python -m bench.throughput.against_floor --workloads agent6 chain10 fan8
"""

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import structlog
import uvloop

from bench.support import sides
from bench.support.load import WORKLOADS, Workload, check
from bench.support.machine import machine_text
from bench.support.places import ROOT
from bench.support.sides import Side

COMMIT = "5d479bd"
MIN_WARMUP_RUNS = 200
# written into the folder of the old commit: its floor, with the stages of a workload
OLD_FLOOR = """
import asyncio, json, os, sys, tempfile, types
from pathlib import Path
import structlog, uvloop
# named by code that the floor never runs
frozen = type("Map", (dict,), {"__hash__": object.__hash__})
sys.modules["immutables"] = types.SimpleNamespace(Map=frozen)
import floor
structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
floor.__file__ = __file__
floor.PIPELINE = os.environ["FLOOR_PIPELINE"]
floor.STAGES = tuple(map(tuple, json.loads(os.environ["FLOOR_STAGES"])))
async def serve(folder):
    async with floor.floor(Path(folder)) as servers:
        print(json.dumps([servers.nats_url, servers.database_url]), flush=True)
        await asyncio.to_thread(sys.stdin.read)
if sys.argv[1:2] == ["--role"]:
    role, *urls = sys.argv[2:]
    uvloop.run(floor.ROLES[role](*urls))
else:
    with tempfile.TemporaryDirectory(prefix="hkt-") as folder:
        uvloop.run(serve(folder))
"""


async def main(options: argparse.Namespace) -> None:
    """Measure each workload and print its figures."""
    flags = sysconfig.get_config_var("CONFIG_ARGS") or "unknown"
    print(machine_text(), f"Python built with {flags}", sep="\n", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="hkt-floor-") as folder:
        _take_out(Path(folder))
        for name in options.workloads:
            print(json.dumps(await measured(name, Path(folder), options)), flush=True)


async def measured(name: str, old: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of a workload."""
    workload = WORKLOADS[name]
    async with AsyncExitStack() as stack:
        both = [
            await stack.enter_async_context(sides.opened(kind, command, env, name))
            for kind, (command, env) in _commands(name, workload, old).items()
        ]
        for side in both:
            await side.load.run(MIN_WARMUP_RUNS, min(options.inflight, 64), side.pid)
        for number in range(options.rounds):
            for side in both if number % 2 == 0 else both[::-1]:
                side.loaded.append(await side.load.run(options.runs, options.inflight, side.pid))
                side.alone.append(await side.load.run(options.alone, 1, side.pid))
                _show(side, workload, number)
        for side in both:
            await check(side.database_url, name, side.load.published, workload.steps)
        floor, hocket = (_figures(side, workload) for side in both)
    ratios = {key: round(hocket[key] / floor[key], 3) for key in floor}
    return {"workload": name, "floor": floor, "hocket": hocket, "hocket_of_floor": ratios}


def _figures(side: Side, workload: Workload) -> dict[str, float]:
    steps_per_s, cpu = [], []
    for one in side.loaded:
        steps = len(one.latencies_ms) * workload.steps
        steps_per_s.append(steps / one.took_s)
        cpu.append(1_000 * one.cpu_s / steps)
    return {
        "steps_per_s": round(statistics.median(steps_per_s), 1),
        "cpu_s_per_1000_steps": round(statistics.median(cpu), 4),
        "p50_ms_alone": round(statistics.median(one.p50_ms for one in side.alone), 3),
        "p99_ms_alone": round(statistics.median(one.p99_ms for one in side.alone), 3),
    }


def _show(side: Side, workload: Workload, number: int) -> None:
    loaded, alone = side.loaded[-1], side.alone[-1]
    steps = len(loaded.latencies_ms) * workload.steps
    parts = sorted(loaded.cpu_s_by_process.items(), key=lambda item: -item[1])
    text = ", ".join(f"{name} {1e6 * used / steps:.0f}" for name, used in parts if used)
    print(
        f"{number + 1} {side.name}: {steps / loaded.took_s:.0f} steps/s, "
        f"{1_000 * loaded.cpu_s / steps:.3f} CPU s per 1000 steps, "
        f"alone p50 {alone.p50_ms:.2f} ms, p99 {alone.p99_ms:.2f} ms; CPU us per step: {text}",
        file=sys.stderr,
        flush=True,
    )


# ---- the platforms --------------------------------------------------------------------------


def _take_out(folder: Path) -> None:
    """Extract the floor of COMMIT and the code that it depends on into a folder."""
    parts = ["bench", "schemas", "services", "workers", "migrations"]
    archive = subprocess.run(
        ["git", "archive", COMMIT, *parts], cwd=ROOT, check=True, capture_output=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        # a patch release of Python 3.11 brought the filter
        tar.extraction_filter = getattr(tarfile, "data_filter", None)
        tar.extractall(folder)
    (folder / "bench" / "old_floor.py").write_text(OLD_FLOOR)


def _commands(name: str, workload: Workload, old: Path) -> dict[str, tuple[list[str], Any]]:
    paths = [old / part for part in ("bench", "schemas", "services", "workers")]
    floor = {
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "FLOOR_PIPELINE": name,
        "FLOOR_STAGES": json.dumps(_stages(workload)),
    }
    return {
        "floor": ([str(old / "bench" / "old_floor.py")], floor),
        "hocket": (sides.of_hocket(name), {}),
    }


def _stages(workload: Workload) -> list[list[str]]:
    """Return a workload's nodes in stages, each of which depends only on earlier stages."""
    left, done, stages = dict(workload.needs), set[str](), list[list[str]]()
    while left:
        stages.append([node for node, needs in left.items() if done.issuperset(needs)])
        done.update(stages[-1])
        left = {node: needs for node, needs in left.items() if node not in done}
    return stages


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workloads", nargs="+", choices=list(WORKLOADS), default=list(WORKLOADS))
    parser.add_argument("--runs", type=int, default=2_000)
    parser.add_argument("--alone", type=int, default=150)
    parser.add_argument("--inflight", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    uvloop.run(main(parser.parse_args()))
