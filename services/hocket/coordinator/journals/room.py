"""How much tenants may still put into the stream JOURNALS: none may fill it for all.

The stream reports how full it is, but not with what. So each tenant's share is estimated from what
it wrote here lately, because other coordinators see about the same proportions. If that is little,
it proves nothing, and the tenant may write: a coordinator that has just started does not know who
filled the stream.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.process.task_stop import stop_tasks
from hocket.schemas.subjects import JOURNALS

TENANT_SHARE = 0.5
"""The share of the stream for one tenant."""
KNOWN_SHARE = 1 / 16
"""The share of that which each tenant may write here before it is compared with what others wrote."""
MEASURE_S = 5.0
REMAINS = 0.99
"""The share of what was written that remains after each measurement: half of it is forgotten after
six minutes."""
FORGOTTEN_BYTES = 1_024
"""A tenant with less than this remaining is no longer counted."""
TIMEOUT_MS = 5_000.0

log = structlog.get_logger(__name__)


class JournalRoom:
    """How full the stream is, measured inside `measured`, and who wrote to it."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._written = Counter[str]()
        self._stored_bytes = 0
        self._max_bytes = 0

    @asynccontextmanager
    async def measured(self) -> AsyncIterator[None]:
        """Measure regularly, until the block ends."""
        measuring = asyncio.create_task(self._keep_measuring(), name="journals measured")
        try:
            yield
        finally:
            await stop_tasks([measuring])

    def wrote(self, tenant: str, size_bytes: int) -> None:
        """Count what a tenant wrote."""
        self._written[tenant] += size_bytes
        self._stored_bytes += size_bytes

    def refusal(self, tenant: str, size_bytes: int) -> str | None:
        """Return why a tenant may not write this much more; None if it may."""
        limit_bytes = TENANT_SHARE * self._max_bytes
        if self._stored_bytes + size_bytes <= limit_bytes:
            return None
        own = self._written[tenant] + size_bytes
        if own <= KNOWN_SHARE * limit_bytes:
            return None
        held_bytes = self._stored_bytes * own / (self._written.total() + size_bytes)
        if not limit_bytes or held_bytes <= limit_bytes:
            return None
        mib = f"{held_bytes / 2**20:.0f} MiB; the limit is {limit_bytes / 2**20:.0f} MiB"
        return f"journals of the tenant's runs come to about {mib}"

    async def measure(self) -> None:
        """Ask the stream how full it is, and forget a share of what was written."""
        info = await self._bus.api(f"STREAM.INFO.{JOURNALS}", {}, timeout_ms=TIMEOUT_MS)
        self._stored_bytes = int((info.get("state") or {}).get("bytes", 0))
        self._max_bytes = max(0, int((info.get("config") or {}).get("max_bytes", 0)))
        for tenant, written in list(self._written.items()):
            remains = int(written * REMAINS)
            if remains < FORGOTTEN_BYTES:
                del self._written[tenant]
            else:
                self._written[tenant] = remains

    async def _keep_measuring(self) -> None:
        while True:
            try:
                await self.measure()
            except BusUnavailable as error:
                log.info("journals_not_measured", reason=str(error))
            await asyncio.sleep(MEASURE_S)
