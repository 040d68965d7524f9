"""A rig for worker tests: streams, workers in this process, steps, and their results."""

import asyncio
import itertools
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from typing import Any

from nats.aio.msg import Msg
from prometheus_client import CollectorRegistry

from hocket.kit.blobs import BlobStore
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.streams import ensure_streams
from hocket.schemas import ids, subjects
from hocket.schemas.messages import (
    AttemptFinished,
    AttemptsFinished,
    Priority,
    StepCancelled,
    StepRequested,
    read_log,
)
from hocket.schemas.pipeline.handlers import AllowedHandlers
from hocket.workers.nodes.python import PythonNode
from hocket.workers.runtime.execution.context import Context
from hocket.workers.runtime.execution.metrics import Meters
from hocket.workers.runtime.execution.step_threads import StepThreads
from hocket.workers.runtime.execution.worker import Worker

WAIT_S = 60.0
PARTITION = 1


class Journal:
    """What the handlers in this process did; they are called with the name of their step's run."""

    def __init__(self) -> None:
        self.started: dict[str, int] = defaultdict(int)
        self.order: list[str] = []
        self.running = 0
        self.peak = 0
        self.release = asyncio.Event()
        self._changed = asyncio.Event()

    def begin(self, run_id: str) -> None:
        self.started[run_id] += 1
        self.order.append(run_id)
        self.running += 1
        self.peak = max(self.peak, self.running)
        self._changed.set()

    def end(self) -> None:
        self.running -= 1
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


class Rig:
    """The environment of a worker; `results` holds every logged result by attempt id."""

    def __init__(self, bus: Bus, nats_url: str) -> None:
        self.bus = bus
        self.nats_url = nats_url
        self.results: dict[str, list[AttemptFinished]] = defaultdict(list)
        self.result_at_s: dict[str, float] = {}
        self._changed = asyncio.Event()
        self._numbers = itertools.count(1)

    @classmethod
    async def open(cls, nats_url: str) -> "Rig":
        bus = await Bus.connect(nats_url, name="test-rig")
        await ensure_streams(bus)
        rig = cls(bus, nats_url)
        for kind in (AttemptFinished.kind, AttemptsFinished.kind):
            await bus.subscribe(f"hocket.log.*.{kind}", rig._on_result)
        return rig

    async def close(self) -> None:
        await self.bus.close()

    @asynccontextmanager
    async def worker(
        self,
        handlers: Mapping[str, Any] | None = None,
        *,
        modules: Sequence[str] = (),
        slots: int = 8,
        blobs: BlobStore | None = None,
        name: str = "worker-under-test",
        ack_wait_s: float = 30.0,
        **options: Any,
    ) -> AsyncIterator[Worker]:
        bus = await Bus.connect(self.nats_url, name=name)
        with closing(StepThreads(slots + 8)) as threads:
            handlers = handlers or {"python": PythonNode(threads, AllowedHandlers.of(modules))}
            async with running_worker(
                bus, handlers, slots=slots, blobs=blobs, name=name, ack_wait_s=ack_wait_s, **options
            ) as worker:
                yield worker

    def step(self, **changes: Any) -> StepRequested:
        number = next(self._numbers)
        now_ms = time.time() * 1000
        fields: dict[str, Any] = {
            "run_id": f"r{number:024d}",
            "tenant": "t",
            "pipeline": "p",
            "version": 1,
            "step": "s",
            "node": "s",
            "type": "python",
            "attempt": 1,
            "input": {},
            "config": {},
            "deadline_at_ms": now_ms + 600_000,
            "slack_ms": 30_000,
            "timeout_ms": 30_000,
            "priority": Priority.STANDARD,
            "partition": PARTITION,
            "epoch": 1,
        }
        return StepRequested.model_validate(fields | changes)

    async def send(
        self, *, lane: str = "normal", headers: dict[str, str] | None = None, **changes: Any
    ) -> StepRequested:
        step = self.step(**changes)
        await self.bus.publish(
            subjects.step(step.type, lane),
            step.model_dump_json().encode(),
            msg_id=attempt_id(step),
            headers=headers,
        )
        return step

    def cancel(self, step: StepRequested, reason: str = "lost the race") -> None:
        cancelled = StepCancelled(
            run_id=step.run_id, step=step.step, attempt=step.attempt, reason=reason
        )
        self.bus.publish_nowait(subjects.CANCEL_FILTER, cancelled.model_dump_json().encode())

    async def result(self, step: StepRequested, *, within_s: float = WAIT_S) -> AttemptFinished:
        name = attempt_id(step)
        await self.until(lambda: bool(self.results[name]), within_s=within_s)
        return self.results[name][0]

    async def until(self, condition: Callable[[], bool], *, within_s: float = WAIT_S) -> None:
        async with asyncio.timeout(within_s):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def until_stream(self, stream: str, condition: Callable[[int], bool]) -> None:
        """Wait until the number of messages in a stream satisfies a condition."""

        async def fits() -> bool:
            return condition((await self.bus.js.stream_info(stream)).state.messages)

        await eventually(fits)

    async def _on_result(self, msg: Msg) -> None:
        for finished in read_log(msg.subject.rsplit(".", 1)[1], msg.data):
            assert isinstance(finished, AttemptFinished)
            name = ids.attempt_id(finished.run_id, finished.step, finished.attempt)
            self.results[name].append(finished)
            self.result_at_s[name] = time.monotonic()
        self._changed.set()


@asynccontextmanager
async def running_worker(
    bus: Bus,
    handlers: Mapping[str, Any],
    *,
    slots: int = 8,
    name: str,
    registry: CollectorRegistry | None = None,
    **options: Any,
) -> AsyncIterator[Worker]:
    """Run a worker on its own bus, which is closed afterwards; `registry` receives its metrics."""
    worker = Worker(
        bus,
        handlers,
        dict.fromkeys(handlers, slots),
        name=name,
        meters=Meters(registry or CollectorRegistry()),
        **options,
    )
    await worker.start()
    try:
        yield worker
    finally:
        await worker.drain(0.0)
        await bus.close()


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    """Poll until a condition of the outside world holds that gives no signal."""
    async with asyncio.timeout(WAIT_S):
        while True:
            if await condition():
                return
            await asyncio.sleep(0.01)


def attempt_id(step: StepRequested) -> str:
    return ids.attempt_id(step.run_id, step.step, step.attempt)


def recorded(journal: Journal, handler: Callable[[Context], Any]) -> Callable[[Context], Any]:
    """Return a node function that records the calls of a handler in a journal."""

    async def run(context: Context) -> Any:
        journal.begin(context.step.run_id)
        try:
            return await handler(context)
        finally:
            journal.end()

    return run
