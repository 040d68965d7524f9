"""`Worker`: registers custom node types and runs their steps."""

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
from hocket.kit.compiled import check_compiled
from hocket.kit.nats.bus import Bus
from hocket.schemas.subjects import DEFAULT_QUEUE, QUEUE, TOKEN, pool
from hocket.worker.clock_check import compare_clocks
from hocket.worker.connection import place_of
from hocket.worker.errors import NodeTypeInvalid, WorkerNameInvalid
from hocket.worker.node_type import NodeType
from hocket.workers.errors import HandlerUnknown
from hocket.workers.runtime.execution.functions import Function, described
from hocket.workers.runtime.execution.metrics import Meters
from hocket.workers.runtime.execution.step_threads import StepThreads
from hocket.workers.runtime.execution.worker import DRAIN_S
from hocket.workers.runtime.execution.worker import Worker as Runtime

DEFAULT_CONCURRENCY = 16
MAX_TYPES = 64
"""The most pairs of node type and queue that one worker serves; coordinators accept no more."""
NO_PLATFORM_PAUSE_S = 0.5
"""How often to look for the stream of steps while NATS does not have it yet."""

F = TypeVar("F", bound=Callable[..., Any])
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Running:
    """A running worker. `name` identifies it in results, announcements and `hocket types`."""

    name: str
    overrun: asyncio.Event
    """Set when functions that did not end in time have held more than half of a type's slots for too
    long: the process should exit and be restarted."""


class Worker:
    """A set of node types and the functions that handle them.

    `queues` names the queues whose steps the worker takes; `default` holds the steps of nodes that name
    no queue. Every type has its own slots in every queue. Raises NodeTypeInvalid for an invalid queue
    name."""

    def __init__(self, *, queues: Sequence[str] = (DEFAULT_QUEUE,)) -> None:
        self._types: dict[str, NodeType] = {}
        self._queues = _checked(queues)

    @property
    def types(self) -> tuple[NodeType, ...]:
        """The node types registered so far."""
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
        """Register a function as the handler of a node type; raise NodeTypeInvalid if it cannot be one.

        The function is called as `f()`, `f(input)` or `f(input, context)`; a parameter named `config`
        receives the node's `config`. The JSON Schemas that the worker announces come from the
        annotations. `timeout_ms` and `effects` are defaults for nodes that do not set them.
        `concurrency` is how many steps one process runs at once, in each queue."""
        if callable(type):  # the decorator without a call would register nothing
            raise NodeTypeInvalid(
                type="(none)",
                reason=f"`@worker.node` is used on `{getattr(type, '__name__', type)}` without a name",
                cure='Write `@worker.node("crm.lookup")`.',
            )

        def add(function: F) -> F:
            node_type = NodeType(
                name=type,
                function=_function(type, function),
                version=version,
                concurrency=concurrency,
                timeout_ms=timeout_ms,
                effects=effects,
                usd_per_second=price_of(type, usd_per_second),
                description=description,
            )
            self.add(node_type)
            return function

        return add

    def add(self, node_type: NodeType) -> None:
        """Register a node type; raise NodeTypeInvalid if it is malformed or already registered."""
        node_type.check()
        if node_type.name in self._types:
            raise node_type.invalid("the worker already has it", "Register each type only once.")
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
        """Run steps on the current event loop until the block ends.

        The worker then stops fetching, gives running steps `drain_s` seconds to finish, and returns the
        rest to the stream. `nats_url` defaults to `NATS_URL`, or to the platform that uses this
        machine's data folder. `blobs` is the folder of large values that the platform's workers share.
        Raises NodeTypeInvalid if there are no node types, or too many, WorkerNameInvalid,
        BlobsNotFound, and CompiledPartStale if an installed module was changed after it was compiled."""
        check_compiled()
        served = _checked(queues) if queues else self._queues
        name = _name(name)
        pools = self._pools(served)
        place = place_of(nats_url, blobs)
        for one in self.types:
            one.warn_of_unused()
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
            if not bus.identity.is_guest:  # a guest asks a coordinator instead
                await _until_there_is_a_platform(bus)
                await compare_clocks(bus)
            await worker.start()
            try:
                yield Running(name, worker.overrun)
            finally:
                await worker.drain(drain_s)
        finally:
            threads.close()
            await bus.close()

    def _pools(self, queues: Sequence[str]) -> dict[str, NodeType]:
        """Return the types by pool name; raise NodeTypeInvalid if there are none, or too many."""
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
                reason=f"types and queues make {len(pools)} pools; the limit is {MAX_TYPES}",
                cure="Run them on several workers.",
            )
        return pools


def _function(node_type: str, function: Callable[..., Any]) -> Function:
    try:
        return described(node_type, function, with_config=True)
    except HandlerUnknown as error:
        reason = f"its function cannot be called for a step: {error.fields['reason']}"
        cure = "Change its parameters or annotations: docs/how-to/own-node-types.md."
        raise NodeTypeInvalid(type=node_type, reason=reason, cure=cure) from error


def price_of(node_type: str, given: Decimal | str | None) -> Decimal | None:
    """Return the price of a node type's second; raise NodeTypeInvalid if it is no amount."""
    try:
        return None if given is None else Decimal(given)
    except (ArithmeticError, ValueError, TypeError):
        reason, cure = (
            f"its usd_per_second is {given!r}",
            'Use an amount of money, such as "0.002".',
        )
        raise NodeTypeInvalid(type=node_type, reason=reason, cure=cure) from None


def _checked(queues: Sequence[str]) -> tuple[str, ...]:
    for queue in queues:
        if not QUEUE.fullmatch(queue):
            raise NodeTypeInvalid(
                type="(queues)",
                reason=f"`{queue}` is not a queue",
                cure="Use lower-case letters, digits and `_`, at most 31.",
            )
    return tuple(dict.fromkeys(queues)) or (DEFAULT_QUEUE,)


def _name(given: str | None) -> str:
    if given is not None:
        if not TOKEN.fullmatch(given):
            raise WorkerNameInvalid(name=given[:80])
        return given
    host = "".join(_token_chars(socket.gethostname()))[:40] or "worker"
    return f"{host}-{os.getpid()}-{secrets.token_hex(2)}"


def _token_chars(text: str) -> Iterator[str]:
    return (char if char.isascii() and char.isalnum() else "-" for char in text)


async def _until_there_is_a_platform(bus: Bus) -> None:
    """Wait until the stream of steps exists: a worker may be started before the platform."""
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
