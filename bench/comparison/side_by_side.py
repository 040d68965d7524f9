"""Compare Hocket with Restate and with LangGraph's Postgres saver: agent6 on each, in alternating
rounds.

Hocket's platform is set up as in `overhead.py`. LangGraph keeps its checkpoints in a separate database
on the same Postgres. Restate uses its own server, whose executable `--restate-server` names (npm:
`@restatedev/restate-server-linux-x64`); without that option Restate is left out. Each of the two has
its own virtual environment (`bench/comparison/adapters/`), which is created in `--venvs` if it does not
exist.

All systems are started first and then measured in alternation for `--rounds` rounds, in two modes: one
run at a time, and `--inflight` runs at once. Medians of the rounds count. CPU time covers the
system's processes and Postgres. The load generator is excluded for Hocket and Restate; for LangGraph it
is the system itself. When Hocket's caller hears that a run has ended, the run and all its steps are in
Postgres.

    .venv/bin/python -m bench.comparison.side_by_side --restate-server PATH
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import asyncpg
import nats
import structlog
import uvloop

from bench.support.load import TENANT, WORKLOADS, Load, Round, check
from bench.support.machine import cpu_s, machine_text
from bench.support.places import BENCH, HANDLERS
from hocket.cli.local.platform import Platform

WORKLOAD = "agent6"
ADAPTERS = BENCH / "comparison" / "adapters"
PACKAGES = {
    "langgraph": (
        "langgraph==1.2.22",
        "langgraph-checkpoint-postgres==3.2.0",
        "psycopg[binary,pool]==3.3.9",
    ),
    "restate": ("restate-sdk[serde]==1.3.0", "hypercorn==0.18.0", "aiohttp==3.14.5"),
}
START_TIMEOUT_S = 120.0
ORDER_TIMEOUT_S = 300.0
MAX_ANSWER_BYTES = 64 * 1024 * 1024


class Adapter:
    """Another system, driven through its adapter process."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self._process = process

    @classmethod
    async def start(cls, name: str, venv: Path, arguments: Sequence[str]) -> "Adapter":
        """Start an adapter and wait until it is ready."""
        process = await asyncio.create_subprocess_exec(
            str(venv / "bin" / "python"),
            str(ADAPTERS / f"{name}_{WORKLOAD}.py"),
            *arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            limit=MAX_ANSWER_BYTES,
            start_new_session=True,
        )
        adapter = cls(name, process)
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                line = await adapter._line()
            assert line == b"ready", line
        except BaseException:
            await adapter.stop()
            raise
        return adapter

    async def run(self, runs: int, inflight: int) -> Round:
        """Measure one round."""
        before = self._cpu_s()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"runs": runs, "inflight": inflight}).encode() + b"\n")
        async with asyncio.timeout(ORDER_TIMEOUT_S):
            answer = json.loads(await self._line())
        used = {name: after - before.get(name, 0.0) for name, after in self._cpu_s().items()}
        return Round(answer["took_s"], answer["latencies_ms"], used)

    async def stop(self) -> None:
        """Kill the adapter and everything it started."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        await self._process.wait()

    async def _line(self) -> bytes:
        assert self._process.stdout is not None
        return (await self._process.stdout.readline()).strip()

    def _cpu_s(self) -> dict[str, float]:
        """Return the CPU time of the adapter's child processes. LangGraph is different: it runs in the
        adapter itself and uses our Postgres."""
        used = dict(cpu_s(self._process.pid))
        if self.name == "langgraph":
            mine = cpu_s(os.getpid())
            used = {"python": sum(cpu_of(self._process.pid)), "postgres": mine["postgres"]}
        return used


def cpu_of(pid: int) -> tuple[float, float]:
    """Return the user and system time of one process (Linux: /proc/PID/stat, fields 14 and 15)."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    ticks = os.sysconf("SC_CLK_TCK")
    return int(fields[11]) / ticks, int(fields[12]) / ticks


async def main(arguments: argparse.Namespace) -> None:
    """Start all systems, measure them in alternation, and print one line of JSON per system and mode."""
    print(machine_text(), file=sys.stderr)
    modes = {
        "latency": (arguments.latency_runs, 1),
        "throughput": (arguments.runs, arguments.inflight),
    }
    with tempfile.TemporaryDirectory(prefix="hkt-") as folder:
        platform = Platform(
            Path(folder) / "hocket",
            env={"HOCKET_HANDLERS": "handlers", "PYTHONPATH": HANDLERS},
            log_level="warning",
        )
        async with platform:
            api = platform.api(TENANT)
            spec = WORKLOADS[WORKLOAD].pipeline(WORKLOAD)
            await asyncio.to_thread(api.post, "/v1/pipelines", spec)
            client = await nats.connect(platform.nats_url)
            load = Load(client, WORKLOAD)
            await load.start()
            others: list[Adapter] = []
            try:
                others = await start_others(arguments, platform, Path(folder))
                measured = await in_turns(load, others, modes, arguments.rounds)
            finally:
                for other in others:
                    await other.stop()
                await client.close()
            steps = WORKLOADS[WORKLOAD].steps
            await check(platform.database_url, WORKLOAD, load.published, steps)
    for (system, mode), rounds in measured.items():
        print(json.dumps(figures(system, mode, rounds, modes[mode])), flush=True)
    for (system, mode), rounds in measured.items():
        if system != "hocket":
            print(json.dumps(ratios(system, mode, measured["hocket", mode], rounds)), flush=True)


async def in_turns(
    load: Load, others: list[Adapter], modes: dict[str, tuple[int, int]], rounds: int
) -> dict[tuple[str, str], list[Round]]:
    """Measure every system in every mode; within a mode the systems alternate, round by round."""
    measured: dict[tuple[str, str], list[Round]] = {}
    for mode, (runs, inflight) in modes.items():
        for number in range(-1, rounds):  # the first is the warm-up
            some = max(20, runs // 5) if number < 0 else runs
            for system in ("hocket", *(other.name for other in others)):
                if system == "hocket":
                    mine = await hocket_round(load, some, inflight)
                else:
                    mine = await next(o for o in others if o.name == system).run(some, inflight)
                if number >= 0:
                    measured.setdefault((system, mode), []).append(mine)
                    took = f"{some / mine.took_s:.0f} runs/s, p50 {mine.p50_ms:.2f} ms"
                    print(f"{system} {mode} round {number + 1}: {took}", file=sys.stderr)
    return measured


async def hocket_round(load: Load, runs: int, inflight: int) -> Round:
    """Measure Hocket; the CPU time that the idle systems use meanwhile is not counted."""
    measured = await load.run(runs, inflight, os.getpid())
    known = ("hocket.", "nats-server", "postgres")
    ours = {n: s for n, s in measured.cpu_s_by_process.items() if n.startswith(known)}
    return Round(measured.took_s, measured.latencies_ms, ours)


async def start_others(
    arguments: argparse.Namespace, platform: Platform, folder: Path
) -> list[Adapter]:
    """Start LangGraph's adapter, and Restate's if its server was given."""
    database_url = await new_database(platform.database_url, "langgraph")
    wanted: dict[str, list[str]] = {"langgraph": [database_url]}
    if arguments.restate_server is not None:
        (folder / "restate").mkdir()
        wanted["restate"] = [str(arguments.restate_server), str(folder / "restate")]
    started = []
    for name, given in wanted.items():
        venv = await asyncio.to_thread(made_venv, arguments.venvs, name)
        started.append(await Adapter.start(name, venv, given))
    return started


async def new_database(database_url: str, name: str) -> str:
    """Create a database beside Hocket's and return its URL."""
    connection = await asyncpg.connect(database_url)
    try:
        await connection.execute(f"CREATE DATABASE {name}")
        mine = await connection.fetchval("SELECT current_database()")
    finally:
        await connection.close()
    head, _, query = database_url.partition("?")
    assert head.endswith(f"/{mine}"), database_url.rpartition("@")[2]
    return head.removesuffix(mine) + name + (f"?{query}" if query else "")


def made_venv(folder: Path, name: str) -> Path:
    """Return an adapter's virtual environment, creating it if it does not exist."""
    venv = folder / name
    if not (venv / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "-q", *PACKAGES[name]]
        subprocess.run(pip, check=True)
    return venv


def figures(system: str, mode: str, rounds: list[Round], order: tuple[int, int]) -> dict[str, Any]:
    """Return the medians of a system's rounds in a mode, and what each round gave."""
    runs, inflight = order
    steps = runs * WORKLOADS[WORKLOAD].steps
    speeds = [steps / r.took_s for r in rounds]
    cpu_s = [1000 * r.cpu_s / steps for r in rounds]
    return {
        "system": system,
        "mode": mode,
        "inflight": inflight,
        "steps_per_s": round(median(speeds)),
        "p50_ms": round(median(r.p50_ms for r in rounds), 2),
        "p99_ms": round(median(r.p99_ms for r in rounds), 2),
        "cpu_s_per_1000_steps": round(median(cpu_s), 3),
        "steps_per_s_of_all_rounds": [round(speed) for speed in speeds],
        "p50_ms_of_all_rounds": [round(r.p50_ms, 2) for r in rounds],
        "p99_ms_of_all_rounds": [round(r.p99_ms, 2) for r in rounds],
    }


def ratios(other: str, mode: str, mine: list[Round], others: list[Round]) -> dict[str, Any]:
    """Return how many times as many steps/s Hocket did as another system, round by round."""
    times = [theirs.took_s / ours.took_s for ours, theirs in zip(mine, others, strict=True)]
    return {
        "times": other,
        "mode": mode,
        "median": round(median(times), 2),
        "of_all_rounds": [round(one, 2) for one in times],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5_000)
    parser.add_argument("--latency-runs", type=int, default=500)
    parser.add_argument("--inflight", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--restate-server", type=Path)
    parser.add_argument("--venvs", type=Path, default=BENCH / ".venvs")
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    uvloop.run(main(parser.parse_args()))
