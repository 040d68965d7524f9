"""A limited number of places, taken in turn, of which one tenant can never hold all: its clients wait
for each other, so that those of other tenants find a place."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class _Own:
    """The places of one tenant, and how many of its clients hold or want one."""

    places: asyncio.Semaphore
    clients: int = 0


class TenantPlaces:
    """`places` in all, `of_tenant` of which one tenant may have."""

    def __init__(self, places: int, of_tenant: int) -> None:
        self._all = asyncio.Semaphore(places)
        self._of_tenant = of_tenant
        self._tenants: dict[str, _Own] = {}

    @asynccontextmanager
    async def place(self, tenant: str) -> AsyncIterator[None]:
        """Hold a place while the block lasts. Nothing inside the block may wait for the client."""
        own = self._tenants.get(tenant)
        if own is None:
            own = self._tenants[tenant] = _Own(asyncio.Semaphore(self._of_tenant))
        own.clients += 1
        try:
            async with own.places, self._all:
                yield
        finally:
            own.clients -= 1
            if not own.clients:
                del self._tenants[tenant]
