"""The coordinator as a process: its connections, its tables, its end."""

import os
import socket

from hocket.coordinator.cache_store import CacheStore
from hocket.coordinator.coordinator import Coordinator
from hocket.coordinator.metrics import CoordinatorMetrics
from hocket.coordinator.store import Store
from hocket.kit.lifecycle import Service
from hocket.kit.migrations import wait_current
from hocket.kit.streams import ensure_streams

POOL_SIZE = 4
TABLES_TIMEOUT_MS = 30_000.0
WINDOW = 16_384


async def main(service: Service) -> None:
    """Own every partition and coordinate until asked to stop."""
    settings = service.settings
    bus = await service.bus(window=WINDOW)
    await ensure_streams(bus, replicas=settings.stream_replicas)
    await wait_current(settings.database_url, TABLES_TIMEOUT_MS)
    pool = await service.pool(POOL_SIZE)
    coordinator = Coordinator(
        bus,
        Store(pool),
        CacheStore(pool),
        service.health,
        CoordinatorMetrics(service.telemetry.registry),
        partitions=settings.partitions,
        max_task_bytes=settings.max_task_bytes,
        tenant_weights=settings.tenant_weights,
        gated=settings.dispatch_gate,
    )
    owner = f"{socket.gethostname()}-{os.getpid()}"
    await coordinator.own(owner)
    service.started()
    service.log.info("coordinator_serving", partitions=settings.partitions, owner=owner)
    await coordinator.run(service.stopping)
