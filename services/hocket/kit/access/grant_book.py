"""The grants of all tenants in the memory of a process, kept up to date.

A coordinator reads them from Postgres, a gateway asks the REST service. A change takes effect everywhere
within EVERY_S and one query. While the source does not answer, the known grants remain in force.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import structlog

from hocket.kit.logs.log_limits import Reporting
from hocket.kit.postgres.database import said
from hocket.kit.process.task_stop import stop_tasks
from hocket.schemas.access.grants import EVERYTHING, Grants
from hocket.schemas.access.key_messages import GrantsRow

EVERY_S = 1.0
"""Seconds between two reads of the changes."""

log = structlog.get_logger(__name__)

Read = Callable[[int], Awaitable[Sequence[GrantsRow]]]
"""Returns a page of the grants that changed after a change number, the earliest first."""


class GrantBook:
    """Grants by tenant. `read` returns pages of changes; without it, every tenant may use everything."""

    def __init__(self, read: Read | None = None) -> None:
        self._read = read
        self._grants: dict[str, Grants] = {}
        self._change = 0
        self._reporting = Reporting()

    def of(self, tenant: str) -> Grants:
        """Return what a tenant's pipelines may use."""
        return self._grants.get(tenant, EVERYTHING)

    async def load(self) -> None:
        """Read all changes since the last call. Raises what the source raises."""
        while self._read is not None and (page := await self._read(self._change)):
            for row in page:
                self._take(row)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep the grants up to date inside the block."""
        task = asyncio.create_task(self._keep(), name="grants")
        try:
            yield
        finally:
            await stop_tasks([task])

    async def _keep(self) -> None:
        while self._read is not None:
            try:
                await self.load()
            except Exception as error:  # whatever it is, the next round tries again
                if count := self._reporting.due("behind"):
                    log.warning("grants_not_read", reason=said(error), count=count)
            await asyncio.sleep(EVERY_S)

    def _take(self, row: GrantsRow) -> None:
        self._change = max(self._change, row.change)
        if row.grants == EVERYTHING:
            self._grants.pop(row.tenant, None)
        else:
            self._grants[row.tenant] = row.grants
