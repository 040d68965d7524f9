"""The coordinator: intake, its share of the partitions and one committer, over one bus and one store.

States: made, serving (`settled` once every partition has an owner), draining (asked to stop: what was
decided is written, partition by partition, and given to others, within DRAIN_S), ended. It fails when
one of its parts does. A partition that another coordinator took is dropped, and the others go on.
"""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

from hocket.coordinator.core.scheduling.backlog import Backlog
from hocket.coordinator.core.scheduling.gate import Gate, Order
from hocket.coordinator.core.scheduling.tenant_reserve import TENANT_RESERVE
from hocket.coordinator.core.scheduling.type_queue import INTERACTIVE_SHARE
from hocket.coordinator.dispatch.dispatcher import Dispatcher
from hocket.coordinator.dispatch.workload import Load
from hocket.coordinator.intake.capacity import MAX_RUNS, CapacityLimit
from hocket.coordinator.intake.intake import Intake
from hocket.coordinator.intake.waiting_tenants import WaitingTenants
from hocket.coordinator.metrics import CoordinatorMetrics
from hocket.coordinator.ownership.leases import Ownership
from hocket.coordinator.partition.events.log_trimmer import LogTrimmer
from hocket.coordinator.partition.partition_set import PartitionSet
from hocket.coordinator.partition.runs.change_publisher import ChangePublisher
from hocket.coordinator.partition.shared_services import SharedServices
from hocket.coordinator.storage.cache_store import CacheStore
from hocket.coordinator.storage.committer import Committer
from hocket.coordinator.storage.duration_stats import Durations
from hocket.coordinator.storage.pipeline_catalog import Catalog
from hocket.coordinator.storage.step_cache import StepCache
from hocket.coordinator.storage.store import Store
from hocket.kit.access.grant_book import GrantBook
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.kv.entry import Leases
from hocket.kit.process.lifecycle import Health
from hocket.kit.process.limits.disk_space import UNWATCHED, DiskSpace
from hocket.kit.process.task_stop import stop_tasks
from hocket.schemas.capabilities import Capabilities

DRAIN_S = 8.0
TRIMS_LOG = 0
"""Who has this partition makes room in the stream of all logs."""


class Coordinator:
    """One coordinator process: its partitions, intake and dispatch. `name` is its own among the
    coordinators of an installation."""

    def __init__(
        self,
        bus: Bus,
        store: Store,
        cache_store: CacheStore,
        health: Health,
        metrics: CoordinatorMetrics,
        leases: Leases,
        *,
        name: str,
        partitions: int,
        max_task_bytes: int,
        tenant_weights: Mapping[str, float] | None = None,
        gated: bool = True,
        order: Order = "slack",
        interactive_share: float = INTERACTIVE_SHARE,
        tenant_reserve: float = TENANT_RESERVE,
        max_runs: int = MAX_RUNS,
        capabilities: Capabilities | None = None,
        asks_for_seals: bool = True,
        disk: DiskSpace = UNWATCHED,
        grants: GrantBook | None = None,
    ) -> None:
        self._bus = bus
        self._durations = Durations(store)
        catalog = Catalog(store, self._durations)
        self._committer = Committer(store, health, metrics, ChangePublisher(bus).committed)
        self._step_cache = StepCache(
            bus, cache_store, metrics, partitions=partitions, capabilities=capabilities
        )
        gate = Gate(
            tenant_weights,
            order=order,
            interactive_share=interactive_share,
            tenant_reserve=tenant_reserve,
            holds_unserved=gated,
        )
        load = Load(Backlog(tenant_weights), gate)
        self._dispatcher = Dispatcher(
            bus,
            metrics,
            gate,
            load,
            partitions=partitions,
            gated=gated,
            by_slack=order == "slack",
            capabilities=capabilities,
            grants=grants,
        )
        services = SharedServices(
            partitions=partitions,
            bus=bus,
            store=store,
            catalog=catalog,
            durations=self._durations,
            committer=self._committer,
            step_cache=self._step_cache,
            dispatcher=self._dispatcher,
            load=load,
            metrics=metrics,
            capabilities=capabilities,
            asks_for_seals=asks_for_seals,
        )
        self._partitions = PartitionSet(services, name)
        self._trimmer = LogTrimmer(
            bus, store, partitions=partitions, is_mine=lambda: self.owns(TRIMS_LOG)
        )
        capacity = CapacityLimit(
            max_runs,
            self._partitions.held,
            self._partitions.held_by,
            disk,
            lambda: self._trimmer.reason,
        )
        self._waiting = WaitingTenants(bus, capacity)
        self._ownership = Ownership(
            leases,
            health,
            name=name,
            incarnation=bus.nc.new_inbox().rsplit(".", 1)[1],
            partitions=partitions,
            take=self._partitions.take,
            leave=self._partitions.leave,
            drop=self._partitions.drop,
            capacity=capacity,
        )
        self._intake = Intake(
            bus,
            store,
            catalog,
            health,
            metrics,
            self._durations,
            load,
            partitions=partitions,
            max_task_bytes=max_task_bytes,
            is_full=self._waiting.pauses,
            full_because=lambda: capacity.reason,
            over_share=self._waiting.refusal,
            capabilities=capabilities,
        )
        metrics.in_flight.set_function(self._partitions.in_flight)
        metrics.owned.set_function(self._partitions.__len__)

    def owns(self, number: int) -> bool:
        """Tell whether a partition is read here."""
        return number in self._partitions

    async def settled(self) -> None:
        """Wait until every partition has an owner that lives, and ours are read."""
        await self._ownership.settled.wait()

    async def run(self, stopping: asyncio.Event) -> None:
        """Coordinate until `stopping`; raise what ended a part."""
        async with AsyncExitStack() as stack:
            stack.callback(self._partitions.close)
            tasks: list[asyncio.Task[Any]] = []
            stack.push_async_callback(self._stop, tasks)
            await self._dispatcher.open()
            self._bus.on_reconnect.append(self._partitions.came_back)
            stack.callback(self._bus.on_reconnect.remove, self._partitions.came_back)
            owning = asyncio.create_task(self._ownership.run(), name="ownership")
            admitting = asyncio.create_task(self._intake.run(), name="intake")
            committing = asyncio.create_task(self._committer.run(), name="commit")
            others = [
                asyncio.create_task(self._step_cache.run(), name="step-cache"),
                asyncio.create_task(self._durations.run(), name="durations"),
                asyncio.create_task(self._partitions.upkeep(), name="upkeep"),
                asyncio.create_task(stopping.wait(), name="stopping"),
                asyncio.create_task(self._dispatcher.run(), name="dispatch"),
            ]
            waking = asyncio.create_task(self._partitions.wake_parked(), name="parked")
            looking = asyncio.create_task(
                self._waiting.run(self._intake.more), name="waiting-tenants"
            )
            trimming = asyncio.create_task(self._trimmer.run(), name="log-trimmer")
            tasks += [owning, waking, admitting, committing, *others, looking, trimming]
            await self._until_ended(tasks)
            admitting.cancel()
            handing_over = asyncio.create_task(self._ownership.hand_over(), name="handing-over")
            stack.callback(handing_over.cancel)
            await self._until_ended([owning, committing, handing_over], timeout_s=DRAIN_S)

    async def _stop(self, tasks: list[asyncio.Task[Any]]) -> None:
        """Stop everything that runs, and wait until it has ended."""
        await stop_tasks([*tasks, *self._partitions.readings()])

    async def _until_ended(
        self, tasks: list[asyncio.Task[Any]], timeout_s: float | None = None
    ) -> None:
        """Wait until one of the tasks has ended, or a partition cannot be read; raise why."""
        done, _ = await asyncio.wait(
            {*tasks, self._partitions.unreadable},
            timeout=timeout_s,
            return_when=asyncio.FIRST_COMPLETED,
        )
        for ended in done:
            ended.result()
