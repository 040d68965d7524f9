"""The worker process: configuration, resources, the worker, and the way down.

States: starting (a bad configuration ends the process with its field and cure), running, draining
(SIGTERM: nothing is fetched, what runs may end within `workers.drain_s`), stopped. A worker of which
more than half of the slots are held by functions that do not end drains by itself and ends with an
error, so that whoever supervises it starts it anew.
"""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Sequence

import structlog

from hocket.kit.blob_limits import MIB, LimitedBlobs
from hocket.kit.blobs import BlobStore, FileBlobs, PostgresBlobs
from hocket.kit.process import config
from hocket.kit.process.handler_allowlist import allowed_handlers
from hocket.kit.process.lifecycle import Service
from hocket.schemas.pipeline.handlers import AllowedHandlers
from hocket.schemas.subjects import type_of
from hocket.workers.configuration import Configuration, parse
from hocket.workers.errors import WorkerOverrun
from hocket.workers.http.services import Services
from hocket.workers.mcp.servers import McpServers
from hocket.workers.nodes.registry import handlers as node_handlers
from hocket.workers.nodes.resources import Resources
from hocket.workers.runtime.execution.metrics import Meters
from hocket.workers.runtime.execution.step_threads import StepThreads
from hocket.workers.runtime.execution.watchdog import LoopWatchdog
from hocket.workers.runtime.execution.worker import Worker
from hocket.workers.runtime.models.calls import Calls
from hocket.workers.runtime.transport.held_steps import HeldSteps
from hocket.workers.sql.targets import Targets

BLOB_POOL_SIZE = 4
INDEX_POOL_SIZE = 8
IMPORTING_THREADS = 8
"""Threads beside those of the slots, for importing the modules of handlers."""
BLOBS_EVERY_S = 3_600.0

log = structlog.get_logger(__name__)


def serve(
    types: Sequence[str], calls: Calls | None = None, handlers: str | None = None
) -> Callable[[Service], Awaitable[None]]:
    """Return the main function of a worker process for these node types (`python@gpu`: for a queue of
    one). Model calls go over NATS to
    whichever gateway takes them, or to `calls`. `handlers` stands in the place of HOCKET_HANDLERS."""

    async def main(service: Service) -> None:
        settings = service.settings
        if handlers is not None:
            settings = settings.model_copy(update={"handlers": handlers})
        sections = config.load(settings.config)
        configuration = parse(sections)
        slots = configuration.slots(types)
        bus = await service.bus()
        of_python = sum(count for pool, count in slots.items() if type_of(pool) == "python")
        threads = StepThreads(max(1, of_python) + IMPORTING_THREADS)
        targets = Targets(configuration.databases)
        services = Services(configuration.http_services, service.secrets)
        mcp_servers = McpServers(configuration.mcp_servers, service.secrets)
        resources = Resources(
            threads=threads,
            targets=targets,
            handlers=allowed_handlers(settings, sections) or AllowedHandlers(),
            services=services,
            mcp_servers=mcp_servers,
            index=await service.pool(INDEX_POOL_SIZE)
            if "retrieval" in map(type_of, types)
            else None,
        )
        blobs = await _blobs(service, configuration)
        max_bytes = configuration.blobs.max_mib * MIB
        removing = asyncio.create_task(_remove_unused(blobs, settings.keep_blobs_days))
        worker = Worker(
            bus,
            node_handlers(types, resources),
            slots,
            name=f"{socket.gethostname()}-{os.getpid()}",
            meters=Meters(service.telemetry.registry),
            blobs=None if blobs is None else LimitedBlobs(blobs, max_bytes=max_bytes),
            ack_wait_s=configuration.workers.ack_wait_s,
            calls=calls,
            report=service.health.report,
            overrun_s=configuration.workers.overrun_s,
            held=HeldSteps(settings.data_dir / "workers"),
        )
        watchdog = LoopWatchdog(configuration.workers.blocked_s)
        try:
            await worker.start()
            watchdog.start()
            service.started()
            await _either(service.stopping, worker.overrun)
            await worker.drain(configuration.workers.drain_s)
        finally:
            watchdog.stop()
            removing.cancel()
            await targets.close()
            await services.close()
            await mcp_servers.close()
            threads.close()
        if worker.overrun.is_set() and not service.stopping.is_set():
            raise WorkerOverrun

    return main


async def _either(*events: asyncio.Event) -> None:
    waits = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()


async def _remove_unused(blobs: BlobStore | None, days: int) -> None:
    """Remove blobs in files that nobody used for so long; the ledger removes those in Postgres."""
    while days and isinstance(blobs, FileBlobs):
        try:
            removed = await blobs.remove_unused(days)
        except OSError as error:
            log.warning("blobs_not_removed", reason=str(error))
        else:
            if removed:
                log.info("blobs_removed", blobs=removed, unused_days=days)
        await asyncio.sleep(BLOBS_EVERY_S)


async def _blobs(
    service: Service, configuration: Configuration
) -> FileBlobs | PostgresBlobs | None:
    blobs = configuration.blobs
    if blobs.store == "none":
        return None
    if blobs.store == "postgres":
        return PostgresBlobs(await service.pool(BLOB_POOL_SIZE))
    return FileBlobs(blobs.folder or service.settings.data_dir / "blobs")
