"""The coordinator as a process: its connections, its tables and its end, and how it is assembled."""

import asyncio
import os
import socket
from collections.abc import Callable, Mapping
from functools import partial

from hocket.coordinator.coordinator import Coordinator
from hocket.coordinator.core.scheduling import lease_records
from hocket.coordinator.core.scheduling.backlog import Backlog
from hocket.coordinator.core.scheduling.gate import Gate
from hocket.coordinator.core.scheduling.node_types import Order
from hocket.coordinator.core.scheduling.tenant_reserve import TENANT_RESERVE
from hocket.coordinator.core.scheduling.type_queue import INTERACTIVE_SHARE
from hocket.coordinator.dispatch.bundle_sizes import BundleSizes
from hocket.coordinator.dispatch.dispatcher import Dispatcher
from hocket.coordinator.dispatch.step_cleanup import keep_removing, restore_count
from hocket.coordinator.dispatch.step_publisher import StepPublisher
from hocket.coordinator.dispatch.workload import SCALING_HORIZON_S, Load
from hocket.coordinator.flow.controller import NET_OF, FlowController
from hocket.coordinator.flow.store import FlowStore
from hocket.coordinator.guests.posts import GuestPosts
from hocket.coordinator.intake.acceptance_posts import AcceptancePosts
from hocket.coordinator.intake.admission_queue import Overload
from hocket.coordinator.intake.capacity import MAX_RUNS, CapacityLimit
from hocket.coordinator.intake.intake import Intake
from hocket.coordinator.intake.task_acceptance import TaskAcceptance
from hocket.coordinator.intake.task_admission import TaskAdmission
from hocket.coordinator.intake.task_rejection import TaskRejection
from hocket.coordinator.intake.task_trimmer import TaskTrimmer
from hocket.coordinator.intake.tasks_in_hand import TasksInHand
from hocket.coordinator.intake.waiting_tenants import WaitingTenants
from hocket.coordinator.journals.door import JournalDoor
from hocket.coordinator.journals.former_runs import FormerRuns
from hocket.coordinator.metrics import CoordinatorMetrics
from hocket.coordinator.ownership.leases import Ownership
from hocket.coordinator.partition.events.log_posts import LogPosts
from hocket.coordinator.partition.events.log_trimmer import LogTrimmer
from hocket.coordinator.partition.partition_set import PartitionSet
from hocket.coordinator.partition.runs.caller_replies import CallerReplies
from hocket.coordinator.partition.runs.change_publisher import ChangePublisher
from hocket.coordinator.partition.shared_services import SharedServices
from hocket.coordinator.storage.cache_store import CacheStore
from hocket.coordinator.storage.committer import Committer
from hocket.coordinator.storage.pipelines.duration_stats import Durations
from hocket.coordinator.storage.pipelines.pipeline_catalog import Catalog
from hocket.coordinator.storage.pipelines.pipeline_store import PipelineStore
from hocket.coordinator.storage.source_runs import Origins
from hocket.coordinator.storage.step_cache import StepCache
from hocket.coordinator.storage.store import Store
from hocket.kit.access import grant_store
from hocket.kit.access.grant_book import GrantBook
from hocket.kit.access.key_book import KeyBook
from hocket.kit.access.key_source import DatabaseKeys
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.consumers.step_consumers import StepConsumersDoor
from hocket.kit.nats.kv.bucket import Bucket
from hocket.kit.nats.kv.entry import Leases
from hocket.kit.nats.streams import ensure_streams
from hocket.kit.postgres.migrations import wait_current
from hocket.kit.process.capability_key import platform_capabilities, usage_seals_of
from hocket.kit.process.installation import agree_on_partitions
from hocket.kit.process.lifecycle import Health, Service
from hocket.kit.process.limits.disk_space import UNWATCHED, DiskSpace
from hocket.schemas import subjects
from hocket.schemas.capabilities import Capabilities
from hocket.schemas.errors import HocketError

POOL_SIZE = 6
TABLES_TIMEOUT_MS = 30_000.0
WINDOW = 16_384
TRIMS = 0
"""The owner of this partition makes room in the streams of tasks and of all logs."""


async def main(service: Service) -> None:
    """Coordinate a share of the partitions until asked to stop."""
    settings = service.settings
    bus = await service.bus(window=WINDOW)
    await ensure_streams(bus, replicas=settings.stream_replicas)
    if settings.stream_replicas == 1:  # others write before they acknowledge
        bus.checks.append(partial(restore_count, bus))
        await restore_count(bus)
    await wait_current(settings.database_url, TABLES_TIMEOUT_MS, service.health.report)
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
    key_book = KeyBook(DatabaseKeys(pool))
    name = settings.instance or f"{socket.gethostname()}-{os.getpid()}"
    coordinator = build_coordinator(
        bus,
        Store(pool),
        CacheStore(pool),
        PipelineStore(pool),
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
        scaling_horizon_s=settings.scaling_horizon_s,
        capabilities=capabilities,
        asks_for_seals=settings.asks_for_seals,
        usage_seals=usage_seals_of(settings),
        disk=service.disk,
        grants=grants,
        flow_store=FlowStore(pool),
        key_book=key_book,
    )
    async with (
        StepConsumersDoor(bus).open(),
        JournalDoor(bus, capabilities, FormerRuns(pool)).open(),
        GuestPosts(bus, partitions=settings.partitions).open(),
        leases.watching(),
        grants.running(),
        key_book.running(),
    ):
        serving = asyncio.create_task(_say_when_settled(service, coordinator))
        sweeping = asyncio.create_task(keep_removing(bus, is_mine=lambda: coordinator.owns(0)))
        try:
            await coordinator.run(service.stopping)
        finally:
            serving.cancel()
            sweeping.cancel()


def build_coordinator(
    bus: Bus,
    store: Store,
    cache_store: CacheStore,
    pipeline_store: PipelineStore,
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
    scaling_horizon_s: float = SCALING_HORIZON_S,
    max_runs: int = MAX_RUNS,
    capabilities: Capabilities | None = None,
    asks_for_seals: bool = True,
    usage_seals: Capabilities | None = None,
    disk: DiskSpace = UNWATCHED,
    grants: GrantBook | None = None,
    flow_store: FlowStore | None = None,
    key_book: KeyBook | None = None,
) -> Coordinator:
    """Assemble a coordinator. `name` must be unique among the coordinators of an installation."""
    durations = Durations(pipeline_store)
    catalog = Catalog(pipeline_store, durations)
    flow: FlowController | None = None
    if flow_store is not None:
        flow = FlowController(
            bus,
            flow_store,
            LogPosts(bus, capabilities, partitions=partitions),
            metrics,
            is_mine=lambda: NET_OF in owned,
        )
    touched = (lambda queues: None) if flow is None else flow.touch
    committer = Committer(store, health, metrics, ChangePublisher(bus).committed, touched)
    step_cache = StepCache(
        bus, cache_store, metrics, partitions=partitions, capabilities=capabilities
    )
    gate = Gate(
        tenant_weights,
        order=order,
        interactive_share=interactive_share,
        tenant_reserve=tenant_reserve,
        holds_unserved=gated,
    )
    load = Load(Backlog(tenant_weights), gate, scaling_horizon_s=scaling_horizon_s)
    sizes = BundleSizes()
    dispatcher = Dispatcher(
        bus,
        metrics,
        gate,
        load,
        StepPublisher(
            bus,
            grants or GrantBook(),
            sizes,
            by_slack=order == "slack",
            capabilities=capabilities,
        ),
        sizes,
        partitions=partitions,
        gated=gated,
    )
    task_trimmer = TaskTrimmer(
        bus, is_mine=lambda: TRIMS in owned, is_watched=lambda: bool(capacity.over_share())
    )
    services = SharedServices(
        partitions=partitions,
        bus=bus,
        store=store,
        catalog=catalog,
        durations=durations,
        committer=committer,
        step_cache=step_cache,
        dispatcher=dispatcher,
        load=load,
        metrics=metrics,
        capabilities=capabilities,
        asks_for_seals=asks_for_seals,
        usage_seals=usage_seals,
        key_book=key_book,
        task_trimmer=task_trimmer,
    )
    owned = PartitionSet(services, name)
    trimmer = LogTrimmer(bus, store, partitions=partitions, is_mine=lambda: TRIMS in owned)
    capacity = CapacityLimit(
        max_runs,
        owned.held,
        owned.held_by,
        disk,
        lambda: trimmer.reason,
    )
    waiting = WaitingTenants(bus, capacity)
    ownership = Ownership(
        leases,
        health,
        name=name,
        incarnation=bus.nc.new_inbox().rsplit(".", 1)[1],
        partitions=partitions,
        take=owned.take,
        leave=owned.leave,
        drop=owned.drop,
        capacity=capacity,
    )
    intake = build_intake(
        bus,
        store,
        catalog,
        health,
        metrics,
        durations,
        load,
        partitions=partitions,
        max_task_bytes=max_task_bytes,
        is_full=waiting.pauses,
        full_because=lambda: capacity.reason,
        over_share=waiting.refusal,
        capabilities=capabilities,
        key_book=key_book,
        done=task_trimmer.done,
    )
    metrics.in_flight.set_function(owned.in_flight)
    metrics.owned.set_function(owned.__len__)
    return Coordinator(
        bus,
        durations=durations,
        committer=committer,
        step_cache=step_cache,
        dispatcher=dispatcher,
        partitions=owned,
        trimmer=trimmer,
        task_trimmer=task_trimmer,
        waiting=waiting,
        ownership=ownership,
        intake=intake,
        flow=flow,
    )


def build_intake(
    bus: Bus,
    store: Store,
    catalog: Catalog,
    health: Health,
    metrics: CoordinatorMetrics,
    durations: Durations,
    load: Load,
    *,
    partitions: int,
    max_task_bytes: int,
    is_full: Callable[[], bool] = lambda: False,
    full_because: Callable[[], str] = lambda: "",
    over_share: Callable[[str], HocketError | None] = lambda tenant: None,
    capabilities: Capabilities | None = None,
    key_book: KeyBook | None = None,
    done: Callable[[str], None] | None = None,
) -> Intake:
    """Assemble the intake of a coordinator. `done` acknowledges a task."""
    done = done or bus.ack
    posts = AcceptancePosts(LogPosts(bus, capabilities, partitions=partitions))
    rejection = TaskRejection(bus, metrics, done=done)
    overload = Overload(bus, durations, load, metrics, post=posts.post)
    admission = TaskAdmission(
        bus,
        metrics,
        replies=CallerReplies(bus, key_book),
        acceptance=TaskAcceptance(catalog, Origins(store, catalog)),
        rejection=rejection,
        overload=overload,
        posts=posts,
        over_share=over_share,
        done=done,
        partitions=partitions,
    )
    return Intake(
        store,
        health,
        metrics,
        tasks=TasksInHand(bus, max_task_bytes=max_task_bytes, is_full=is_full),
        admission=admission,
        rejection=rejection,
        overload=overload,
        is_full=is_full,
        full_because=full_because,
    )


async def _say_when_settled(service: Service, coordinator: Coordinator) -> None:
    await coordinator.settled()
    service.started()
    service.log.info("coordinator_serving", partitions=service.settings.partitions)
