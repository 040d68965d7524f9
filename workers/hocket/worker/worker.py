"""`Worker`: node types of somebody's own, and the way to run them."""

import asyncio
import os
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, TypeVar

import structlog
from nats.js.errors import NotFoundError
from prometheus_client import CollectorRegistry

from hocket.kit.blob_limits import LimitedBlobs
from hocket.kit.blobs import FileBlobs
from hocket.kit.nats.bus import Bus
from hocket.schemas.subjects import DEFAULT_QUEUE, QUEUE, TOKEN, pool
from hocket.worker.connection import place_of
from hocket.worker.errors import NodeTypeInvalid
from hocket.worker.node_type import NodeType
from hocket.workers.runtime.execution.functions import described
from hocket.workers.runtime.execution.metrics import Meters
from hocket.workers.runtime.execution.step_threads import StepThreads
from hocket.workers.runtime.execution.worker import DRAIN_S
from hocket.workers.runtime.execution.worker import Worker as Runtime

DEFAULT_CONCURRENCY = 16
MAX_TYPES = 64
"""Node types of one worker, each queue counted: coordinators believe no more."""
NO_PLATFORM_PAUSE_S = 0.5
"""While NATS has no stream of steps yet, it is looked for so often."""

F = TypeVar("F", bound=Callable[..., Any])
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Running:
    """A worker that runs. `name` is its name in results, announcements and `hocket types`."""

    name: str
    overrun: asyncio.Event
    """Set when more than half of a type's slots have been held for too long by functions that did not
    end in time: the process should end and be started anew."""


class Worker:
    """Node types and their functions. `queues` are those whose steps it takes, `default` being each
    type's own; every type has its slots in every queue."""

    def __init__(self, *, queues: Sequence[str] = (DEFAULT_QUEUE,)) -> None:
        self._types: dict[str, NodeType] = {}
        self._queues = _checked(queues)

    @property
    def types(self) -> tuple[NodeType, ...]:
        """The node types that it has."""
        return tuple(self._types.values())

    def node(
        self,
        type: str,  # noqa: A002 (the word of the pipeline's field)
        *,
        version: str = "1",
        concurrency: int = DEFAULT_CONCURRENCY,
        timeout_ms: float | None = None,
        effects: Literal["none", "external"] = "none",
        usd_per_second: Decimal | str | None = None,
        description: str | None = None,
    ) -> Callable[[F], F]:
        """Make a function the handler of a node type; raise NodeTypeInvalid where that cannot be.

        It is called as `f()`, `f(input)`, `f(input, context)` or with a parameter `config` besides.
        The annotations are the JSON Schemas that are announced; `timeout_ms` and `effects` hold for
        nodes that do not say them. `concurrency` is how many steps one process runs at once."""

        def add(function: F) -> F:
            node_type = NodeType(
                name=type,
                function=described(type, function, with_config=True),
                version=version,
                concurrency=concurrency,
                timeout_ms=timeout_ms,
                effects=effects,
                usd_per_second=None if usd_per_second is None else Decimal(usd_per_second),
                description=description,
            )
            self.add(node_type)
            return function

        return add

    def add(self, node_type: NodeType) -> None:
        """Take a node type in, or raise NodeTypeInvalid."""
        node_type.check()
        if node_type.name in self._types:
            raise node_type.invalid("the worker has it already", "Name each type once.")
        self._types[node_type.name] = node_type

    @asynccontextmanager
    async def run(
        self,
        *,
        nats_url: str | None = None,
        blobs: Path | None = None,
        name: str | None = None,
        queues: Sequence[str] = (),
        drain_s: float = DRAIN_S,
        registry: CollectorRegistry | None = None,
    ) -> AsyncIterator[Running]:
        """Run steps until the block ends, on the event loop that is running; then nothing is fetched
        any more, what runs may end within `drain_s`, and the rest goes back to the stream.

        `nats_url` is otherwise `NATS_URL`, or that of the platform of this machine's data folder.
        `blobs` is the folder of large values, where it is shared with the platform's workers."""
        served = _checked(queues) if queues else self._queues
        name = _name(name)
        pools = self._pools(served)
        place = place_of(nats_url, blobs)
        bus = await Bus.connect(place.nats_url, name=f"hocket worker {name}")
        threads = StepThreads(sum(one.concurrency for one in self.types) * len(served))
        worker = Runtime(
            bus,
            {pool_name: one.handler(threads) for pool_name, one in pools.items()},
            {pool_name: one.concurrency for pool_name, one in pools.items()},
            name=name,
            meters=Meters(registry or CollectorRegistry()),
            blobs=None if place.blobs is None else LimitedBlobs(FileBlobs(place.blobs)),
            types=[one.described(name) for one in self.types],
        )
        try:
            if not bus.identity.is_guest:  # to whom a coordinator has to answer
                await _until_there_is_a_platform(bus)
            await worker.start()
            try:
                yield Running(name, worker.overrun)
            finally:
                await worker.drain(drain_s)
        finally:
            threads.close()
            await bus.close()

    def _pools(self, queues: Sequence[str]) -> dict[str, NodeType]:
        """Return the types by the names of their pools, or raise NodeTypeInvalid."""
        pools = {pool(one.name, queue): one for one in self.types for queue in queues}
        if not pools:
            raise NodeTypeInvalid(
                type="(none)",
                reason="the worker has no node type",
                cure="Add one: `@worker.node(...)`.",
            )
        if len(pools) > MAX_TYPES:
            raise NodeTypeInvalid(
                type=next(iter(pools)),
                reason=f"types and queues make {len(pools)} pools, and {MAX_TYPES} are the limit",
                cure="Run them by several workers.",
            )
        return pools


def _checked(queues: Sequence[str]) -> tuple[str, ...]:
    for queue in queues:
        if not QUEUE.fullmatch(queue):
            raise NodeTypeInvalid(
                type="(queues)",
                reason=f"`{queue}` is no queue",
                cure="Use lower-case letters, digits and `_`, at most 31.",
            )
    return tuple(dict.fromkeys(queues)) or (DEFAULT_QUEUE,)


def _name(given: str | None) -> str:
    if given is not None and TOKEN.fullmatch(given):
        return given
    host = "".join(_token_chars(socket.gethostname()))[:40] or "worker"
    return f"{host}-{os.getpid()}-{secrets.token_hex(2)}"


def _token_chars(text: str) -> Iterator[str]:
    return (char if char.isascii() and char.isalnum() else "-" for char in text)


async def _until_there_is_a_platform(bus: Bus) -> None:
    """Wait until the stream of steps is there: a worker may be started before the platform is."""
    said = False
    while True:
        try:
            await bus.js.stream_info("STEPS")
        except NotFoundError:
            if not said:
                log.warning("platform_awaited", reason="NATS has no stream STEPS yet")
                said = True
            await asyncio.sleep(NO_PLATFORM_PAUSE_S)
        else:
            return
