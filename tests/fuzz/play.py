"""One play: a platform, healthy runs in quiet, healthy runs among forged messages, and the verdict.

Violations: `failed` (a run did not succeed, or never ended), `wrong` (its output is wrong), `late` (by
more than `late_ms` compared with the slowest in quiet), `told twice`, `booked` (the run's cost, or what
the ledger has for it, is not what the backend itself metered), `process ended`, `memory` (a process
grew by more than MAX_GROWTH_MB).
"""

import asyncio
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import asyncpg
import yaml

from fuzz.load import COST_USD, PIPELINES, PRICE_USD_PER_MTOK, SLO_MS, Load
from fuzz.messages import TENANT, Corpus, draw
from hocket.cli.local.platform import Platform
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.protocol import RawMessage
from support.forger import Forger
from support.places import PACKAGES

COORDINATORS = 2
PARTITIONS = 4
SETTLE_S = 60.0
QUIET_S = 5.0
MAX_GROWTH_MB = 400
READY_S = 120.0
BURST_S = 0.02
RUNS = "SELECT run_id, status, output::text AS output, spent_usd FROM hocket.run"
CALLS = (
    "SELECT coalesce(run_id, '') AS run_id, cost_usd, amended FROM hocket.usage WHERE kind = 'call'"
)


@dataclass
class Play:
    """The result of a play."""

    seed: int
    forged: int = 0
    refused: int = 0
    runs: int = 0
    violations: list[str] = field(default_factory=list)
    latencies_ms: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    """Median, 99th percentile and slowest, in quiet and among forged messages."""
    rss_mb: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Memory of each process before and after."""
    kinds: list[str] = field(default_factory=list)

    def report(self) -> Iterator[str]:
        """Yield the lines to print."""
        yield f"{self.forged} forged messages, {self.refused} refused by the server"
        yield f"heard: {', '.join(self.kinds)}"
        for when, (median, tail, slowest) in self.latencies_ms.items():
            yield f"{when}: p50 {median:.0f} ms, p99 {tail:.0f} ms, slowest {slowest:.0f} ms"
        for name, (before, after) in self.rss_mb.items():
            yield f"{name}: {before:.0f} MB, then {after:.0f} MB"
        for rule, count in Counter(one.partition(":")[0] for one in self.violations).items():
            yield f"{count} x {rule}"
        for violation in self.violations[:30]:
            yield f"VIOLATION {violation[:400]}"
        yield f"seed {self.seed}: {self.runs} runs, {len(self.violations)} violations"


async def play(
    seed: int,
    *,
    seconds: float,
    rate: float,
    runs_per_s: float,
    late_ms: float,
    quiet_s: float = QUIET_S,
    keep: bool = False,
) -> Play:
    """Write `rate` forged messages per second for some seconds, while runs are in progress."""
    folder = Path(tempfile.mkdtemp(prefix="hkt-"))
    config = folder / "hocket.yaml"
    backend = {
        "function": "fuzz.fuzz_model:answer",
        "prices": {
            "input_usd_per_mtok": PRICE_USD_PER_MTOK,
            "output_usd_per_mtok": PRICE_USD_PER_MTOK,
        },
    }
    config.write_text(yaml.safe_dump({"models": {"probe": {"backends": [backend]}}}))
    meter = folder / "calls"
    env = {
        "PYTHONPATH": PACKAGES,
        "HOCKET_PARTITIONS": str(PARTITIONS),
        "FUZZ_METER": str(meter),
    }
    played = Play(seed)
    try:
        async with Platform(
            folder / "d",
            coordinators=COORDINATORS,
            env=env,
            config=config,
            ready_timeout_s=READY_S,
        ) as platform:
            await _played(
                platform,
                played,
                meter,
                seconds=seconds,
                rate=rate,
                runs_per_s=runs_per_s,
                late_ms=late_ms,
                quiet_s=quiet_s,
            )
    finally:
        if keep or played.violations:
            print(f"the platform's folder with its logs is kept: {folder}", flush=True)
        else:
            await asyncio.to_thread(shutil.rmtree, folder)
    return played


async def _played(
    platform: Platform,
    played: Play,
    meter: Path,
    *,
    seconds: float,
    rate: float,
    runs_per_s: float,
    late_ms: float,
    quiet_s: float,
) -> None:
    api = platform.api(TENANT)
    for name, body in PIPELINES.items():
        document = {"pipeline": name, "slo_ms": SLO_MS, **body}
        await asyncio.to_thread(api.post, "/v1/pipelines", document)
    pids = {name: process.pid for name, process in platform.processes.items()}
    before = {name: _rss_mb(pid) for name, pid in pids.items()}
    quiet, loud = Load(platform.nats_url, f"q{played.seed}"), Load(platform.nats_url, "l")
    await quiet.open()
    await loud.open()
    corpus = Corpus()
    hearing = await _hear(platform.nats_url, corpus)
    await quiet.run(runs_per_s, quiet_s)
    await quiet.all_ended(SETTLE_S)
    stopping = asyncio.Event()
    forging = asyncio.create_task(_forge(platform, played, corpus, loud, rate, stopping))
    try:
        await loud.run(runs_per_s, seconds)
    finally:
        stopping.set()
        await forging
    await loud.all_ended(SETTLE_S)
    await hearing.close()
    played.kinds = corpus.kinds
    played.runs = len(quiet.sent) + len(loud.sent)
    slowest = _judge_times(played, "quiet", quiet, None)
    _judge_times(played, "among forged messages", loud, slowest + late_ms)
    for load in (quiet, loud):
        _judge_ends(played, load)
        await load.close()
    await _judge_books(played, platform, (quiet, loud), meter)
    for name, pid in pids.items():
        if platform.processes[name].pid != pid:
            played.violations.append(f"process ended: {name}")
            continue
        after = _rss_mb(pid)
        played.rss_mb[name] = (before[name], after)
        if after - before[name] > MAX_GROWTH_MB:
            played.violations.append(f"memory: {name} grew to {after:.0f} MB")


async def _hear(nats_url: str, corpus: Corpus) -> Bus:
    """Record the platform's internal messages."""
    bus = await Bus.connect(nats_url, name="fuzz")

    def heard(frame: RawMessage) -> None:
        corpus.hear(frame.subject, frame.head, frame.data)

    for subject in ("hocket.>", "$KV.>"):
        await bus.subscribe_raw(subject, heard)
    return bus


async def _forge(
    platform: Platform,
    played: Play,
    corpus: Corpus,
    load: Load,
    rate: float,
    stopping: asyncio.Event,
) -> None:
    dice = random.Random(played.seed)
    begun = time.monotonic()
    while not stopping.is_set():
        try:
            async with Forger(platform.nats_url) as forger:
                while not stopping.is_set():
                    corpus.runs.extend(list(load.sent)[-10:])
                    due = int((time.monotonic() - begun) * rate)
                    for _ in range(min(due - played.forged, 500)):
                        one = draw(dice, corpus, partitions=PARTITIONS)
                        forger.write(one.subject, one.body, one.head, one.reply)
                        played.forged += 1
                    before = forger.refused
                    await forger.flushed()
                    played.refused += forger.refused - before
                    with suppress(TimeoutError):
                        await asyncio.wait_for(stopping.wait(), BURST_S)
        except ConnectionError:  # the server closed the connection
            played.refused += 1


def _judge_times(played: Play, when: str, load: Load, bound_ms: float | None) -> float:
    took = {
        run_id: 1_000 * (at_s - load.sent[run_id].at_s) for run_id, (at_s, _) in load.ended.items()
    }
    sorted_ms = sorted(took.values()) or [0.0]
    played.latencies_ms[when] = (
        sorted_ms[len(sorted_ms) // 2],
        sorted_ms[int(0.99 * (len(sorted_ms) - 1))],
        sorted_ms[-1],
    )
    for run_id, took_ms in took.items():
        if bound_ms is not None and took_ms > bound_ms:
            played.violations.append(f"late: {run_id} took {took_ms:.0f} ms")
    return sorted_ms[-1]


def _judge_ends(played: Play, load: Load) -> None:
    for run_id, sent in load.sent.items():
        if run_id not in load.ended:
            played.violations.append(f"failed: {run_id} ({sent.pipeline}) has no end")
            continue
        _, end = load.ended[run_id]
        wanted = sent.n + 1 if sent.pipeline == "chain" else str(sent.n)
        output = end.get("output")
        if end.get("status") != "succeeded":
            played.violations.append(f"failed: {run_id} ({sent.pipeline}) {end}")
        elif output != wanted and not (isinstance(output, dict) and output.get("text") == wanted):
            played.violations.append(f"wrong: {run_id} gave {output!r} and not {wanted!r}")
    for run_id in load.doubled:
        played.violations.append(f"told twice: {run_id}")


async def _judge_books(
    played: Play, platform: Platform, loads: tuple[Load, ...], meter: Path
) -> None:
    """Compare what is booked on every run, and on no run, with what the backend metered."""
    connection = await asyncpg.connect(platform.database_url)
    try:
        calls = [one for load in loads for one in load.sent.values() if one.pipeline == "call"]
        booked: Counter[str] = Counter()
        for _ in range(60):
            rows = await connection.fetch(CALLS)
            booked = Counter(row["run_id"] for row in rows)
            if all(booked[one.run_id] for one in calls):
                break
            await asyncio.sleep(0.5)
        costs: Counter[str] = Counter()
        for row in rows:
            costs[row["run_id"]] += row["cost_usd"]
        spent = {row["run_id"]: row["spent_usd"] for row in await connection.fetch(RUNS)}
    finally:
        await connection.close()
    for load in loads:
        for sent in load.sent.values():
            wanted = Decimal(COST_USD) if sent.pipeline == "call" else Decimal(0)
            if spent.get(sent.run_id, wanted) != wanted:
                played.violations.append(f"booked: {sent.run_id} spent {spent[sent.run_id]}")
            if sent.pipeline == "call" and costs[sent.run_id] < wanted:
                played.violations.append(f"booked: {sent.run_id} cost {costs[sent.run_id]}")
    metered = Counter((await asyncio.to_thread(meter.read_text)).split("\n")[:-1])
    for run_id in {*costs, *metered}:
        wanted = metered[run_id] * Decimal(COST_USD)
        if costs[run_id] != wanted:
            played.violations.append(f"booked: {run_id!r} cost {costs[run_id]} and not {wanted}")


def _rss_mb(pid: int) -> float:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    return 0.0
