"""The coordinator as a process: its connections, its tables, its end."""

import asyncio
import os
import socket
from functools import partial

from hocket.coordinator.coordinator import Coordinator
from hocket.coordinator.core.scheduling import lease_records
from hocket.coordinator.dispatch.step_cleanup import keep_removing
from hocket.coordinator.guests.posts import GuestPosts
from hocket.coordinator.journals.door import JournalDoor
from hocket.coordinator.metrics import CoordinatorMetrics
from hocket.coordinator.storage.cache_store import CacheStore
from hocket.coordinator.storage.store import Store
from hocket.kit.access import grant_store
from hocket.kit.access.grant_book import GrantBook
from hocket.kit.nats.consumers.step_consumers import StepConsumersDoor
from hocket.kit.nats.kv.bucket import Bucket
from hocket.kit.nats.streams import ensure_streams
from hocket.kit.postgres.migrations import wait_current
from hocket.kit.process.capability_key import platform_capabilities
from hocket.kit.process.installation import agree_on_partitions
from hocket.kit.process.lifecycle import Service
from hocket.schemas import subjects

POOL_SIZE = 6
TABLES_TIMEOUT_MS = 30_000.0
WINDOW = 16_384


async def main(service: Service) -> None:
    """Coordinate a share of the partitions until asked to stop."""
    settings = service.settings
    bus = await service.bus(window=WINDOW)
    await ensure_streams(bus, replicas=settings.stream_replicas)
    await wait_current(settings.database_url, TABLES_TIMEOUT_MS)
    pool = await service.pool(POOL_SIZE)
    await agree_on_partitions(pool, settings.partitions)
    capabilities = await platform_capabilities(settings, pool)
    leases = Bucket(
        bus,
        subjects.COORDINATORS,
        replicas=settings.stream_replicas,
        expected=partial(lease_records.expected, partitions=settings.partitions),
        capabilities=capabilities,
    )
    grants = GrantBook(partial(grant_store.changed, pool))
    await grants.load()
    name = settings.instance or f"{socket.gethostname()}-{os.getpid()}"
    coordinator = Coordinator(
        bus,
        Store(pool),
        CacheStore(pool),
        service.health,
        CoordinatorMetrics(service.telemetry.registry),
        leases,
        name=name,
        partitions=settings.partitions,
        max_task_bytes=settings.max_task_bytes,
        tenant_weights=settings.tenant_weights,
        max_runs=settings.max_runs,
        gated=settings.dispatch_gate,
        order=settings.dispatch_order,
        interactive_share=settings.interactive_share,
        tenant_reserve=settings.tenant_reserve,
        capabilities=capabilities,
        asks_for_seals=settings.asks_for_seals,
        disk=service.disk,
        grants=grants,
    )
    async with (
        StepConsumersDoor(bus).open(),
        JournalDoor(bus, capabilities).open(),
        GuestPosts(bus, partitions=settings.partitions).open(),
        leases.watching(),
        grants.running(),
    ):
        serving = asyncio.create_task(_say_when_settled(service, coordinator))
        sweeping = asyncio.create_task(keep_removing(bus, is_mine=lambda: coordinator.owns(0)))
        try:
            await coordinator.run(service.stopping)
        finally:
            serving.cancel()
            sweeping.cancel()


async def _say_when_settled(service: Service, coordinator: Coordinator) -> None:
    await coordinator.settled()
    service.started()
    service.log.info("coordinator_serving", partitions=service.settings.partitions)
