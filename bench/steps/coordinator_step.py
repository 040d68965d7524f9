"""Measure what a step costs in a coordinator without its servers: intake, core, gate and storage.

The measurement covers everything from the bytes that NATS sends to the bytes sent to it and the columns
for Postgres. A coordinator's own components are wired up as its service does it, with capabilities, on
a NATS and a Postgres that this process simulates: tasks and results arrive as bytes of the protocol,
posts are acknowledged, and rows to be written are only converted to columns. The cost of the simulation
is not counted. A real coordinator additionally has sockets, asyncpg, and everything that is triggered
by the clock (`overhead.py`).

Printed are the CPU microseconds per step, the best and the median of all rounds; the machine is shown
on stderr. `--profile` writes the cProfile output of one more round.

    .venv/bin/python -m bench.steps.coordinator_step --rounds 9 --runs 500
"""

import argparse
import asyncio
import cProfile
import gc
import json
import logging
import statistics
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, cast

import asyncpg
import structlog
import uvloop
from prometheus_client import CollectorRegistry

from bench.support.load import BODY, TENANT, WORKLOADS, Workload
from bench.support.machine import machine_text
from hocket.coordinator.core.scheduling.backlog import Backlog
from hocket.coordinator.core.scheduling.gate import Gate
from hocket.coordinator.dispatch.bundle_sizes import BundleSizes
from hocket.coordinator.dispatch.dispatcher import Dispatcher
from hocket.coordinator.dispatch.step_publisher import StepPublisher
from hocket.coordinator.dispatch.workload import Load
from hocket.coordinator.intake import consumer
from hocket.coordinator.metrics import CoordinatorMetrics
from hocket.coordinator.partition.events import log_reader
from hocket.coordinator.partition.runs.change_publisher import ChangePublisher
from hocket.coordinator.partition.shared_services import SharedServices
from hocket.coordinator.partition.takeover import assembled
from hocket.coordinator.service import build_intake
from hocket.coordinator.storage.cache_store import CacheStore
from hocket.coordinator.storage.commit_batch import Batch
from hocket.coordinator.storage.committer import Committer
from hocket.coordinator.storage.pipelines.duration_stats import Durations
from hocket.coordinator.storage.pipelines.pipeline_catalog import Catalog
from hocket.coordinator.storage.pipelines.pipeline_store import PipelineStore
from hocket.coordinator.storage.pipelines.release import Release
from hocket.coordinator.storage.step_cache import StepCache
from hocket.coordinator.storage.store import Offset, Store, _fences, _statement
from hocket.kit.access.grant_book import GrantBook
from hocket.kit.logs.log_limits import Reporting
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.connection.durable_publisher import DurablePublisher
from hocket.kit.nats.connection.socket_writer import SocketWriter
from hocket.kit.nats.protocol import RawMessage, Wire
from hocket.kit.process.lifecycle import Health
from hocket.schemas import ids
from hocket.schemas.capabilities import Capabilities

INFLIGHT = 256
SLOTS = 64
MAX_RESULTS = 10
"""Maximum number of results in one message."""
MESSAGES_A_READ = 8
ANNOUNCED_EVERY_MS = 1_000.0
NEVER_S = 1e6
MOST_IDLE = 20_000
"""After this many consecutive reads with nothing to read, the runs will never end."""
EVENT = "hocket.event."


class RunsStalled(Exception):
    """Runs that were begun do not end."""


class Stopwatch:
    """This process's CPU time, excluding the time between `plays` and `played`."""

    def __init__(self) -> None:
        self._played_ns = 0
        self._began_ns = 0

    def plays(self) -> None:
        self._began_ns = time.process_time_ns()

    def played(self) -> None:
        self._played_ns += time.process_time_ns() - self._began_ns

    def read_us(self) -> float:
        return (time.process_time_ns() - self._played_ns) / 1_000


class PlayedStore(Store):
    """A stand-in for Postgres, as far as a coordinator uses it here; it stores nothing."""

    def __init__(self) -> None:
        super().__init__(cast(asyncpg.Pool, None))
        self.rows = 0

    async def commit(self, batch: Batch, max_chars: int = 0) -> None:
        del max_chars
        _statement(_fences(batch), batch, {})
        self.rows += len(batch.runs) + len(batch.steps)
        await asyncio.sleep(0)


class PlayedPipelines(PipelineStore):
    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = json.dumps(spec)

    async def spec(self, tenant: str, pipeline: str, version: int) -> str:
        del tenant, pipeline, version
        return self._spec

    async def release(self, tenant: str, pipeline: str) -> Release:
        del tenant, pipeline
        return Release(newest=1)

    async def durations(self, tenant: str, pipeline: str) -> dict[str, Any]:
        del tenant, pipeline
        return {}


class PlayedClient:
    """A stand-in for nats-py's client, as far as a bus uses it, and for the socket under it."""

    is_connected, is_closed, max_payload = True, False, 1 << 20
    _flush_queue = None

    def __init__(self) -> None:
        self.wire = Wire(self)
        self.written: list[bytes] = []
        self.inboxes: dict[str, int] = {}
        self._pending: list[bytes] = []
        self._pending_data_size = 0
        self._transport = self._io_writer = self.transport = self

    @property
    def pending_data_size(self) -> int:
        return self._pending_data_size

    def jetstream(self, **_: object) -> None:
        return None

    def new_inbox(self) -> str:
        return f"_INBOX.abcdefghijklmnopqrstuv.{len(self.inboxes)}"

    async def subscribe(self, subject: str, **_: object) -> Any:
        self.inboxes[subject] = len(self.inboxes) + 1
        return argparse.Namespace(_id=self.inboxes[subject])

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def writelines(self, commands: list[bytes]) -> None:
        self.written += commands

    def ask(self, subject: str, *_: object) -> asyncio.Future[RawMessage]:
        """Answer the bus's request at once."""
        answer: dict[str, Any] = {}
        if "STREAM.INFO" in subject:
            answer = {"ts": "2020-01-01T00:00:00Z", "state": {"first_seq": 1, "last_seq": 0}}
        asked = asyncio.get_running_loop().create_future()
        asked.set_result(RawMessage("", "", json.dumps(answer).encode(), b""))
        return asked


class Played:
    """Simulates NATS and the workers: acknowledges posts, keeps the log, delivers tasks, runs steps."""

    def __init__(self, client: PlayedClient, pipeline: str, acks: str, at_ms: float) -> None:
        self.client = client
        self.ended = 0
        self.to_begin = 0
        self._pipeline = pipeline
        self._acks = acks
        self._at_ms = at_ms
        self._tasks = self._log = self._asked = self._under_way = 0
        self._log_inbox = self._task_inbox = ""
        self._steps: deque[dict[str, Any]] = deque()
        self._task = (
            f"hocket.task.{TENANT}.{pipeline}",
            b"NATS/1.0\r\nHocket-Reply-To: _INBOX.caller.%d\r\n\r\n",
            json.dumps(BODY, separators=(",", ":")).encode(),
        )

    def listen(self) -> None:
        """Remember the inboxes for the log and for tasks; the one for batches stays unused."""
        self._log_inbox, self._task_inbox, _ = list(self.client.inboxes)[-3:]

    def read(self) -> list[bytes]:
        """Return the server's responses to what was written, as one item per read."""
        self._at_ms += 2.0
        found: list[bytes] = []
        written, self.client.written = self.client.written, []
        for command in written:
            self._take(command, found)
        found += self._results()
        found += self._new_tasks()
        return [
            b"".join(found[first : first + MESSAGES_A_READ])
            for first in range(0, len(found), MESSAGES_A_READ)
        ]

    def _take(self, command: bytes, found: list[bytes]) -> None:
        line, _, rest = command.partition(b"\r\n")
        words = line.decode().split(" ")
        subject, reply = words[1], words[2]
        headed = int(words[3]) if words[0] == "HPUB" else 0
        head, data = rest[:headed], rest[headed:-2]
        if subject.startswith("$JS.API.CONSUMER.MSG.NEXT"):
            self._asked += json.loads(data)["batch"]
        elif subject.startswith("hocket.log."):
            found.append(self._stored(subject, head, data))
        elif subject.startswith("hocket.step."):
            self._steps.append(json.loads(data))
        elif subject.startswith(EVENT) and subject.endswith(".run-finished"):
            self.ended += 1
            self._under_way -= 1
        if reply.startswith(self._acks):
            found.append(self._message(reply, "", b"", b'{"stream":"STEPS", "seq":%d}' % self._log))

    def _results(self) -> Iterator[bytes]:
        while self._steps:
            some = [self._steps.popleft() for _ in range(min(MAX_RESULTS, len(self._steps)))]
            results = b",".join([self._result(step) for step in some])
            self._at_ms += 0.3
            head = b"NATS/1.0\r\nNats-Msg-Id: _INBOX.worker.%d\r\n\r\n" % self._log
            kind = "finished" if len(some) == 1 else "results"
            body = results if len(some) == 1 else b'{"results":[%b]}' % results
            yield self._stored(f"hocket.log.{some[0]['partition']}.{kind}", head, body)

    def _result(self, step: dict[str, Any]) -> bytes:
        told = {
            "run_id": step["run_id"],
            "step": step["step"],
            "attempt": step["attempt"],
            "output": step["input"],
            "started_at_ms": self._at_ms - 1.1,
            "finished_at_ms": self._at_ms - 1.0,
            "queued_at_ms": self._at_ms - 2.0,
            "delivery": 1,
            "worker": "host-1234",
            "dispatched_at_ms": step["dispatched_at_ms"],
            "input_digest": ids.input_digest(step["input"]),
            "capability": step["capability"],
        }
        return json.dumps(told, separators=(",", ":")).encode()

    def _new_tasks(self) -> Iterator[bytes]:
        while self.to_begin and self._asked and self._under_way < INFLIGHT:
            self.to_begin -= 1
            self._asked -= 1
            self._under_way += 1
            self._tasks += 1
            place = f"{self._tasks}.{self._tasks}.{int(self._at_ms * 1e6)}.0"
            subject, head, body = self._task
            reply = f"$JS.ACK.TASKS.intake.1.{place}"
            yield self._message(subject, reply, head % self._tasks, body, inbox=self._task_inbox)

    def _stored(self, subject: str, head: bytes, data: bytes) -> bytes:
        self._log += 1
        place = f"{self._log}.{self._log}.{int(self._at_ms * 1e6)}.0"
        reply = f"$JS.ACK.LOG.log-0-abcdefghijklmnopqrstuv.1.{place}"
        return self._message(subject, reply, head, data, inbox=self._log_inbox)

    def _message(
        self, subject: str, reply: str, head: bytes, data: bytes, inbox: str | None = None
    ) -> bytes:
        sid = self.client.inboxes[inbox if inbox is not None else self._acks + ".*"]
        words = f"{subject} {sid} {reply} " if reply else f"{subject} {sid} "
        sizes = f"{len(head)} {len(head) + len(data)}" if head else f"{len(data)}"
        verb = "HMSG" if head else "MSG"
        return f"{verb} {words}{sizes}\r\n".encode() + head + data + b"\r\n"


class Rig:
    """A coordinator's components with one partition, and the simulated servers."""

    def __init__(self, name: str, workload: Workload) -> None:
        self.watch = Stopwatch()
        self._tasks: list[asyncio.Task[Any]] = []
        self._client = client = PlayedClient()
        self._now_ms = time.time() * 1_000
        writer = SocketWriter(cast(Any, client), prompt=False)
        publisher = DurablePublisher(cast(Any, client), writer, Reporting(), window=16_384)
        connection = argparse.Namespace(
            client=client,
            identity=None,
            checks=[],
            on_reconnect=[],
            losses=0,
            reports=Reporting(),
        )
        self._publisher = publisher
        self._bus = bus = Bus(cast(Any, connection), writer, publisher, cast(Any, client))
        metrics = CoordinatorMetrics(CollectorRegistry())
        capabilities = Capabilities([b"x" * 32])
        self._store = store = PlayedStore()
        durations = Durations(PlayedPipelines(workload.pipeline(name)))
        catalog = Catalog(durations._store, durations)
        health = cast(Health, argparse.Namespace(report=lambda *args, **named: None))
        self._committer = Committer(store, health, metrics, ChangePublisher(bus).committed)
        self._gate = Gate(None)
        load = Load(Backlog(None), self._gate)
        sizes = BundleSizes()
        steps = StepPublisher(bus, GrantBook(), sizes, capabilities=capabilities)
        dispatcher = Dispatcher(bus, metrics, self._gate, load, steps, sizes, partitions=1)
        services = SharedServices(
            partitions=1,
            bus=bus,
            store=store,
            catalog=catalog,
            durations=durations,
            committer=self._committer,
            step_cache=StepCache(
                bus, CacheStore(cast(Any, None)), metrics, partitions=1, capabilities=capabilities
            ),
            dispatcher=dispatcher,
            load=load,
            metrics=metrics,
            capabilities=capabilities,
        )
        dispatcher.took(0)
        self._dispatcher = dispatcher
        self._partition = assembled(0, services, offset=Offset(1, 0, ""))
        self._intake = build_intake(
            bus,
            store,
            catalog,
            health,
            metrics,
            durations,
            load,
            partitions=1,
            max_task_bytes=512 * 1024,
            capabilities=capabilities,
        )
        self.played = Played(client, name, publisher.inbox, self._now_ms)

    async def open(self) -> None:
        """Start serving."""
        acks = await self._client.subscribe(self._publisher.inbox + ".*")
        self._client.wire.direct[acks._id] = self._publisher.acknowledged
        self._gate.types.announced("w1", {"python": SLOTS}, time.monotonic() * 1_000)
        for work in (self._partition.read(), self._committer.run(), self._intake.run()):
            self._tasks.append(asyncio.create_task(cast(Any, work)))
            for _ in range(20):  # lets each subscription be made
                await asyncio.sleep(0)
        self.played.listen()

    async def run(self, runs: int) -> float:
        """Play `runs` runs; return the CPU time in microseconds."""
        played, watch = self.played, self.watch
        played.to_begin, done = runs, played.ended + runs
        began_us, idle = watch.read_us(), 0
        while played.ended < done:
            watch.plays()
            reads = played.read()
            watch.played()
            idle = 0 if reads else idle + 1
            if idle > MOST_IDLE:
                raise RunsStalled(f"{done - played.ended} of {runs} runs")
            for chunk in reads:
                await self._client.wire.parse(chunk)
                await asyncio.sleep(0)
            self._tick()
            await asyncio.sleep(0 if reads else 0.001)
        return watch.read_us() - began_us

    def _tick(self) -> None:
        now_ms = time.monotonic() * 1_000
        if now_ms - self._now_ms > ANNOUNCED_EVERY_MS or self._now_ms > now_ms:
            self._now_ms = now_ms
            self._gate.types.announced("w1", {"python": SLOTS}, now_ms)
            self._gate.tick(now_ms)
            self._dispatcher.release()
            self._partition.upkeep()

    async def close(self) -> None:
        """Stop serving."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def measured(name: str, options: argparse.Namespace) -> dict[str, object]:
    """Return the figures of a workload."""
    workload = WORKLOADS[name]
    rig = Rig(name, workload)
    await rig.open()
    steps = options.runs * workload.steps
    await rig.run(options.runs)
    gc.collect()
    gc.freeze()
    took = [await rig.run(options.runs) / steps for _ in range(options.rounds)]
    if options.profile:
        await _profiled(lambda: rig.run(options.runs), options.profile)
    await rig.close()
    return {
        "workload": name,
        "steps": steps,
        "us": {"best": round(min(took), 1), "median": round(statistics.median(took), 1)},
    }


async def _profiled(work: Callable[[], Awaitable[float]], path: str) -> None:
    profile = cProfile.Profile(time.process_time)
    profile.enable()
    await work()
    profile.disable()
    profile.dump_stats(path)


async def main(options: argparse.Namespace) -> None:
    """Measure each workload, and print."""
    print(machine_text(), file=sys.stderr)
    for name in options.workloads:
        print(json.dumps(await measured(name, options)), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workloads", nargs="+", choices=list(WORKLOADS), default=["agent6"])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--profile", help="a file for one more round's profile")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    for reader in (log_reader, consumer):
        reader.SILENCE_S = NEVER_S  # a simulated server sends no heartbeats
    uvloop.run(main(parser.parse_args()))
