"""The coordinator: intake, its partitions and one committer, over one bus and one store.

States: made, owning (its partitions are taken over), serving, draining (asked to stop: nothing is read
any more, what was decided is written within DRAIN_S), ended. It fails when one of its parts does; a
partition that another coordinator took is such a failure.
"""

import asyncio
from collections.abc import Mapping

import structlog

from hocket.coordinator.cache_store import CacheStore
from hocket.coordinator.catalog import Catalog
from hocket.coordinator.committer import AWAY, Committer
from hocket.coordinator.dispatcher import Dispatcher
from hocket.coordinator.durations import Durations
from hocket.coordinator.intake import Intake
from hocket.coordinator.metrics import CoordinatorMetrics
from hocket.coordinator.partition import Partition
from hocket.coordinator.step_cache import StepCache
from hocket.coordinator.store import Store
from hocket.kit.bus import Bus
from hocket.kit.lifecycle import Health

DRAIN_S = 5.0
DURATIONS_EVERY_S = 5.0
OUTLOOKS_EVERY_S = 1.0
"""What was measured enters the logs at most this often."""

log = structlog.get_logger(__name__)


class Coordinator:
    """See the module. `own`, then `run`."""

    def __init__(
        self,
        bus: Bus,
        store: Store,
        cache_store: CacheStore,
        health: Health,
        metrics: CoordinatorMetrics,
        *,
        partitions: int,
        max_task_bytes: int,
        tenant_weights: Mapping[str, float] | None = None,
        gated: bool = True,
    ) -> None:
        self._durations = Durations(store)
        self._catalog = Catalog(store, self._durations)
        self._committer = Committer(store, health, metrics)
        self._step_cache = StepCache(bus, cache_store, metrics, partitions=partitions)
        self._dispatcher = Dispatcher(
            bus, metrics, partitions=partitions, weights=tenant_weights or {}, gated=gated
        )
        self._partitions = [
            Partition(
                number,
                partitions=partitions,
                bus=bus,
                store=store,
                catalog=self._catalog,
                durations=self._durations,
                committer=self._committer,
                step_cache=self._step_cache,
                dispatcher=self._dispatcher,
                metrics=metrics,
            )
            for number in range(partitions)
        ]
        self._intake = Intake(
            bus,
            store,
            self._catalog,
            health,
            metrics,
            partitions=partitions,
            max_task_bytes=max_task_bytes,
        )
        self._bus = bus

    async def own(self, owner: str) -> None:
        """Take every partition over."""
        await self._dispatcher.open()
        await asyncio.gather(*(partition.own(owner) for partition in self._partitions))
        self._bus.on_reconnect.append(self._came_back)

    async def run(self, stopping: asyncio.Event) -> None:
        """Coordinate until `stopping`; raise what ended a part."""
        reading = [
            asyncio.create_task(p.read(), name=f"partition-{p.number}") for p in self._partitions
        ]
        admitting = asyncio.create_task(self._intake.run(), name="intake")
        committing = asyncio.create_task(self._committer.run(), name="commit")
        caching = asyncio.create_task(self._step_cache.run(), name="step-cache")
        keeping = asyncio.create_task(self._keep_durations(), name="durations")
        stop = asyncio.create_task(stopping.wait(), name="stopping")
        telling = asyncio.create_task(self._tell_durations(), name="outlooks")
        dispatching = asyncio.create_task(self._dispatcher.run(), name="dispatch")
        tasks = [*reading, admitting, committing, caching, keeping, telling, dispatching]
        try:
            done, _ = await asyncio.wait({*tasks, stop}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # a task that ended has failed
            for task in (admitting, *reading):
                task.cancel()
            await asyncio.wait(
                {committing, asyncio.ensure_future(self._committer.flushed())},
                timeout=DRAIN_S,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            for task in (*tasks, stop):
                task.cancel()
            await asyncio.wait({*tasks, stop})

    def _came_back(self) -> None:
        for partition in self._partitions:
            partition.redispatch()

    async def _tell_durations(self) -> None:
        while True:
            await asyncio.sleep(OUTLOOKS_EVERY_S)
            for partition in self._partitions:
                partition.tell_durations()

    async def _keep_durations(self) -> None:
        while True:
            await asyncio.sleep(DURATIONS_EVERY_S)
            try:
                await self._durations.keep()
            except AWAY as error:
                log.warning("durations_not_kept", reason=str(error))
