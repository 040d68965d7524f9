"""Connections to the index, of which the searches of one tenant take at most half.

A search that finds no connection waits; searches are served in the order of arrival among the tenants
that are below their share.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import asyncpg

from hocket.kit.process.limits.tenant_places import TenantPlaces
from hocket.workers.retrieval.errors import IndexBusy

TENANT_SHARE: Final = 0.5
"""The part of the connections that one tenant's searches may take; at least one."""
KEPT_FREE: Final = 1
"""Connections that no search takes: the worker checks with it whether Postgres answers."""


class IndexConnections:
    """A pool of connections, shared among tenants."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool
        size = pool.get_max_size()
        self._of_all = max(1, size - KEPT_FREE)
        self._of_tenant = max(1, int(size * TENANT_SHARE))
        self._places = TenantPlaces(self._of_all, self._of_tenant)

    @asynccontextmanager
    async def connection(
        self, tenant: str, *, timeout_s: float
    ) -> AsyncIterator["asyncpg.pool.PoolConnectionProxy[asyncpg.Record]"]:
        """Hold a connection while the block lasts. Raises IndexBusy if none becomes free in time, and
        TimeoutError if Postgres does not answer in time."""
        loop = asyncio.get_running_loop()
        ends_at_s = loop.time() + timeout_s
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout_at(ends_at_s):
                    await held.enter_async_context(self._places.place(tenant))
            except TimeoutError as error:
                raise IndexBusy(
                    waited_ms=round(timeout_s * 1000),
                    tenant=tenant,
                    of_tenant=self._of_tenant,
                    of_all=self._of_all,
                ) from error
            left_s = max(ends_at_s - loop.time(), 0.001)
            yield await held.enter_async_context(self._pool.acquire(timeout=left_s))
