"""The coordinator: intake, its share of the partitions and one committer, over one bus and one store.

States: made, serving (`settled` once every partition has an owner), draining (asked to stop: what was
decided is written, partition by partition, and given to others, within DRAIN_S), ended. It fails when
one of its parts does. A partition that another coordinator took is dropped, and the others go on.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import asyncpg
import structlog

from hocket.coordinator.core.run.aborting import reason_of
from hocket.coordinator.core.scheduling.backlog import Backlog
from hocket.coordinator.core.scheduling.gate import INTERACTIVE_SHARE, Gate, Order
from hocket.coordinator.dispatch.dispatcher import Dispatcher
from hocket.coordinator.dispatch.workload import Load
from hocket.coordinator.intake.capacity import MAX_RUNS, CapacityLimit
from hocket.coordinator.intake.intake import Intake
from hocket.coordinator.intake.waiting_tenants import WaitingTenants
from hocket.coordinator.metrics import CoordinatorMetrics
from hocket.coordinator.ownership.leases import Ownership
from hocket.coordinator.partition.log_trimmer import LogTrimmer
from hocket.coordinator.partition.partition import WAKE_EVERY_S, Partition
from hocket.coordinator.storage.cache_store import CacheStore
from hocket.coordinator.storage.committer import Committer
from hocket.coordinator.storage.duration_stats import Durations
from hocket.coordinator.storage.pipeline_catalog import Catalog
from hocket.coordinator.storage.step_cache import StepCache
from hocket.coordinator.storage.store import Store
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.kv import Leases
from hocket.kit.postgres.errors import AWAY
from hocket.kit.process.disk_space import UNWATCHED, DiskSpace
from hocket.kit.process.lifecycle import Health
from hocket.schemas.capabilities import Capabilities

DRAIN_S = 8.0
LEAVE_S = 5.0
"""For what a partition decided to be written and told before it is left all the same."""
RETRY_S = 0.25
DURATIONS_EVERY_S = 5.0
TRIMS_LOG = 0
"""Who has this partition makes room in the stream of all logs."""
OUTLOOKS_EVERY_S = 0.5
"""What was measured enters the logs at most this often."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Owned:
    partition: Partition
    reading: asyncio.Task[None]


class Coordinator:
    """See the module. `name` is its own among the coordinators of an installation."""

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
        max_runs: int = MAX_RUNS,
        capabilities: Capabilities | None = None,
        asks_for_seals: bool = True,
        disk: DiskSpace = UNWATCHED,
    ) -> None:
        self._durations = Durations(store)
        self._catalog = Catalog(store, self._durations)
        self._committer = Committer(store, health, metrics)
        self._step_cache = StepCache(
            bus, cache_store, metrics, partitions=partitions, capabilities=capabilities
        )
        gate = Gate(tenant_weights, order=order, interactive_share=interactive_share)
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
        )
        self._make = partial(
            Partition,
            partitions=partitions,
            bus=bus,
            store=store,
            catalog=self._catalog,
            durations=self._durations,
            committer=self._committer,
            step_cache=self._step_cache,
            dispatcher=self._dispatcher,
            load=load,
            metrics=metrics,
            capabilities=capabilities,
            asks_for_seals=asks_for_seals,
        )
        self._owned: dict[int, _Owned] = {}
        self._name = name
        self._trimmer = LogTrimmer(
            bus, store, partitions=partitions, is_mine=lambda: self.owns(TRIMS_LOG)
        )
        fullness = CapacityLimit(
            max_runs, self._held, self._held_by, disk, lambda: self._trimmer.reason
        )
        self._waiting = WaitingTenants(bus, fullness, changed=self._intake_more)
        self._ownership = Ownership(
            leases,
            health,
            name=name,
            incarnation=bus.nc.new_inbox().rsplit(".", 1)[1],
            partitions=partitions,
            take=self._take,
            leave=self._leave,
            drop=self._drop,
            fullness=fullness,
        )
        self._intake = Intake(
            bus,
            store,
            self._catalog,
            health,
            metrics,
            self._durations,
            load,
            partitions=partitions,
            max_task_bytes=max_task_bytes,
            is_full=self._waiting.pauses,
            full_because=lambda: fullness.reason,
            over_share=self._waiting.refusal,
            capabilities=capabilities,
        )
        self._bus = bus
        self._unread: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        metrics.in_flight.set_function(self._in_flight)
        metrics.owned.set_function(lambda: len(self._owned))

    def owns(self, number: int) -> bool:
        """Tell whether a partition is read here."""
        return number in self._owned

    async def settled(self) -> None:
        """Wait until every partition has an owner that lives, and ours are read."""
        await self._ownership.settled.wait()

    async def run(self, stopping: asyncio.Event) -> None:
        """Coordinate until `stopping`; raise what ended a part."""
        await self._dispatcher.open()
        self._bus.on_reconnect.append(self._came_back)
        owning = asyncio.create_task(self._ownership.run(), name="ownership")
        admitting = asyncio.create_task(self._intake.run(), name="intake")
        committing = asyncio.create_task(self._committer.run(), name="commit")
        caching = asyncio.create_task(self._step_cache.run(), name="step-cache")
        keeping = asyncio.create_task(self._keep_durations(), name="durations")
        telling = asyncio.create_task(self._tell(), name="outlooks")
        stop = asyncio.create_task(stopping.wait(), name="stopping")
        dispatching = asyncio.create_task(self._dispatcher.run(), name="dispatch")
        waking = asyncio.create_task(self._wake_parked(), name="parked")
        looking = asyncio.create_task(self._waiting.run(), name="waiting-tenants")
        tasks = [owning, waking, admitting, committing, caching, keeping, telling, dispatching]
        trimming = asyncio.create_task(self._trimmer.run(), name="log-trimmer")
        tasks += [looking, trimming]
        try:
            await self._until_ended({*tasks, stop})
            admitting.cancel()
            handing_over = asyncio.create_task(self._ownership.hand_over(), name="handing-over")
            await self._until_ended({owning, committing, handing_over}, timeout_s=DRAIN_S)
            handing_over.cancel()
        finally:
            self._bus.on_reconnect.remove(self._came_back)
            tasks += [owned.reading for owned in self._owned.values()]
            for task in (*tasks, stop):
                task.cancel()
            await asyncio.wait({*tasks, stop})
            for number in list(self._owned):
                self._drop(number)

    async def _until_ended(
        self,
        tasks: set[asyncio.Task[None]] | set[asyncio.Task[Any]],
        timeout_s: float | None = None,
    ) -> None:
        """Wait until one of the tasks has ended, or a partition cannot be read; raise why."""
        done, _ = await asyncio.wait(
            {*tasks, self._unread}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
        )
        for task in done:
            task.result()

    # ---- partitions -------------------------------------------------------------------------

    async def _take(self, number: int, cause: str) -> None:
        while True:
            partition: Partition = self._make(number)
            lost = partial(self._ownership.lost, number)
            try:
                await partition.own(self._name, cause=cause, lost=lost)
                break
            except (*AWAY, asyncpg.PostgresError) as error:  # refused or away: it passes
                partition.end()
                log.warning("partition_waits", partition=number, reason=reason_of(error))
                await asyncio.sleep(RETRY_S)
            except BaseException:
                partition.end()
                raise
        reading = asyncio.create_task(partition.read(), name=f"partition-{number}")
        reading.add_done_callback(self._stopped_reading)
        self._owned[number] = _Owned(partition, reading)

    async def _leave(self, number: int) -> None:
        owned = self._owned[number]
        owned.reading.cancel()
        try:
            async with asyncio.timeout(LEAVE_S):
                await asyncio.wait({owned.reading})
                await owned.partition.leave()
        except TimeoutError:
            log.warning("partition_left_unwritten", partition=number)
        self._drop(number)

    def _drop(self, number: int) -> None:
        owned = self._owned.pop(number, None)
        if owned is not None:
            owned.reading.cancel()
            owned.partition.end()

    def _stopped_reading(self, reading: asyncio.Task[None]) -> None:
        if reading.cancelled() or self._unread.done():
            return
        error = reading.exception()
        assert error is not None, "a log has no end"
        self._unread.set_exception(error)

    def _came_back(self) -> None:
        for owned in self._owned.values():
            owned.partition.redispatch()
            owned.partition.retell()

    def _in_flight(self) -> int:
        return sum(owned.partition.in_flight for owned in self._owned.values())

    def _held(self) -> tuple[int, int]:
        held = [owned.partition for owned in self._owned.values()]
        return sum(one.in_flight for one in held), sum(one.in_flight_bytes for one in held)

    def _intake_more(self) -> None:
        self._intake.more()

    def _held_by(self) -> dict[str, tuple[int, int]]:
        held: dict[str, tuple[int, int]] = {}
        for owned in self._owned.values():
            for tenant, theirs in owned.partition.held_by_tenant.items():
                runs, size_bytes = held.get(tenant, (0, 0))
                held[tenant] = (runs + theirs.runs, size_bytes + theirs.size_bytes)
        return held

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(OUTLOOKS_EVERY_S)
            for number, owned in list(self._owned.items()):
                try:
                    owned.partition.tell_durations()
                    owned.partition.keep_told()
                    owned.partition.park()
                except Exception:  # the other partitions are not concerned, nor this one's log
                    log.exception("partition_upkeep_failed", partition=number)

    async def _wake_parked(self) -> None:
        while True:
            for owned in list(self._owned.values()):
                try:
                    await owned.partition.wake_parked()
                except AWAY as error:
                    log.warning("parked_not_woken", reason=str(error))
                    break
                except Exception:  # asked again in a moment
                    log.exception("parked_not_woken")
            await asyncio.sleep(WAKE_EVERY_S)

    async def _keep_durations(self) -> None:
        while True:
            await asyncio.sleep(DURATIONS_EVERY_S)
            try:
                await self._durations.keep()
            except AWAY as error:
                log.warning("durations_not_kept", reason=str(error))
            except Exception:  # an aid, not state
                log.exception("durations_not_kept")
