"""The platform inside a world: coordinators, workers, a gateway, their servers, and a supervisor.

Each process runs what its real counterpart runs once it is connected. A supervisor restarts processes
that have ended, as `hocket up` and Kubernetes do.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

from hocket.coordinator.core.scheduling import lease_records
from hocket.coordinator.dispatch import dispatcher
from hocket.coordinator.intake import admission_queue
from hocket.coordinator.ownership import leases
from hocket.coordinator.service import build_coordinator
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.connection import durable_publisher
from hocket.kit.nats.kv.bucket import Bucket
from hocket.kit.nats.streams import ensure_streams, stream_configs
from hocket.kit.process.lifecycle import Health
from hocket.schemas import subjects
from hocket.schemas.capabilities import Capabilities
from hocket.workers.runtime.execution.worker import Worker
from simulation.engine.cache_tables import CacheTables, SimulatedCacheStore
from simulation.engine.database import Database, SimulatedPipelineStore, SimulatedStore
from simulation.engine.flow_tables import SimulatedFlowStore
from simulation.engine.nats_server import Server
from simulation.engine.swaps import swapped
from simulation.engine.world import Process, World
from simulation.platform.bundles import know_none
from simulation.platform.forgeries import Forger
from simulation.platform.handlers import Handlers, serve_calls
from simulation.platform.journal import Journal

URL = "nats://simulated:4222"
RESTART_S = (0.1, 1.0)
CAPABILITIES = Capabilities([b"the key of every simulated coordinator"])
Main = Callable[[Process], Awaitable[None]]


class Silence:
    """Metrics that nobody reads."""

    def __getattr__(self, name: str) -> "Silence":
        return self

    def __call__(self, *values: object, **named: object) -> "Silence":
        return self


@dataclass(frozen=True)
class Layout:
    """The size of a platform."""

    partitions: int = 2
    coordinators: int = 1
    workers: int = 2
    slots: int = 4
    ack_wait_s: float = 3.0
    window: int = 1_000
    bare: bool = True
    """Whether the streams do not exist yet when the coordinators start."""


def idling_slowly() -> AbstractContextManager[None]:
    """Make processes poll less often: otherwise most of a play would consist of that."""
    return swapped(
        (admission_queue, "TICK_S", 0.5),
        (admission_queue, "KEEP_ALIVE_EVERY", 16),
        (dispatcher, "TICK_S", 0.5),
        (leases, "TICK_S", 0.5),
        (leases, "BEAT_S", 0.65),
        (durable_publisher, "SWEEP_S", 1.0),
    )


class Platform:
    """All processes of a simulated platform."""

    def __init__(self, world: World, layout: Layout) -> None:
        self.world = world
        self.layout = layout
        self.server = Server(world)
        self.database = Database(world)
        self.cache = CacheTables(self.database)
        self.journal = Journal(world)
        self.forger = Forger(self.server, world.dice("forger"), partitions=layout.partitions)
        self.failures: list[tuple[str, BaseException]] = []
        """Processes that ended without being asked to."""
        self._stopping: dict[str, asyncio.Event] = {}
        self.dice = world.dice("platform")
        self._mains: dict[str, Main] = {}
        self.processes: dict[str, Process] = {}

    def start(self) -> None:
        if not self.layout.bare:
            for config in stream_configs(replicas=1):
                self.server.jetstream.make(config)
        for number in range(self.layout.coordinators):
            self.add(f"coordinator-{number + 1}", self._coordinate)
        for number in range(self.layout.workers):
            self.add(f"worker-{number + 1}", self._work, after_s=0.1)
        self.add("gateway", self._gate)

    def add(self, name: str, main: Main, *, after_s: float = 0.0) -> Process:
        process = self.processes[name] = self.world.process(name)
        self._mains[name] = main
        process.on_exit = lambda error: self._exited(process, error)
        self.world.after(after_s, self.launch, name)
        return process

    def launch(self, name: str) -> None:
        """Start a process unless it is running."""
        process = self.processes[name]
        if not process.alive:
            process.start(self._mains[name](process))  # type: ignore[arg-type]

    def kill(self, name: str) -> None:
        """Kill it (`kill -9`); the supervisor restarts it."""
        process = self.processes[name]
        if process.alive:
            self.world.note(name, "killed")
            process.kill()
            self.journal.died(process)
            self._again(name)

    def terminate(self, name: str) -> None:
        """Send SIGTERM: the process ends by itself, and the supervisor restarts it."""
        process = self.processes[name]
        if process.loop is not None and name in self._stopping:
            self.world.note(name, "terminated")
            process.loop.call_soon(self._stopping[name].set)

    def coordinators(self) -> list[str]:
        return [name for name in self.processes if name.startswith("coordinator-")]

    def workers(self) -> list[str]:
        return [name for name in self.processes if name.startswith("worker-")]

    def _exited(self, process: Process, error: BaseException | None) -> None:
        self.journal.died(process)
        if error is not None:
            self.failures.append((process.name, error))
        self._again(process.name)

    def _again(self, name: str) -> None:
        low, high = RESTART_S
        self.world.after(low + (high - low) * self.dice.random(), self.launch, name)

    # ---- what the processes run -------------------------------------------------------------

    async def _coordinate(self, process: Process) -> None:
        bus = await Bus.connect(URL, name=process.name, window=self.layout.window)
        if self.layout.bare:
            await ensure_streams(bus)
        coordinator = build_coordinator(
            bus,
            SimulatedStore(self.database, process),  # type: ignore[arg-type]
            SimulatedCacheStore(self.cache, self.database, process),  # type: ignore[arg-type]
            SimulatedPipelineStore(self.database, process),  # type: ignore[arg-type]
            Health(),
            Silence(),  # type: ignore[arg-type]
            leases := Bucket(
                bus,
                subjects.COORDINATORS,
                expected=partial(lease_records.expected, partitions=self.layout.partitions),
                capabilities=CAPABILITIES,
            ),
            name=process.name,
            partitions=self.layout.partitions,
            max_task_bytes=100_000,
            capabilities=CAPABILITIES,
            flow_store=SimulatedFlowStore(self.database, process),  # type: ignore[arg-type]
        )
        async with leases.watching():
            await coordinator.run(self._until_stopped(process))
        await bus.close()

    def _until_stopped(self, process: Process) -> asyncio.Event:
        stopping = self._stopping[process.name] = asyncio.Event()
        return stopping

    async def _work(self, process: Process) -> None:
        bus = await Bus.connect(URL, name=process.name)
        handlers = Handlers(self.journal, process).by_type()
        for node_type in self._left_to_others(process):
            del handlers[node_type]
        worker = Worker(
            bus,
            handlers,
            dict.fromkeys(handlers, self.layout.slots),
            name=f"{process.name}/{process.starts}",
            meters=Silence(),  # type: ignore[arg-type]
            ack_wait_s=self.layout.ack_wait_s,
        )
        know_none(worker, process)
        stopping = self._until_stopped(process)
        await worker.start()
        await stopping.wait()
        await worker.drain(1.0)
        await bus.close()

    def _left_to_others(self, process: Process) -> tuple[str, ...]:
        """Return the step types that a worker leaves to others: of two workers, only one plans, and
        only the other calls models."""
        if self.layout.workers == 1:
            return ()
        return ("llm",) if process.name == "worker-1" else ("planning",)

    async def _gate(self, process: Process) -> None:
        bus = await Bus.connect(URL, name=process.name)
        await serve_calls(process, self.journal, bus)
