"""The gateway process: routes, doors, booking, reload, draining.

States: starting (routes are read; a bad configuration ends the process with the field and the
cure), serving, draining (on SIGTERM: no new calls, those in flight end within a time limit, and
their records are acknowledged), stopped. The configuration is read again on SIGHUP and when its
file changes; a bad one is reported, and the old one stays in force. While NATS is unreachable,
calls at backends continue, and replies wait until their records are acknowledged. If no usage
journal can be created, every reply waits for that.
"""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from functools import partial

import structlog

from hocket.gateway.accounting.booking import Booking
from hocket.gateway.accounting.budget_store import BudgetStore
from hocket.gateway.accounting.journal_recovery import JournalRecovery
from hocket.gateway.accounting.run_charges import ChargingRecorder, RunCharges
from hocket.gateway.accounting.shared_budgets import SharedBudgets
from hocket.gateway.accounting.spending import Spending
from hocket.gateway.accounting.spent_before import SpentBefore
from hocket.gateway.accounting.usage_journal import UsageJournal
from hocket.gateway.api.control import ControlDoor
from hocket.gateway.api.http.door import HttpDoor
from hocket.gateway.api.http.keys import DoorKeys
from hocket.gateway.api.nats import NatsDoor
from hocket.gateway.calls.lifecycle import Calls
from hocket.gateway.calls.registry import MAX_CALLS, CallRegistry
from hocket.gateway.capacity.membership import Membership, name_of
from hocket.gateway.capacity.shared_limits import SharedLimits
from hocket.gateway.config.backend_pool import retire_missing
from hocket.gateway.config.granted_models import GrantedModels
from hocket.gateway.config.reading import read_routes
from hocket.gateway.config.reload import Hangups, Reload
from hocket.gateway.config.routes import Routes
from hocket.gateway.content.recorder import ContentRecorder
from hocket.gateway.core.config.access import Access
from hocket.gateway.core.config.table import RoutingTable
from hocket.gateway.core.routing import membership_records
from hocket.gateway.experiments.door import ExperimentsDoor, publish_fact
from hocket.gateway.experiments.experiments import Experiments
from hocket.gateway.metrics import GatewayMetrics
from hocket.gateway.operations.door import ReplicasDoor
from hocket.gateway.operations.replica_orders import ReplicaOrders
from hocket.gateway.operations.replica_states import ReplicaStates
from hocket.gateway.warming.coordination import Warming
from hocket.gateway.warming.prefill import Prefilling
from hocket.gateway.warming.replica_manager import ReplicaManager
from hocket.gateway.warming.replica_usage import ReplicaUsage
from hocket.gateway.warming.warm_usage import WarmUsage
from hocket.kit.access.grant_book import GrantBook
from hocket.kit.access.key_book import KeyBook
from hocket.kit.access.key_source import AskedKeys
from hocket.kit.identity.configured import closed_at_the_end, token_bearers_of
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.nats.kv.bucket import Bucket
from hocket.kit.nats.streams import StreamRefused, ensure_streams
from hocket.kit.process import clock
from hocket.kit.process.capability_key import capabilities_of, usage_seals_of
from hocket.kit.process.lifecycle import Service
from hocket.kit.process.settings import Settings
from hocket.kit.web_requests import WebRules
from hocket.schemas import subjects
from hocket.schemas.capabilities import Capabilities

DRAIN_MS = 15_000.0
FLUSH_MS = 5_000.0
"""DRAIN_MS and FLUSH_MS together are less than the time
that `kit.lifecycle` gives a stopping process."""
WARM_FLUSH_S = 2.0
BOOKING_MS = 2_000.0
"""How long records in the journal may take to be stored at the end."""
BUDGETS_S = 1.0
"""How long giving back claims on budgets may take."""
JOURNALS = "usage"
"""The folder of usage journals in the data folder."""
LOOPBACK = ("127.0.0.1", "::1", "localhost")
WATCH_MS = 1_000.0

log = structlog.get_logger()


async def main(service: Service) -> None:
    """Serve calls until the service is asked to stop."""
    await serve(service)


async def serve(
    service: Service,
    opened: Callable[[CallRegistry], None] | None = None,
    quiet: Callable[[], Awaitable[object]] | None = None,
) -> None:
    """Serve calls until the service is asked to stop.

    Once calls can be made, `opened` is called with the registry, through which this process may
    start calls of its own. On shutdown `quiet` is awaited, after which it must start no more.
    Resources are closed in reverse order of opening.
    """
    with Hangups() as hangups:
        await _serve(service, hangups, opened, quiet)


async def _serve(
    service: Service,
    hangups: Hangups,
    opened: Callable[[CallRegistry], None] | None,
    quiet: Callable[[], Awaitable[object]] | None,
) -> None:
    settings = service.settings
    metrics = GatewayMetrics(service.telemetry.registry)
    bus = await service.bus(prompt=True)
    await ensure_streams(bus, replicas=settings.stream_replicas)
    routes = await read_routes(settings.config)
    seals = _seals(settings)
    membership = Membership(_bucket(bus, settings), service.health, name=name_of(settings.instance))
    async with AsyncExitStack() as stack:
        books = Booking(bus, metrics, _journal(settings), seals)
        charges = None if seals is None else RunCharges(bus, seals, settings.partitions)
        experiments = Experiments(
            membership,
            now_ms=clock.now_ms,
            publish=partial(publish_fact, bus, seals),
            metrics=metrics,
        )
        usage = ReplicaUsage()
        calls = Calls(
            routes,
            now_ms=clock.now_ms,
            books=books if charges is None else ChargingRecorder(books, charges),
            gateway=f"{socket.gethostname()}:{os.getpid()}",
            metrics=metrics,
            usage=usage,
            experiments=experiments,
            spending=Spending(
                routes.budgets,
                clock.now_ms,
                await _shared_budgets(bus, membership, seals, settings),
                lambda *run: None if charges is None else charges.forget(*run),
            ),
            gateways=lambda: len(membership.live),
            charge=None if charges is None else charges.charge_untold,
        )
        stack.push_async_callback(calls.spending.close, BUDGETS_S)
        stack.push_async_callback(_retire_backends, calls)
        stack.push_async_callback(books.close, BOOKING_MS)
        experiments.use(routes.experiments, routes.table)
        membership.observe(experiments.look)
        limits = SharedLimits(membership, calls.scheduler, routes.table, clock.now_ms)
        warm_usage = WarmUsage(bus, seals)
        warming = Warming(
            bus,
            membership,
            calls.scheduler,
            now_ms=clock.now_ms,
            usage=usage,
            book=warm_usage.book,
            metrics=metrics,
        )
        content = ContentRecorder(
            bus,
            lambda: calls.routes.content,
            service.telemetry.registry,
            seals,
            pipeline_of=calls.spending.runs.pipeline_of,
        )
        await stack.enter_async_context(content.running())
        grants = GrantBook(None if seals is None else AskedKeys(bus, seals).grants)
        await stack.enter_async_context(grants.running())
        granted = GrantedModels(grants)
        registry = CallRegistry(
            calls,
            metrics,
            max_calls=MAX_CALLS,
            learn=warming.learn,
            record=content.record,
            check=granted.check,
            shown=granted.shown,
        )
        trials = ExperimentsDoor(bus, experiments)

        def use(routes: Routes) -> None:
            limits.use(routes.table)
            calls.replace(routes)
            warming.use(routes)
            trials.listen_anew()

        reload = Reload(settings.config, routes, use, service.health)
        await stack.enter_async_context(membership.active(service.stopping))
        recovery = JournalRecovery(settings.data_dir / JOURNALS, books)
        await stack.enter_async_context(recovery.running())
        stack.push_async_callback(limits.close)
        stack.push_async_callback(warm_usage.flush, WARM_FLUSH_S)
        await warming.open(routes)
        stack.push_async_callback(warming.close)
        await limits.settled()
        control = ControlDoor(bus, lambda: calls.routes)
        await control.open()
        stack.push_async_callback(control.close)
        replicas = _replicas_door(bus, membership, calls, warming)
        await replicas.open()
        stack.push_async_callback(replicas.close)
        await trials.open()
        stack.push_async_callback(trials.close)
        door = NatsDoor(
            bus, registry, membership, _capabilities(settings), calls.spending.runs.as_stored
        )
        membership.observe(door.look)
        await door.open()
        stack.push_async_callback(door.close)
        book = KeyBook(AskedKeys(bus, seals), service.health.report)
        if settings.gateway_port >= 0:
            await stack.enter_async_context(book.running())
        tokens = token_bearers_of(settings, service.health.report)
        await stack.enter_async_context(closed_at_the_end(tokens))
        keys = DoorKeys(
            lambda: calls.routes.access,
            book,
            per_s=settings.key_requests_per_s,
            may_open=settings.gateway_host in LOOPBACK,
            tokens=tokens,
        )
        http = HttpDoor(registry, keys, metrics, _web_rules(settings), service.disk, granted.allows)
        stack.push_async_callback(http.close)
        url = await _open_http(http, settings, routes.access)
        stack.push_async_callback(_drain, registry, (door, http), quiet)
        prefilling = Prefilling(
            bus,
            membership,
            calls.scheduler,
            registry,
            lambda: calls.routes.table,
            clock.now_ms,
            metrics,
        )
        await prefilling.open()
        stack.push_async_callback(prefilling.close)
        if opened is not None:
            opened(registry)
        service.started()
        stack.enter_context(hangups.followed(reload.start))
        log.info("gateway_serving", models=calls.routes.table.names(), url=url)
        await _watched(service, reload)


def _replicas_door(
    bus: Bus, membership: Membership, calls: Calls, warming: Warming
) -> ReplicasDoor:
    """Return the operators' door for replicas, and begin to follow their orders."""

    def table() -> RoutingTable:
        return calls.routes.table

    def managers() -> Mapping[str, ReplicaManager]:
        return warming.managers

    orders = ReplicaOrders(membership, calls.scheduler.health, table, managers, clock.now_ms)
    orders.look()
    states = ReplicaStates(calls.scheduler, table, managers, orders, clock.now_ms)
    return ReplicasDoor(bus, membership, orders, states, calls.rates, calls.spending.told)


async def _shared_budgets(
    bus: Bus, membership: Membership, seals: Capabilities | None, settings: Settings
) -> SharedBudgets:
    """Return what is needed to share budgets, after creating their bucket."""
    store = BudgetStore(bus, seals, replicas=settings.stream_replicas)
    try:
        await store.open()
    except (BusUnavailable, StreamRefused) as error:
        log.warning("budget_bucket_not_made", reason=str(error))
    return SharedBudgets(store, SpentBefore(bus, seals), membership)


def _seals(settings: Settings) -> Capabilities | None:
    """Return the seals for usage records; None without a key."""
    seals = usage_seals_of(settings)
    if seals is None:
        log.warning(
            "usage_not_sealed",
            reason="neither HOCKET_CAPABILITY_KEY nor HOCKET_USAGE_KEY is set",
            cure="give gateways the key that ledgers have",
        )
    return seals


def _capabilities(settings: Settings) -> Capabilities | None:
    """Return the capabilities that attributions of calls are checked with; None without a key."""
    capabilities = capabilities_of(settings)
    if capabilities is None:
        log.warning(
            "calls_attributed_unchecked",
            reason="HOCKET_CAPABILITY_KEY is not set",
            cure="give gateways the coordinators' key",
        )
    return capabilities


def _web_rules(settings: Settings) -> WebRules:
    return WebRules.of(settings.gateway_host, settings.allowed_hosts, settings.allowed_origins)


async def _drain(
    registry: CallRegistry,
    doors: tuple[NatsDoor, HttpDoor],
    quiet: Callable[[], Awaitable[object]] | None,
) -> None:
    """Take no new calls, and let those in flight end and be booked, within a time limit."""
    log.info("gateway_draining", drain_ms=DRAIN_MS)
    until_ms = clock.monotonic_ms() + DRAIN_MS
    await asyncio.gather(*(door.stop_accepting() for door in doors))
    if quiet is not None:
        await quiet()
    left_ms = max(until_ms - clock.monotonic_ms(), 0.0)
    await registry.drain(drain_ms=left_ms, flush_ms=FLUSH_MS)


async def _retire_backends(calls: Calls) -> None:
    await retire_missing(calls.routes.served, {})


def _journal(settings: Settings) -> UsageJournal | None:
    """Return a journal for usage records; None if replies must wait for the disk."""
    if settings.gateway_answers_after == "flush":
        return None
    folder = settings.data_dir / JOURNALS
    try:
        return UsageJournal.create(folder)
    except OSError as error:
        cure = "Fix the data folder; until then, every answer waits for a flush."
        log.warning("usage_journal_missing", folder=str(folder), reason=str(error), cure=cure)
        return None


def _bucket(bus: Bus, settings: Settings) -> Bucket:
    return Bucket(
        bus,
        subjects.GATEWAYS,
        replicas=settings.stream_replicas,
        expected=membership_records.expected,
        capabilities=capabilities_of(settings),
    )


async def _open_http(http: HttpDoor, settings: Settings, access: Access) -> str:
    """Open the HTTP door and return its URL; an empty string if it is disabled."""
    if settings.gateway_port < 0:
        return ""
    url = await http.open(settings.gateway_host, settings.gateway_port)
    if access.open and settings.gateway_host not in LOOPBACK:
        reason = "`access.open` is allowed only on a loopback address"
        log.warning("http_door_not_opened", url=url, reason=reason, cure="send keys")
    return url


async def _watched(service: Service, reload: Reload) -> None:
    """Report the health of the bus and check the configuration until the service is asked to stop."""
    while not service.stopping.is_set():
        service.look()
        reload.look()
        with suppress(TimeoutError):
            await asyncio.wait_for(service.stopping.wait(), WATCH_MS / 1000)
