"""Measure what NATS, Postgres and minimal Python need for agent6's messages and rows, as a floor.

This is the lower bound for `overhead.py`. The servers, streams, durability, messages (number, path,
size) and rows are the same as Hocket's, but they are moved by two processes that decide nothing: no
deadlines, no gate, no validation, no retries, no state except a counter for each run. `coordinator`
pulls tasks, notes each in the log, dispatches steps, reads results, commits run and steps with the
coordinator's own statement, publishes the end and acknowledges the task. `worker` pulls steps and
returns their content; results that are ready together share a message. Rows are written once; Hocket
writes some of them twice. Both use the bus of `hocket.kit`, the fastest way to NATS that we know in
Python (9 us for a post with its acknowledgement).

Whatever Hocket needs beyond this is the cost of its decisions; it cannot be faster than this as long as
it has these streams and messages.

    .venv/bin/python -m bench.throughput.floor --mode throughput --runs 4000 --inflight 256 --rounds 3
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import nats
import structlog
import uvloop

from bench.support.load import BODY, CONNECT_TIMEOUT_S, TENANT, WORKLOADS, Load, Round, check
from bench.support.machine import machine_text
from bench.throughput.overhead import _show
from hocket.coordinator.core.run.state.columns import RUN_COLUMNS, STEP_COLUMNS, Row
from hocket.coordinator.intake.consumer import TaskPull
from hocket.coordinator.storage.store import Batch, Store
from hocket.kit.embedded import EmbeddedServers
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.protocol import RawMessage, header_of
from hocket.kit.nats.streams import ensure_streams
from hocket.kit.postgres.database import connect_pool
from hocket.kit.postgres.migrations import migrate
from hocket.kit.process.limits import gc_tuning
from hocket.schemas import subjects

PIPELINE = "agent6"
STAGES = (("plan",), ("retrieve", "sql", "classify"), ("llm",), ("verify",))
ACCEPTED_BYTES, STEP_BYTES, RESULT_BYTES, END_BYTES = 900, 1_000, 750, 900
"""Sizes of Hocket's messages for a body of 200 bytes."""
FACTS = json.dumps({"estimate": [1.0, 0.5, 3.0], "tail_ms": 4.0, "waited": ["ready", 0.25]})
STEP_SUBJECT = subjects.step("python", "standard")
LOG_SUBJECT = subjects.log(0, "floor")
DURABLE = "floor"
ASKED = 64
ROOM = 2_000
TEXT = json.dumps(BODY)
ROLES: dict[str, Callable[[str, str], Any]] = {}
_NS = 1_000_000_000


# ---- coordinator ----------------------------------------------------------------------------


class Coordinator:
    """Moves runs from stage to stage."""

    def __init__(self, bus: Bus, store: Store, epoch: int) -> None:
        self._bus = bus
        self._store = store
        self._epoch = epoch
        self._runs: dict[bytes, list[Any]] = {}
        self._ended: list[tuple[bytes, RawMessage]] = []
        self._some = asyncio.Event()
        self._number = 0

    def task(self, frame: RawMessage) -> None:
        """Record a task in the log."""
        self._number += 1
        run_id = b"run-%020d" % self._number
        self._runs[run_id] = [frame, 0, 0]
        body = b"A" + run_id + frame.data.ljust(ACCEPTED_BYTES)
        self._bus.publish_durable(LOG_SUBJECT, body, msg_id=f"{run_id.decode()}:accepted")

    def event(self, frame: RawMessage) -> None:
        """Apply a message of the log."""
        if not frame.data:
            return  # a heartbeat
        if frame.data[:1] == b"A":
            self._stage(frame.data[1:25])
            return
        for line in frame.data.split(b"\n"):
            run_id = line[1:25]
            run = self._runs[run_id]
            run[2] -= 1
            if not run[2]:
                run[1] += 1
                self._stage(run_id)

    def _stage(self, run_id: bytes) -> None:
        run = self._runs[run_id]
        if run[1] == len(STAGES):
            self._ended.append((run_id, run[0]))
            del self._runs[run_id]
            self._some.set()
            return
        run[2] = len(STAGES[run[1]])
        for name in STAGES[run[1]]:
            body = (b"S" + run_id + TEXT.encode()).ljust(STEP_BYTES)
            self._bus.publish_durable(STEP_SUBJECT, body, msg_id=f"{run_id.decode()}:{name}:1")

    async def commit(self) -> None:
        """Commit ended runs, as many as there are at a time, and publish their ends."""
        number = 0
        while True:
            await self._some.wait()
            self._some.clear()
            ended, self._ended = self._ended, []
            number += 1
            runs = [run_id.decode() for run_id, _ in ended]
            at_ms = time.time() * 1000
            batch = Batch(
                offsets={0: (self._epoch, number, "")},
                numbers={0: number},
                runs=[run_row(run_id, at_ms) for run_id in runs],
                steps=[step_row(run, name, at_ms) for run in runs for s in STAGES for name in s],
            )
            await self._store.commit(batch)
            for run_id, (_, frame) in zip(runs, ended, strict=True):
                end = {"run_id": run_id, "status": "succeeded", "output": BODY, "error": None}
                told = json.dumps(end).ljust(END_BYTES).encode()
                self._bus.publish_nowait(header_of(frame.head, b"Hocket-Reply-To"), told)
                event = subjects.event(TENANT, PIPELINE, "run-finished")
                self._bus.publish_durable(event, told, msg_id=f"{run_id}:finished")
                self._bus.ack(frame.reply)


def run_row(run_id: str, at_ms: float) -> Row:
    given = {
        "run_id": run_id,
        "partition": 0,
        "tenant": TENANT,
        "pipeline": PIPELINE,
        "version": 1,
        "status": "succeeded",
        "priority": "standard",
        "input": TEXT,
        "output": TEXT,
        "accepted_at": at_ms,
        "deadline_at": at_ms,
        "finished_at": at_ms,
        "spent_usd": 0,
        "degraded": False,
        "progress": False,
        "facts": FACTS,
        "critical_path": json.dumps([[name, 1.25, 0.5, 0.25] for (name, *_) in STAGES]),
    }
    return tuple(given.get(name) for name in RUN_COLUMNS)


def step_row(run_id: str, name: str, at_ms: float) -> Row:
    given = {
        "run_id": run_id,
        "key": name,
        "path": name,
        "type": "python",
        "role": "leaf",
        "state": "succeeded",
        "attempt": 1,
        "input": TEXT,
        "output": TEXT,
        "ready_at": at_ms,
        "dispatched_at": at_ms,
        "started_at": at_ms,
        "finished_at": at_ms,
        "deadline_at": at_ms,
        "slack_ms": 1.0,
        "worker": "host-1234",
        "facts": FACTS,
        "queued_at": at_ms,
        "took_ms": 0.1,
    }
    return tuple(given.get(column) for column in STEP_COLUMNS)


async def coordinate(nats_url: str, database_url: str) -> None:
    """Run the coordinator until killed."""
    bus = await Bus.connect(nats_url, name="floor coordinator")
    store = Store(await connect_pool(database_url, size=2, name="floor"))
    offset = await store.acquire(0, "floor")
    coordinator = Coordinator(bus, store, offset.epoch)
    inbox = bus.nc.new_inbox()
    await bus.subscribe_raw(inbox, coordinator.event)
    config = {
        "deliver_subject": inbox,
        "deliver_policy": "all",
        "ack_policy": "none",
        "max_deliver": 1,
        "filter_subject": subjects.log_of(0),
        "mem_storage": True,
    }
    request = {"stream_name": subjects.LOG, "config": config}
    await bus.api(f"CONSUMER.CREATE.{subjects.LOG}", request, timeout_ms=5_000)
    pull = TaskPull(bus, deliver=coordinator.task, room=lambda: ROOM)
    gc_tuning.settle()
    await asyncio.gather(pull.run(), coordinator.commit())


# ---- worker ---------------------------------------------------------------------------------


class Worker:
    """Returns each step's content as its result."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._inbox = bus.nc.new_inbox()
        self._asked = 0
        self._done: list[RawMessage] = []
        self._number = 0
        self._loop = asyncio.get_running_loop()

    async def start(self) -> None:
        await self._bus.subscribe_raw(self._inbox, self._step)
        self._ask()

    def _ask(self) -> None:
        request = {"batch": ASKED - self._asked, "expires": 600 * _NS}
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{subjects.STEPS}.{DURABLE}"
        self._bus.publish_nowait(subject, json.dumps(request).encode(), reply=self._inbox)
        self._asked = ASKED

    def _step(self, frame: RawMessage) -> None:
        if not frame.reply:
            return
        self._asked -= 1
        if self._asked <= ASKED // 2:
            self._ask()
        if not self._done:
            self._loop.call_soon(self._send)
        self._done.append(frame)

    def _send(self) -> None:
        frames, self._done = self._done, []
        self._number += 1
        body = b"\n".join([frame.data[:RESULT_BYTES] for frame in frames])
        stored = self._bus.publish_durable(LOG_SUBJECT, body, msg_id=f"floor-{self._number}")
        stored.add_done_callback(lambda _: [self._bus.ack(frame.reply) for frame in frames])


async def work(nats_url: str, _database_url: str) -> None:
    """Run the worker until killed."""
    bus = await Bus.connect(nats_url, name="floor worker")
    config = {
        "durable_name": DURABLE,
        "ack_policy": "explicit",
        "max_ack_pending": 1_000,
        "filter_subject": STEP_SUBJECT,
    }
    request = {"stream_name": subjects.STEPS, "config": config}
    name = f"{subjects.STEPS}.{DURABLE}"
    await bus.api(f"CONSUMER.DURABLE.CREATE.{name}", request, timeout_ms=5_000)
    worker = Worker(bus)
    await worker.start()
    gc_tuning.settle()
    await asyncio.Event().wait()


ROLES.update({"hocket.floor.coordinator": coordinate, "hocket.floor.worker": work})


# ---- the run --------------------------------------------------------------------------------


@asynccontextmanager
async def floor(folder: Path) -> AsyncIterator[EmbeddedServers]:
    """Yield servers with both processes running on them."""
    async with EmbeddedServers(folder) as servers:
        await migrate(servers.database_url)
        bus = await Bus.connect(servers.nats_url, name="floor")
        await ensure_streams(bus)
        await bus.close()
        running = [
            await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "bench.throughput.floor",
                "--role",
                role,
                servers.nats_url,
                servers.database_url,
            )
            for role in ROLES
        ]
        try:
            yield servers
        finally:
            for process in running:
                if process.returncode is None:
                    process.kill()
                await process.wait()


async def main(options: argparse.Namespace) -> None:
    """Start the floor, measure, check and print."""
    workload = WORKLOADS[PIPELINE]
    inflight = options.inflight if options.mode == "throughput" else 1
    print(machine_text(), file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="hkt-") as folder:
        async with floor(Path(folder)) as servers:
            client = await nats.connect(servers.nats_url, connect_timeout=CONNECT_TIMEOUT_S)
            try:
                load = Load(client, PIPELINE)
                await load.start()
                await load.run(max(20, options.runs // 5), inflight, os.getpid())
                rounds: list[Round] = []
                for number in range(options.rounds):
                    rounds.append(await load.run(options.runs, inflight, os.getpid()))
                    _show(f"round {number + 1}", rounds[-1], workload)
            finally:
                await client.close()
            await check(servers.database_url, PIPELINE, load.published, workload.steps)
    best = min(rounds, key=lambda r: r.took_s if options.mode == "throughput" else r.p50_ms)
    steps = options.runs * workload.steps
    result = {
        "system": "floor",
        "workload": PIPELINE,
        "mode": options.mode,
        "inflight": inflight,
        "steps_per_s": round(steps / best.took_s, 1),
        "p50_ms": round(best.p50_ms, 3),
        "p99_ms": round(best.p99_ms, 3),
        "cpu_s_per_1000_steps": round(best.cpu_s * 1000 / steps, 3),
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mode", choices=("throughput", "latency"), default="throughput")
    parser.add_argument("--runs", type=int, default=4_000)
    parser.add_argument("--inflight", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--role", nargs=3, help=argparse.SUPPRESS)
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    arguments = parser.parse_args()
    if arguments.role:
        role, *urls = arguments.role
        uvloop.run(ROLES[role](*urls))
    else:
        try:
            uvloop.run(main(arguments))
        except (asyncpg.PostgresError, TimeoutError, RuntimeError) as error:
            sys.exit(f"no figure: {error!r}")
