"""The coordinator as a process: intake, its partitions, one committer."""

import asyncio
import os
import socket

from hocket.coordinator.catalog import Catalog
from hocket.coordinator.committer import AWAY, Committer
from hocket.coordinator.intake import Intake
from hocket.coordinator.metrics import CoordinatorMetrics
from hocket.coordinator.partition import Partition
from hocket.coordinator.store import Store
from hocket.kit.lifecycle import Service
from hocket.kit.migrations import wait_current
from hocket.kit.streams import ensure_streams

POOL_SIZE = 4
TABLES_TIMEOUT_MS = 30_000.0
DRAIN_S = 5.0
DURATIONS_EVERY_S = 5.0
WINDOW = 16_384


async def main(service: Service) -> None:
    """Own every partition and coordinate until asked to stop."""
    settings = service.settings
    bus = await service.bus(window=WINDOW)
    await ensure_streams(bus, replicas=settings.stream_replicas)
    await wait_current(settings.database_url, TABLES_TIMEOUT_MS)
    store = Store(await service.pool(POOL_SIZE))
    metrics = CoordinatorMetrics(service.telemetry.registry)
    catalog = Catalog(store)
    committer = Committer(store, service.health, metrics)
    partitions = [
        Partition(
            number,
            partitions=settings.partitions,
            bus=bus,
            store=store,
            catalog=catalog,
            committer=committer,
            metrics=metrics,
        )
        for number in range(settings.partitions)
    ]
    intake = Intake(
        bus,
        store,
        catalog,
        service.health,
        metrics,
        partitions=settings.partitions,
        max_task_bytes=settings.max_task_bytes,
    )
    owner = f"{socket.gethostname()}-{os.getpid()}"
    await asyncio.gather(*(partition.own(owner) for partition in partitions))

    def came_back() -> None:
        for partition in partitions:
            partition.redispatch()

    bus.on_reconnect.append(came_back)
    reading = [asyncio.create_task(p.read(), name=f"partition-{p.number}") for p in partitions]
    admitting = asyncio.create_task(intake.run(), name="intake")
    committing = asyncio.create_task(committer.run(), name="commit")
    keeping = asyncio.create_task(_keep_durations(service, catalog), name="durations")
    stopping = asyncio.create_task(service.stopping.wait(), name="stopping")
    service.started()
    service.log.info("coordinator_serving", partitions=settings.partitions, owner=owner)
    tasks = [*reading, admitting, committing, keeping]
    try:
        done, _ = await asyncio.wait({*tasks, stopping}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()  # a task that ended has failed
        for task in (admitting, *reading):
            task.cancel()
        await asyncio.wait(
            {committing, asyncio.ensure_future(committer.flushed())},
            timeout=DRAIN_S,
            return_when=asyncio.FIRST_COMPLETED,
        )
    finally:
        for task in (*tasks, stopping):
            task.cancel()
        await asyncio.wait({*tasks, stopping})


async def _keep_durations(service: Service, catalog: Catalog) -> None:
    while True:
        await asyncio.sleep(DURATIONS_EVERY_S)
        try:
            await catalog.keep()
        except AWAY as error:
            service.log.warning("durations_not_kept", reason=str(error))
