"""What Hocket itself costs per run and step: throughput, latency, CPU and memory of the whole product.

A platform of its own in a temporary folder: embedded NATS and Postgres (fsync on), coordinator, one
separate worker process, gateway, ledger, REST API. The pipeline is applied over REST; its steps are
`python` nodes whose handler returns its input, 200 bytes of JSON. Workloads: `chain10` (10 steps in
a row), `agent6` (plan -> {retrieve, sql, classify} -> llm -> verify), `fan8` (split -> 8 parallel ->
join).

Tasks are published to JetStream with nats-py, each with an inbox of its own in `Hocket-Reply-To`, and
without an idempotency key: the run's identity is the message's place and time in TASKS, so intake needs
no look-up in Postgres. A run's latency is from before its publish to its RunFinished, which the
coordinator sends after the commit of its end. `--mode latency` has one run at a time, `throughput` has
`--inflight` of them; `idle` has none, and tells what the processes use meanwhile. Warm-up runs come
first and are not measured. With `--rounds` the measurement is repeated on the same platform and the
best round is printed (a shared machine only ever slows it down); every round is shown on stderr, and
so is the machine.

`cpu_s_per_1000_steps` is user and system time of all processes of the platform, NATS, Postgres and what
they start included, from /proc; the load generator (this process) is left out. `rss_mb` is the sum of
their resident sets at the end, in MiB; pages that Postgres' processes share are counted once per
process. `per_hop_ms` is p50 divided by the steps on the longest path.

At the end Postgres is asked: every run that was published, warm-up included, must stand there as
succeeded with all its steps succeeded, and the ends heard must be as many, each with the output that
was put in. Otherwise no figure is printed and the exit code is 1.

    .venv/bin/python -m bench.throughput.overhead --workload agent6 --mode throughput \
        --runs 5000 --inflight 64
"""

import argparse
import asyncio
import json
import os
import platform as machine
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import nats
import structlog
import uvloop
from nats.aio.client import Client
from nats.aio.msg import Msg

from bench.support.places import HANDLERS
from hocket.cli.local.platform import Platform
from hocket.cli.remote.api import Api
from hocket.kit.nats.cloudevents import REPLY_TO
from hocket.schemas import subjects
from hocket.workers.configuration import MAX_CONCURRENCY

TENANT = "default"
TEXT = "{{ %s.text }}"
BODY = {"text": "x" * 189}
BODY_BYTES = 200
RUN_TIMEOUT_S = 60.0
CONNECT_TIMEOUT_S = 10.0
QUERY_TIMEOUT_S = 60.0
IDLE_FROM_S = 10.0
"""After the last run, so that what follows it is over."""
IDLE_S = 30.0
MAX_INFLIGHT = 10_000
SPEED_ROUNDS = 50
MIN_WARMUP_RUNS = 20
MIB = 1024 * 1024
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


class RunsMissing(Exception):
    """Something that was published is not there, or not as it should be."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A graph of no-op steps: the nodes that each node needs, and its longest path."""

    needs: Mapping[str, tuple[str, ...]]
    hops: int

    @property
    def steps(self) -> int:
        """Steps of one run."""
        return len(self.needs)

    def pipeline(self, name: str) -> dict[str, Any]:
        """Return its spec. Every step's input is the body again, taken from one of its parents."""
        return {
            "pipeline": name,
            "input": {
                "type": "object",
                "required": ["text"],
                "properties": {"text": {"type": "string"}},
            },
            "nodes": {
                node: {
                    "type": "python",
                    "handler": "handlers:pass_along",
                    "needs": list(parents),
                    "with": {"text": TEXT % (f"nodes.{parents[0]}.output" if parents else "input")},
                }
                for node, parents in self.needs.items()
            },
        }


def _chain(length: int) -> dict[str, tuple[str, ...]]:
    return {f"s{i}": (f"s{i - 1}",) if i else () for i in range(length)}


def _fan(width: int) -> dict[str, tuple[str, ...]]:
    branches = tuple(f"b{i}" for i in range(width))
    return {"split": (), **dict.fromkeys(branches, ("split",)), "join": branches}


_LOOK_UPS = ("retrieve", "sql", "classify")
WORKLOADS: Mapping[str, Workload] = {
    "chain10": Workload(_chain(10), hops=10),
    "agent6": Workload(
        {
            "plan": (),
            **dict.fromkeys(_LOOK_UPS, ("plan",)),
            "llm": _LOOK_UPS,
            "verify": ("llm",),
        },
        hops=4,
    ),
    "fan8": Workload(_fan(8), hops=3),
}


@dataclass(frozen=True, slots=True)
class Round:
    """One measurement."""

    took_s: float
    latencies_ms: list[float]
    cpu_s_by_process: Mapping[str, float]

    @property
    def cpu_s(self) -> float:
        return sum(self.cpu_s_by_process.values())

    @property
    def p50_ms(self) -> float:
        return statistics.median(self.latencies_ms)

    @property
    def p99_ms(self) -> float:
        return sorted(self.latencies_ms)[int(len(self.latencies_ms) * 0.99)]


class Load:
    """Publishes tasks and hears how their runs end."""

    def __init__(self, client: Client, pipeline: str) -> None:
        self._client = client
        self._jetstream = client.jetstream(
            timeout=CONNECT_TIMEOUT_S, publish_async_max_pending=2 * MAX_INFLIGHT
        )
        self._subject = subjects.task(TENANT, pipeline)
        self._body = json.dumps(BODY, separators=(",", ":")).encode()
        assert len(self._body) == BODY_BYTES, len(self._body)
        self._inbox = client.new_inbox()
        self._waiting: dict[str, asyncio.Future[bytes]] = {}
        self._heard: set[str] = set()
        self.published = 0

    async def start(self) -> None:
        """Listen to all inboxes."""
        await self._client.subscribe(f"{self._inbox}.*", cb=self._ended)

    async def run(self, runs: int, inflight: int, pids_of: int) -> Round:
        """Publish `runs` tasks, `inflight` at a time, and wait for the end of every one."""
        latencies_ms: list[float] = []
        left = iter(range(runs))

        async def one_after_the_other() -> None:
            for _ in left:
                latency_ms = await self._one()
                latencies_ms.append(latency_ms)

        cpu_before, began_s = cpu_s(pids_of), time.perf_counter()
        await asyncio.gather(*(one_after_the_other() for _ in range(inflight)))
        took_s = time.perf_counter() - began_s
        used = {name: after - cpu_before[name] for name, after in cpu_s(pids_of).items()}
        return Round(took_s, latencies_ms, used)

    async def _one(self) -> float:
        self.published += 1
        token = str(self.published)
        ended: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[token] = ended
        headers = {REPLY_TO: f"{self._inbox}.{token}"}
        began_s = time.perf_counter()
        stored = await self._jetstream.publish_async(self._subject, self._body, headers=headers)
        async with asyncio.timeout(RUN_TIMEOUT_S):
            data = await ended
            latency_ms = 1000 * (time.perf_counter() - began_s)
            await stored
        self._check(data)
        return latency_ms

    def _check(self, data: bytes) -> None:
        end = json.loads(data)
        if end["status"] != "succeeded" or end["output"] != BODY:
            raise RunsMissing(f"a run ended {end['status']}: {end['error']}")
        if end["run_id"] in self._heard:
            raise RunsMissing(f"run {end['run_id']} answered two tasks")
        self._heard.add(end["run_id"])

    async def _ended(self, message: Msg) -> None:
        ended = self._waiting.pop(message.subject.rpartition(".")[2])
        ended.set_result(message.data)


async def main(arguments: argparse.Namespace) -> None:
    """Start a platform, measure, check, print."""
    workload = WORKLOADS[arguments.workload]
    inflight = arguments.inflight if arguments.mode == "throughput" else 1
    print(machine_text(), file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="hkt-") as folder:
        path = os.pathsep.join(part for part in (HANDLERS, os.environ.get("PYTHONPATH")) if part)
        platform = Platform(
            Path(folder),
            env={"HOCKET_HANDLERS": "handlers", "PYTHONPATH": path},
            config=written(Path(folder), arguments.concurrency),
            log_level="warning",
        )
        async with platform:
            name = arguments.workload
            api = Api(platform.api_url, TENANT)
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
                rss_mb = sum(_rss_bytes(pid) for pid in children(os.getpid())) / MIB
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
    """Return what the platform uses while nobody asks anything of it, in per cent of a core."""
    await asyncio.sleep(IDLE_FROM_S)
    before = cpu_s(root)
    await asyncio.sleep(IDLE_S)
    used = {name: 100 * (s - before[name]) / IDLE_S for name, s in cpu_s(root).items()}
    shares = {name: round(share, 2) for name, share in sorted(used.items())}
    return {"mode": "idle", "percent_of_a_core": round(sum(used.values()), 2), "by_process": shares}


async def check(database_url: str, pipeline: str, runs: int, steps: int) -> None:
    """Raise RunsMissing unless Postgres holds every run, with every step, succeeded."""
    connection = await asyncpg.connect(
        database_url, timeout=CONNECT_TIMEOUT_S, command_timeout=QUERY_TIMEOUT_S
    )
    try:
        rows = await connection.fetch(_RUNS, TENANT, pipeline)
        found = {row["status"]: row["runs"] for row in rows}
        if found != {"succeeded": runs}:
            raise RunsMissing(f"Postgres has {found} of {runs} runs")
        rows = await connection.fetch(_STEPS, TENANT, pipeline)
        found = {row["state"]: row["steps"] for row in rows}
        if found != {"succeeded": runs * steps}:
            raise RunsMissing(f"Postgres has {found} of {runs * steps} steps")
        late = await connection.fetchval("SELECT count(*) FROM hocket.attempt")
        print(f"checked: {runs} runs, {runs * steps} steps, {late} late attempts", file=sys.stderr)
    finally:
        await connection.close()


def children(root: int) -> list[int]:
    """Return the processes below a process (Linux: /proc/PID/stat, field 4 is the parent)."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [root]
    for pid in found:
        found += parents.get(pid, [])
    return found[1:]


def cpu_s(root: int) -> Mapping[str, float]:
    """Return user and system time of all processes below a process, by what they are; that of those
    which ended stands with their parents (fields 14 to 17)."""
    used: defaultdict[str, float] = defaultdict(float)
    for pid in children(root):
        if fields := _stat(pid):
            used[_name(pid)] += sum(int(field) for field in fields[11:15]) / CLOCK_TICKS
    return used


def _name(pid: int) -> str:
    """Return `postgres`, `nats-server`, or the module that a Python process runs."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text("utf-8").replace("\0", " ").split()
    except (FileNotFoundError, ProcessLookupError):
        return "ended"
    modules = [word for word in words if word.startswith("hocket.")]
    return modules[0] if modules else Path(words[0]).name.rstrip(":") if words else "ended"


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the third (the state) on; none where it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _rss_bytes(pid: int) -> int:
    try:
        resident = Path(f"/proc/{pid}/statm").read_text("utf-8").split()[1]
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(resident) * os.sysconf("SC_PAGE_SIZE")


def written(folder: Path, concurrency: int | None) -> Path | None:
    """Write the configuration file, where the default does not do, and return it."""
    if concurrency is None:
        return None
    config = folder / "hocket.yaml"
    config.write_text(json.dumps(slots(concurrency, "python")))
    return config


def slots(concurrency: int, *types: str) -> dict[str, Any]:
    """Return the configuration of a worker that runs so many steps of each type at once."""
    return {"node_types": {name: {"concurrency": concurrency} for name in types}}


def machine_text() -> str:
    """Say what machine this is, and how busy."""
    cpus = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        if line.startswith("model name")
    ]
    memory_gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1024**3
    load = os.getloadavg()[0]
    batch = os.sched_getscheduler(0) == os.SCHED_BATCH
    return (
        f"machine: {os.cpu_count()} x {cpus[0] if cpus else machine.machine()}, "
        f"{memory_gib:.0f} GiB, Linux {machine.release()}, Python {machine.python_version()}; "
        f"load {load:.2f} before the start{', SCHED_BATCH' if batch else ''}; {speed_text()}"
    )


def speed_text() -> str:
    """Say how fast this machine runs Python at the moment: a guest of a crowded host is slower."""
    times_ms = []
    for _ in range(SPEED_ROUNDS):
        begin_s = time.perf_counter()
        sum(number * number for number in range(100_000))
        times_ms.append((time.perf_counter() - begin_s) * 1000)
    return f"100,000 squares take {min(times_ms):.1f} to {max(times_ms):.1f} ms"


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


_RUNS = """
SELECT status, count(*) AS runs FROM hocket.run WHERE tenant = $1 AND pipeline = $2 GROUP BY 1
"""
_STEPS = """
SELECT step.state, count(*) AS steps FROM hocket.step JOIN hocket.run USING (run_id)
WHERE tenant = $1 AND pipeline = $2 GROUP BY 1
"""

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
