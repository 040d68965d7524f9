"""Compare autoscalers on an hour of production traffic replayed in a minute: their cost and missed
deadlines.

The requests are those of Azure's trace of a chat service (19,366 in an hour; `--every` 2 takes every
second one), replayed sixty times as fast. A request takes as long as its tokens would (8,000 a second
read, 40 a second written); 60 % are due within two minutes and 40 % within ten, here 2 s and 10 s. Each
is a run of one step that sleeps; a worker process has `--slots` slots. Three schedules of workers are
played one after another on one platform:

- `clairvoyant`: computed beforehand with knowledge of all requests (`bench/support/scaling_plan.py`),
  from the start-up time of a worker and the overhead of a step as measured here. If such a schedule
  misses more than 2 % when it is played, it is computed again for steps that cost 5 % more, until one
  holds;
- `slots wanted`: what KEDA and the Kubernetes autoscaler make of `hocket_worker_slots_wanted`,
  which the coordinator reports;
- `queue length`: the same with the number of ready and handed-out steps,
  `hocket_steps_held + hocket_steps_out`.

Both autoscalers fill a worker's slots to 105 %, decide every 15 s (0.25 s here), ignore deviations up
to 10 %, at most double the workers at a time, and remove one worker every 30 s if fewer were wanted for
a minute. Workers are processes; one costs from its start until it has ended. The coordinator is
configured to expect that a worker takes two minutes to come (2 s). The first five minutes, and whatever
follows the hour, do not count. A deadline is met if the run succeeded before it, counted from just
before its task was published.

The exit code is 1 unless `slots wanted` meets 98 % of the deadlines at no more than 1.15 times the
clairvoyant schedule's cost.

    .venv/bin/python -m bench.scheduling.autoscaling
"""

import argparse
import asyncio
import json
import math
import statistics
import sys
import tempfile
import time
import urllib.request
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import asyncpg
import nats
import structlog
import uvloop
import yaml

from bench.support.machine import machine_text
from bench.support.places import HANDLERS
from bench.support.processes import BenchFailed
from bench.support.scaling_plan import (
    DEADLINE_S,
    LATER,
    SOON,
    SPEED,
    Fleet,
    Request,
    Schedule,
    clairvoyant,
    requests,
)
from hocket.cli.local.platform import Platform
from hocket.cli.local.processes import health_url
from hocket.kit.process.task_stop import stop_tasks
from hocket.schemas import subjects

TENANT = "default"
CLASSES = {SOON: "interactive", LATER: "batch"}
CLAIRVOYANT, WANTED, QUEUE = "clairvoyant", "slots wanted", "queue length"
METRICS = {
    WANTED: ("hocket_worker_slots_wanted",),
    QUEUE: ("hocket_steps_held", "hocket_steps_out"),
}
MAX_WORKERS = 16
SYNC_S = 15 / SPEED
TOLERANCE = 0.1
FILL = 1.05
"""Target for the slots wanted per slot of a worker. It exceeds 1 because worker counts are rounded up,
by half a worker on average."""
CALM_S = 60 / SPEED
DOWN_EVERY_S = 30 / SPEED
HORIZON_S = 120 / SPEED
SEGMENT_S = 150 / SPEED
UNCOUNTED_S = 300 / SPEED
KNOWN_RUNS = 600
"""Runs before all others, from which the coordinator learns a step's duration, and the bench the
overhead per slot."""
KNOWN_WORKERS = 8
SETTLED_S = 30.0
OVERHEAD_STEP = 0.05
"""Fraction of a step's time by which the assumed overhead is raised until a schedule holds when it is
played."""
MIN_MET = 0.98
MAX_COST = 1.15


class Workers:
    """The worker processes of a platform, some of which run; the one started last is stopped first."""

    def __init__(self, platform: Platform) -> None:
        names = [name for name in platform.processes if name.partition("-")[0] == "worker"]
        self._processes = [platform.processes[name] for name in names]
        self.count = len(names)
        self.paid: list[list[float]] = [[time.monotonic()] for _ in names]
        """By process: its start and end times, alternating."""
        self._changing: set[asyncio.Task[None]] = set()

    def scale(self, count: int) -> None:
        """Begin to start or stop processes until `count` of them run."""
        for number in range(self.count, count):
            self._begin(self._start(number))
        for number in range(self.count - 1, count - 1, -1):
            self._begin(self._stop(number))
        self.count = count

    async def settled(self) -> None:
        """Wait until all pending changes are done and the running processes are ready."""
        while self._changing:
            await asyncio.gather(*self._changing)
        for process in self._processes[: self.count]:
            await process.wait_ready()

    async def start_s(self) -> float:
        """Start one more worker and stop it again; return how long it took to become ready."""
        began, number = time.monotonic(), self.count
        await self._start(number)
        await self._processes[number].wait_ready()
        took_s = time.monotonic() - began
        await self._stop(number)
        return took_s

    def paid_s(self, from_s: float, to_s: float) -> float:
        """Return the worker-seconds between two times."""
        total_s = 0.0
        for moments in self.paid:
            for place in range(0, len(moments), 2):
                ended_s = moments[place + 1] if place + 1 < len(moments) else to_s
                total_s += max(0.0, min(ended_s, to_s) - max(moments[place], from_s))
        return total_s

    def _begin(self, change: Any) -> None:
        task = asyncio.create_task(change)
        self._changing.add(task)
        task.add_done_callback(self._changing.discard)

    async def _start(self, number: int) -> None:
        while len(self.paid[number]) % 2:  # noqa: ASYNC110 - it has not ended yet
            await asyncio.sleep(SYNC_S / 10)
        self.paid[number].append(time.monotonic())
        await self._processes[number].start()

    async def _stop(self, number: int) -> None:
        while not len(self.paid[number]) % 2:  # noqa: ASYNC110 - it has not begun yet
            await asyncio.sleep(SYNC_S / 10)
        await self._processes[number].stop()
        self.paid[number].append(time.monotonic())


@dataclass
class Autoscaler:
    """Imitates the Kubernetes autoscaler with a metric from KEDA, of which each worker accounts for
    `slots`."""

    workers: Workers
    slots: int
    metric: Callable[[], Awaitable[float]]
    _wanted: deque[tuple[float, int]] = field(default_factory=deque)
    _down_at_s: float = -math.inf

    async def run(self) -> None:
        while True:
            await asyncio.sleep(SYNC_S)
            self.decide(await self.metric(), time.monotonic())

    def decide(self, metric: float, now_s: float) -> None:
        """Scale according to one reading of the metric."""
        have = self.workers.count
        target = FILL * self.slots
        wanted = math.ceil(metric / target)
        if abs(metric / (target * have) - 1) <= TOLERANCE:
            wanted = have
        wanted = min(max(wanted, 1), MAX_WORKERS)
        self._wanted.append((now_s, wanted))
        while self._wanted[0][0] < now_s - CALM_S:
            self._wanted.popleft()
        if wanted > have:
            self.workers.scale(min(wanted, 2 * have))
            return
        calm = max(count for _, count in self._wanted) < have
        if calm and now_s - self._down_at_s >= DOWN_EVERY_S:
            self._down_at_s = now_s
            self.workers.scale(have - 1)


async def follow(schedule: Schedule, workers: Workers, start_s: float, began_s: float) -> None:
    """Scale workers as a schedule says, ahead of time by how long a worker takes to start."""
    while True:
        passed_s = time.monotonic() - began_s
        now, soon = schedule.at(passed_s), schedule.at(passed_s + start_s)
        if (wanted := max(now, soon)) != workers.count:
            workers.scale(wanted)
        await asyncio.sleep(SYNC_S / 5)


@dataclass
class Play:
    """The platform, and what is played on it."""

    platform: Platform
    workers: Workers
    slots: int
    asked: Sequence[Request]
    connection: asyncpg.Connection
    jetstream: Any
    plays: int = 0

    async def one(self, name: str, schedule: Schedule, start_s: float) -> dict[str, float]:
        """Play the requests under one scaler; return the share of deadlines met and the cost."""
        self.plays += 1
        known = f"{name} {self.plays}"
        await self._scaled_to(schedule.workers[0])
        began_s, wall_s = time.monotonic(), time.time()
        if name == CLAIRVOYANT:
            scaling = asyncio.create_task(follow(schedule, self.workers, start_s, began_s))
        else:
            scaler = Autoscaler(self.workers, self.slots, lambda: self._metric(METRICS[name]))
            scaling = asyncio.create_task(scaler.run())
        try:
            await self._publish(known, began_s)
        finally:
            await stop_tasks([scaling])
        ended_s = time.monotonic()
        await self._all_ended(known, len(self.asked))
        met = await self._met(known, wall_s)
        return met | {"worker_s": self.workers.paid_s(began_s + UNCOUNTED_S, ended_s)}

    async def learn(self) -> float:
        """Play more runs than there are slots; return the slot time (s) that a step uses beyond its own
        duration, until the next step has begun."""
        await self._scaled_to(KNOWN_WORKERS)
        some = self.asked[:KNOWN_RUNS]
        for number, one in enumerate(some):
            await self._post("known", number, replace(one, kind=LATER))
        await self._all_ended("known", len(some))
        rows = await self.connection.fetch(
            "SELECT extract(epoch FROM s.started_at)::float AS began,"
            " extract(epoch FROM s.finished_at)::float AS ended,"
            " (r.input->>'seconds')::float AS meant"
            " FROM hocket.step s JOIN hocket.run r USING (run_id)"
            " WHERE r.input->>'play' = 'known' ORDER BY s.started_at"
        )
        begun = rows[KNOWN_RUNS // 6 :]  # all slots are busy from here until the last step begins
        from_s, to_s = begun[0]["began"], begun[-1]["began"]
        busy_s = sum(max(0.0, min(row["ended"], to_s) - max(row["began"], from_s)) for row in rows)
        lost_s = (KNOWN_WORKERS * self.slots * (to_s - from_s) - busy_s) / len(begun)
        late_s = statistics.mean(row["ended"] - row["began"] - row["meant"] for row in rows)
        return float(max(0.0, lost_s) + late_s)

    async def _scaled_to(self, count: int) -> None:
        self.workers.scale(count)
        await self.workers.settled()

    async def _publish(self, name: str, began_s: float) -> None:
        for number, one in enumerate(self.asked):
            await asyncio.sleep(max(0.0, began_s + one.at_s - time.monotonic()))
            await self._post(name, number, one)

    async def _post(self, name: str, number: int, one: Request) -> None:
        body = {"play": name, "n": number, "seconds": one.takes_s}
        subject = subjects.task(TENANT, one.kind)
        await self.jetstream.publish_async(subject, json.dumps(body).encode())

    async def _all_ended(self, name: str, count: int) -> None:
        query = (
            "SELECT count(*) FROM hocket.run WHERE input->>'play' = $1 AND finished_at IS NOT NULL"
        )
        until = time.monotonic() + SETTLED_S
        while (ended := await self.connection.fetchval(query, name)) < count:
            if time.monotonic() > until:
                raise BenchFailed(f"{name}: {count - ended} of {count} runs have not ended")
            await asyncio.sleep(0.25)

    async def _met(self, name: str, wall_s: float) -> dict[str, float]:
        rows = await self.connection.fetch(
            "SELECT (input->>'n')::int AS n, status, extract(epoch FROM finished_at)::float AS ended"
            " FROM hocket.run WHERE input->>'play' = $1",
            name,
        )
        met: dict[str, list[bool]] = {SOON: [], LATER: []}
        for row in rows:
            one = self.asked[row["n"]]
            if one.at_s >= UNCOUNTED_S:
                in_time = row["ended"] <= wall_s + one.due_s
                met[one.kind].append(row["status"] == "succeeded" and in_time)
        both = met[SOON] + met[LATER]
        return {kind: statistics.mean(found) for kind, found in met.items()} | {
            "met": statistics.mean(both)
        }

    async def _metric(self, names: Sequence[str]) -> float:
        url = health_url(self.platform.data_dir / "run", self.platform.process("coordinator").pid)

        def read() -> str:
            with urllib.request.urlopen(f"{url}/metrics", timeout=5) as answer:
                return str(answer.read().decode())

        text = await asyncio.to_thread(read)
        wanted = {f'{name}{{type="python"}}' for name in names}
        values = (line.rpartition(" ") for line in text.splitlines())
        return sum(float(value) for name, _, value in values if name in wanted)


async def played(arguments: argparse.Namespace) -> dict[str, Any]:
    """Play all schedules; return the results."""
    asked = requests(arguments.every)
    with tempfile.TemporaryDirectory(prefix="hkt-") as folder:
        config = Path(folder) / "hocket.yaml"
        python = {"concurrency": arguments.slots, "modules": ["handlers"]}
        config.write_text(yaml.safe_dump({"node_types": {"python": python}}))
        async with Platform(
            Path(folder) / "d",
            services=("coordinator", "worker", "admin"),
            workers=MAX_WORKERS,
            worker_types=("python",),
            env={"PYTHONPATH": HANDLERS, "HOCKET_SCALING_HORIZON_S": f"{HORIZON_S:g}"},
            config=config,
            log_level="warning",
            ready_timeout_s=180,
        ) as platform:
            api = platform.api(TENANT)
            for kind in CLASSES:
                await asyncio.to_thread(api.post, "/v1/pipelines", _pipeline(kind))
            connection = await asyncpg.connect(platform.database_url)
            client = await nats.connect(platform.nats_url)
            jetstream = client.jetstream(publish_async_max_pending=10_000)
            workers = Workers(platform)
            play = Play(platform, workers, arguments.slots, asked, connection, jetstream)
            try:
                overhead_s = await play.learn()
                start_s = statistics.median([await workers.start_s() for _ in range(3)])
                fleet = Fleet(arguments.slots, overhead_s, start_s)
                found: dict[str, Any] = {"start_s": round(start_s, 2)}
                while True:
                    schedule = clairvoyant(asked, fleet, SEGMENT_S, 0)
                    found["overhead_ms"] = round(1_000 * fleet.overhead_s, 1)
                    print(json.dumps(found | {"schedule": schedule.workers}), file=sys.stderr)
                    found[CLAIRVOYANT] = await play.one(CLAIRVOYANT, schedule, start_s)
                    print(json.dumps(found[CLAIRVOYANT]), file=sys.stderr)
                    if found[CLAIRVOYANT]["met"] >= MIN_MET:
                        break
                    more_s = OVERHEAD_STEP * statistics.mean(one.takes_s for one in asked)
                    fleet = replace(fleet, overhead_s=fleet.overhead_s + more_s)
                for name in (WANTED, QUEUE):
                    found[name] = await play.one(name, schedule, start_s)
                    print(json.dumps(found[name]), file=sys.stderr)
                return found
            finally:
                await client.close()
                await connection.close()


def _pipeline(kind: str) -> Mapping[str, Any]:
    return {
        "pipeline": kind,
        "class": CLASSES[kind],
        "slo_ms": int(1_000 * DEADLINE_S[kind]),
        "on_overload": "admit",
        "nodes": {
            "answer": {
                "type": "python",
                "handler": "handlers:rest",
                "with": {"seconds": "{{ input.seconds }}"},
            }
        },
    }


def main(arguments: argparse.Namespace) -> None:
    print(machine_text(), file=sys.stderr)
    found = uvloop.run(played(arguments))
    base = found[CLAIRVOYANT]["worker_s"]
    print("| scaler | soon | later | all | worker-seconds | of the clairvoyant's |")
    print("|---|---|---|---|---|---|")
    for name in (CLAIRVOYANT, WANTED, QUEUE):
        one = found[name]
        one["cost"] = one["worker_s"] / base
        shares = " | ".join(f"{100 * one[what]:.1f} %" for what in (SOON, LATER, "met"))
        print(f"| {name} | {shares} | {one['worker_s']:.0f} | {one['cost']:.2f} |")
    print(json.dumps(vars(arguments) | found))
    ours = found[WANTED]
    if ours["met"] < MIN_MET or ours["cost"] > MAX_COST:
        raise BenchFailed(
            f"{100 * ours['met']:.1f} % of deadlines met (at least {100 * MIN_MET:g} %) at "
            f"{ours['cost']:.2f} times the clairvoyant's cost (at most {MAX_COST:g})"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--every", type=int, default=2, help="take each so-many-th request")
    parser.add_argument("--slots", type=int, default=2, help="of a worker process")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    try:
        main(parser.parse_args())
    except BenchFailed as error:
        print(f"does not hold: {error}", file=sys.stderr)
        sys.exit(1)
