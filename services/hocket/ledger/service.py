"""The ledger process: waits for the platform's tables and streams, then books usage until stopped.

With several ledgers, the opening of a call may be written after another ledger has booked it. Its
row in `hocket.open_call` is then useless; such rows are swept, and reports do not show them in the
meantime.
"""

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from decimal import Decimal
from typing import TYPE_CHECKING

import asyncpg

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.streams import ensure_streams
from hocket.kit.postgres.errors import STATEMENT_ERRORS
from hocket.kit.postgres.migrations import wait_current
from hocket.kit.process.capability_key import platform_capabilities, usage_seals_of
from hocket.kit.process.lifecycle import Service
from hocket.kit.process.settings import Settings
from hocket.ledger import step_journals
from hocket.ledger.content.door import ContentDoor
from hocket.ledger.kinds import settle
from hocket.ledger.lines.door import LineDoor
from hocket.ledger.metrics import LedgerMetrics
from hocket.ledger.records.intake import ANNOUNCED, BOOKED, Intake
from hocket.ledger.spent import SpentDoor
from hocket.ledger.store import sweep
from hocket.ledger.upkeep import day_partitions, period_advice, step_days, usage_partitions
from hocket.ledger.upkeep.janitor import Janitor, JanitorMetrics
from hocket.ledger.upkeep.retention import Periods
from hocket.ledger.upkeep.rollups import RollupMetrics, Rollups
from hocket.schemas.capabilities import Capabilities
from hocket.schemas.tracing.sampling import SamplingRule

if TYPE_CHECKING:
    from hocket.ledger.traces.export import TraceExport

POOL_SIZE = 4
TABLES_TIMEOUT_MS = 120_000.0
SWEEP_S = 60.0


async def main(service: Service) -> None:
    """Book usage records until the service is asked to stop."""
    bus = await service.bus()
    await ensure_streams(bus, replicas=service.settings.stream_replicas)
    await wait_current(service.settings.database_url, TABLES_TIMEOUT_MS, service.health.report)
    pool = await service.pool(POOL_SIZE)
    async with pool.acquire() as connection:
        await day_partitions.make_ahead(connection)
        await usage_partitions.make_ahead(connection, service.settings.keep_usage_days)
        await step_days.make_ahead(connection, service.settings.keep_runs_days)
    metrics = LedgerMetrics(service.telemetry.registry)
    service.started()
    service.log.info("ledger_serving")
    settings = service.settings
    periods = Periods(
        runs=settings.keep_runs_days,
        rejected=settings.keep_rejected_days,
        usage=settings.keep_usage_days,
        durations=settings.keep_durations_days,
        blobs=settings.blob_days,
        content=settings.keep_content_days,
    )
    of_tenants = settings.keep_by_tenant
    for advice in period_advice.all_of(periods, of_tenants):
        service.log.warning(advice.event, field=advice.field, cure=advice.cure)
    janitor = Janitor(pool, periods, JanitorMetrics(service.telemetry.registry), of_tenants)
    rollups = Rollups(pool, RollupMetrics(service.telemetry.registry))
    writing = asyncio.Lock()
    seals = usage_seals_of(settings)
    if seals is None or not settings.asks_for_seals:
        service.log.warning(
            "usage_unchecked",
            reason="HOCKET_ASKS_FOR_SEALS is off" if seals else "HOCKET_CAPABILITY_KEY is not set",
            cure="give ledgers and gateways the coordinators' key, and have seals asked for",
        )
        seals = None
    intakes = (
        Intake(bus, pool, service.health, metrics, source, writing=writing, seals=seals)
        for source in (BOOKED, ANNOUNCED)
    )
    async with (
        SpentDoor(bus, pool, seals).open(),
        ContentDoor(bus, pool, seals).open(),
        _line_door(service, bus, pool, await _proofs(settings, pool)),
        asyncio.TaskGroup() as tasks,
    ):
        for intake in intakes:
            tasks.create_task(intake.run(service.stopping))
        tasks.create_task(_swept(service, pool))
        tasks.create_task(janitor.run(service.stopping))
        tasks.create_task(step_journals.remove_forever(bus, pool, service.stopping))
        tasks.create_task(rollups.run(service.stopping))
        if settings.otlp_endpoint is not None:
            tasks.create_task(_export(service, bus, pool).run(service.stopping))


async def _proofs(settings: Settings, pool: asyncpg.Pool) -> Capabilities | None:
    """Return the capabilities by which log lines are verified;
    None if this ledger has only another key."""
    if settings.capability_key is None and settings.usage_key is not None:
        return None
    return await platform_capabilities(settings, pool)


def _line_door(
    service: Service, bus: Bus, pool: asyncpg.Pool, proofs: Capabilities | None
) -> AbstractAsyncContextManager[None]:
    """Return the door for handlers' log lines, open inside its block."""
    if proofs is not None:
        return LineDoor(bus, pool, proofs).open()
    cure = "give ledgers HOCKET_CAPABILITY_KEY, by which lines of handlers are believed"
    service.log.warning("log_lines_not_taken", reason="only HOCKET_USAGE_KEY is set", cure=cure)
    return nullcontext()


def _export(service: Service, bus: Bus, pool: asyncpg.Pool) -> "TraceExport":
    """Return the exporter of traces.

    Imported here because OpenTelemetry's SDK takes 150 ms to import.
    """
    from hocket.ledger.traces.export import TraceExport, TraceMetrics
    from hocket.ledger.traces.otlp import OtlpSender

    settings = service.settings
    assert settings.otlp_endpoint is not None
    rule = SamplingRule(
        settings.trace_ratio, settings.trace_slow_ms, Decimal(str(settings.trace_expensive_usd))
    )
    metrics = TraceMetrics(service.telemetry.registry)
    return TraceExport(bus, pool, rule, OtlpSender(settings.otlp_endpoint), metrics)


async def _swept(service: Service, pool: asyncpg.Pool) -> None:
    """Sweep periodically until the service is asked to stop."""
    while not service.stopping.is_set():
        with suppress(TimeoutError):
            await asyncio.wait_for(service.stopping.wait(), SWEEP_S)
        try:
            await sweep(pool)
            await settle(pool)
        except STATEMENT_ERRORS as error:
            service.log.info("ledger_sweep_failed", reason=repr(error))
