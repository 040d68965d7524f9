"""Coordinators in the test's process, on a real bus and database, so that their rules can be made to
fail; and a worker that answers every step at once."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
from nats.aio.msg import Msg
from prometheus_client import CollectorRegistry

from hocket.coordinator.coordinator import Coordinator
from hocket.coordinator.metrics import CoordinatorMetrics
from hocket.coordinator.service import build_coordinator
from hocket.coordinator.storage.cache_store import CacheStore
from hocket.coordinator.storage.pipelines.pipeline_store import PipelineStore
from hocket.coordinator.storage.store import Store
from hocket.kit.access.key_book import KeyBook
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.kv.bucket import Bucket
from hocket.kit.process.lifecycle import Health
from hocket.schemas import subjects
from hocket.schemas.capabilities import Capabilities
from hocket.schemas.messages import AttemptFinished, StepRequested, encoded

BOUND_S = 60
NODE = {"type": "python", "handler": "hocket.workers.builtin:echo"}
SPEC = {"pipeline": "p", "slo_ms": 600_000, "nodes": {"a": NODE, "b": {**NODE, "needs": ["a"]}}}


class Rig:
    """A bus and a database for coordinators, and a worker that answers every step at once."""

    def __init__(self, bus: Bus, pool: asyncpg.Pool) -> None:
        self.bus = bus
        self.pool = pool
        self.registry = CollectorRegistry()
        self.holding = asyncio.Event()
        """While this is set, steps `b` are not answered."""

    async def open(self) -> None:
        for tenant in ("acme", "default"):
            await self.pool.execute(
                """INSERT INTO hocket.pipeline (tenant, name, version, spec, spec_hash)
                VALUES ($1, 'p', 1, $2, 'x')""",
                tenant,
                json.dumps(SPEC),
            )
        await self.bus.subscribe("hocket.step.>", self._step)

    async def _step(self, msg: Msg) -> None:
        request = StepRequested.model_validate_json(msg.data)
        if self.holding.is_set() and request.step == "b":
            return
        result = AttemptFinished(
            run_id=request.run_id,
            step=request.step,
            attempt=request.attempt,
            output={"x": 1},
            dispatched_at_ms=request.dispatched_at_ms,
            capability=request.capability,
        )
        await self.bus.publish(subjects.log(request.partition, result.kind), encoded(result))

    @asynccontextmanager
    async def coordinator(
        self,
        name: str,
        key_book: KeyBook | None = None,
        capabilities: Capabilities | None = None,
        max_task_bytes: int = 100_000,
    ) -> AsyncIterator[Coordinator]:
        self.registry = CollectorRegistry()
        leases = Bucket(self.bus, subjects.COORDINATORS)
        coordinator = build_coordinator(
            self.bus,
            Store(self.pool),
            CacheStore(self.pool),
            PipelineStore(self.pool),
            Health(),
            CoordinatorMetrics(self.registry),
            leases,
            name=name,
            partitions=1,
            max_task_bytes=max_task_bytes,
            gated=False,
            key_book=key_book,
            capabilities=capabilities,
        )
        async with leases.watching():
            running = asyncio.create_task(coordinator.run(asyncio.Event()))
            await asyncio.wait_for(coordinator.settled(), BOUND_S)
            yield coordinator
            assert not running.done(), running.exception()
            running.cancel()
            await asyncio.wait({running})

    async def publish(self, tenant: str, key: str) -> asyncio.Future[dict[str, Any]]:
        inbox = self.bus.nc.new_inbox()
        told: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

        async def heard(msg: Msg) -> None:
            if not told.done():
                told.set_result(json.loads(msg.data))

        await self.bus.subscribe(inbox, heard)
        await self.bus.publish(
            subjects.task(tenant, "p"),
            b"{}",
            headers={"Hocket-Idempotency-Key": key, "Hocket-Reply-To": inbox},
        )
        return told

    async def ends(self, tenant: str, key: str) -> dict[str, Any]:
        return await asyncio.wait_for(await self.publish(tenant, key), BOUND_S)
