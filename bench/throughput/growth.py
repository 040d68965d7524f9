"""Measure what a run costs as it grows: a map of n items, a loop of n rounds, n nested sub-pipelines.

Uses its own platform in a temporary folder (embedded NATS and Postgres, coordinator, one worker, REST),
and runs each shape at a quarter, half and all of its size; steps do nothing. Prints one line of JSON
per run: its duration; per step, the bytes that NATS read from its connections, the bytes that Postgres
wrote to its WAL, and the coordinator's CPU time; and the peak growth of each process's memory (VmHWM,
which is reset before each run). What is linear per run is flat per step. At the end Postgres is asked
for the steps of every run; if some are missing, the exit code is 1. Linux only.

    .venv/bin/python -m bench.throughput.growth --items 10000 --rounds 1000 --depth 20
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import structlog

from bench.support.places import HANDLERS
from hocket.cli.local.platform import Platform
from hocket.cli.remote.api import Api

STEP = {"type": "python", "handler": "handlers:pass_along"}
SERVICES = ("coordinator", "worker", "ledger", "admin")
WAIT_S = 25.0
TICKS = os.sysconf("SC_CLK_TCK")
KIB = 1024


class RunsMissing(Exception):
    """A run did not end as it should."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A pipeline (or several that call each other, of which the last is run), and the number of its
    steps."""

    name: str
    n: int
    documents: tuple[dict[str, Any], ...]
    input: dict[str, Any]
    steps: int


def a_map(n: int) -> Shape:
    """A map over n items, all of which may run concurrently, and a step that needs the whole list."""
    mapped = {"map": {"over": "input.xs", "max_items": n, "concurrency": min(n, 10_000)}}
    nodes = {
        "items": STEP | mapped | {"with": {"x": "{{ item }}"}},
        "last": STEP | {"with": {"count": "{{ nodes.items.output | length }}"}},
    }
    document = {"pipeline": f"map-{n}", "nodes": nodes, "slo_ms": WAIT_S * 1000}
    return Shape("map", n, (document,), {"xs": list(range(n))}, n + 2)


def a_loop(n: int) -> Shape:
    """A loop of n rounds, each of which gets the output of the previous one."""
    loop = {"until": f"round >= {n}", "max_rounds": n}
    nodes = {"rounds": STEP | {"loop": loop, "with": {"count": "{{ round }}"}}}
    document = {"pipeline": f"loop-{n}", "nodes": nodes, "slo_ms": WAIT_S * 1000}
    return Shape("loop", n, (document,), {}, n + 1)


def a_nesting(n: int) -> Shape:
    """Pipelines that call one another, n levels deep."""
    leaf = {"pipeline": f"nest-{n}-0", "nodes": {"leaf": STEP | {"with": {"count": n}}}}
    callers = [
        {
            "pipeline": f"nest-{n}-{depth}",
            "nodes": {"inner": {"type": "pipeline", "pipeline": f"nest-{n}-{depth - 1}"}},
        }
        for depth in range(1, n + 1)
    ]
    return Shape("nesting", n, (leaf, *callers), {}, n + 1)


class Meter:
    """What the processes of a platform have used since `start`."""

    def __init__(self, platform: Platform, connection: asyncpg.Connection) -> None:
        self._connection = connection
        self._pids = {name: platform.process(name).pid for name in SERVICES}
        self._nats = platform.servers.nats.pid

    async def start(self) -> None:
        """Start counting."""
        for pid in self._pids.values():
            _forget_peak(pid)
        self._before_kib = {name: _status_kib(pid, "VmRSS") for name, pid in self._pids.items()}
        self._read, self._wal = _read_bytes(self._nats), await self._wal_bytes()
        self._cpu_s, self._began_s = _cpu_s(self._pids["coordinator"]), time.perf_counter()

    async def result(self, steps: int) -> dict[str, Any]:
        """Return the figures; those that should be flat are given per step."""
        took_s = time.perf_counter() - self._began_s
        grown = {
            name: (_status_kib(pid, "VmHWM") - self._before_kib[name]) / KIB
            for name, pid in self._pids.items()
        }
        cpu_s = _cpu_s(self._pids["coordinator"]) - self._cpu_s
        return {
            "took_s": round(took_s, 2),
            "bus_bytes_per_step": round((_read_bytes(self._nats) - self._read) / steps),
            "wal_bytes_per_step": round((await self._wal_bytes() - self._wal) / steps),
            "coordinator_cpu_ms_per_step": round(1000 * cpu_s / steps, 3),
            "grown_mib": {name: round(mib, 1) for name, mib in grown.items()},
        }

    async def _wal_bytes(self) -> int:
        return int(await self._connection.fetchval("SELECT pg_current_wal_insert_lsn() - '0/0'"))


async def main(arguments: argparse.Namespace) -> None:
    """Start a platform, run every shape and print."""
    with tempfile.TemporaryDirectory(prefix="hkt-") as folder:
        env = {"HOCKET_HANDLERS": "handlers", "PYTHONPATH": HANDLERS}
        async with Platform(
            Path(folder), env=env, services=SERVICES, worker_types=("python",), log_level="warning"
        ) as platform:
            connection = await asyncpg.connect(platform.database_url)
            try:
                api = platform.api()
                await measure(api, Meter(platform, connection), a_map(10))  # warm-up
                for shape in shapes(arguments):
                    result = await measure(api, Meter(platform, connection), shape)
                    await check(connection, shape)
                    print(json.dumps({"shape": shape.name, "n": shape.n} | result), flush=True)
            finally:
                await connection.close()


def shapes(arguments: argparse.Namespace) -> Iterator[Shape]:
    """Return every shape at every size, smallest first."""
    for make, n in (
        (a_map, arguments.items),
        (a_loop, arguments.rounds),
        (a_nesting, arguments.depth),
    ):
        for part in (4, 2, 1):
            yield make(max(1, n // part))


async def measure(api: Api, meter: Meter, shape: Shape) -> dict[str, Any]:
    """Apply a shape's pipelines, run the last one, and return what that cost."""
    for document in shape.documents:
        await asyncio.to_thread(api.post, "/v1/pipelines", document)
    await meter.start()
    body = {"pipeline": shape.documents[-1]["pipeline"], "input": shape.input}
    end = await asyncio.to_thread(api.post, "/v1/runs", body | {"wait_ms": WAIT_S * 1000})
    if end.get("status") != "succeeded" or end["output"]["count"] != shape.n:
        raise RunsMissing(f"{shape.name} of {shape.n} did not succeed: {end}")
    return await meter.result(shape.steps)


async def check(connection: asyncpg.Connection, shape: Shape) -> None:
    """Raise RunsMissing unless Postgres holds every step of a shape's run, all succeeded."""
    names = [document["pipeline"] for document in shape.documents]
    rows = await connection.fetch(_STEPS, names)
    found = {row["state"]: row["steps"] for row in rows}
    if found != {"succeeded": shape.steps}:
        raise RunsMissing(f"{shape.name} of {shape.n}: Postgres has {found} of {shape.steps} steps")


def _forget_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5", "ascii")


def _status_kib(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text("ascii").splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise AssertionError(f"/proc/{pid}/status has no {field}")


def _read_bytes(pid: int) -> int:
    """Return the bytes that a process has read, including from connections (rchar)."""
    return int(Path(f"/proc/{pid}/io").read_text("ascii").split()[1])


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


_STEPS = """
SELECT step.state, count(*) AS steps FROM hocket.step JOIN hocket.run USING (run_id)
WHERE pipeline = ANY($1::text[]) GROUP BY 1
"""

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=1_000)
    parser.add_argument("--depth", type=int, default=20)
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    try:
        asyncio.run(main(parser.parse_args()))
    except (RunsMissing, TimeoutError) as error:
        print(f"no figure: {error or 'a run did not end in time'}", file=sys.stderr)
        sys.exit(1)
