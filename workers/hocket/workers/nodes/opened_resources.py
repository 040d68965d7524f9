"""Opens the resources that nodes share when a worker process starts, and closes them when it ends."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from hocket.kit.postgres.migrations import wait_current
from hocket.kit.process.handler_allowlist import allowed_handlers
from hocket.kit.process.lifecycle import Service
from hocket.kit.process.settings import Settings
from hocket.schemas.pipeline.handlers import AllowedHandlers
from hocket.schemas.subjects import type_of
from hocket.workers.configuration import Configuration
from hocket.workers.http.services import Services
from hocket.workers.mcp.servers import McpServers
from hocket.workers.nats.services import NatsServices
from hocket.workers.nodes.resources import Resources
from hocket.workers.retrieval.connections import IndexConnections
from hocket.workers.runtime.execution.step_threads import StepThreads
from hocket.workers.sql.targets import Targets

INDEX_POOL_SIZE = 8
TABLES_TIMEOUT_MS = 120_000.0
IMPORTING_THREADS = 8
"""Threads for importing the modules of handlers, in addition to those of the slots."""


@asynccontextmanager
async def opened_resources(
    service: Service,
    configuration: Configuration,
    settings: Settings,
    sections: Mapping[str, Any],
    types: Sequence[str],
) -> AsyncIterator[Resources]:
    """Yield the resources of these node types, or of queues of them (`python@gpu`)."""
    slots = configuration.slots(types)
    of_python = sum(count for pool, count in slots.items() if type_of(pool) == "python")
    threads = StepThreads(max(1, of_python) + IMPORTING_THREADS)
    targets = Targets(configuration.databases)
    services = Services(configuration.http_services, service.secrets)
    mcp_servers = McpServers(configuration.mcp_servers, service.secrets)
    nats_services = NatsServices(configuration.nats_services, service.secrets)
    has_retrieval = "retrieval" in map(type_of, types)
    try:
        if has_retrieval or configuration.blobs.store == "postgres":
            await wait_current(settings.database_url, TABLES_TIMEOUT_MS, service.health.report)
        yield Resources(
            threads=threads,
            targets=targets,
            handlers=allowed_handlers(settings, sections) or AllowedHandlers(),
            services=services,
            mcp_servers=mcp_servers,
            nats_services=nats_services,
            index=await _index(service) if has_retrieval else None,
        )
    finally:
        await targets.close()
        await services.close()
        await mcp_servers.close()
        await nats_services.close()
        threads.close()


async def _index(service: Service) -> IndexConnections:
    return IndexConnections(await service.pool(INDEX_POOL_SIZE))
