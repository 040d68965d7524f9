"""What tenants may still put into the stream JOURNALS: one alone cannot fill it for all.

The stream says how full it is, and not with what. So what each tenant has of it is worked out of what it
wrote here lately; other coordinators see about the same of it. Where that is little, it says nothing,
and the tenant may write: a coordinator that has just started knows nobody who filled the stream.
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
"""Of the stream, for one tenant."""
KNOWN_SHARE = 1 / 16
"""Of that: so much each tenant may write here before it is counted against what others wrote."""
MEASURE_S = 5.0
REMAINS = 0.99
"""Of what was written, after each measurement: half of it is forgotten after six minutes."""
FORGOTTEN_BYTES = 1_024
"""A tenant of whom less remains is not counted any more."""
TIMEOUT_MS = 5_000.0

log = structlog.get_logger(__name__)


class JournalRoom:
    """How full the stream is, measured inside `measured`, and who wrote into it."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._written = Counter[str]()
        self._stored_bytes = 0
        self._max_bytes = 0

    @asynccontextmanager
    async def measured(self) -> AsyncIterator[None]:
        """Measure now and then, until the block ends."""
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
        """Return why a tenant may not write so much more; None where it may."""
        limit_bytes = TENANT_SHARE * self._max_bytes
        if self._stored_bytes + size_bytes <= limit_bytes:
            return None
        own = self._written[tenant] + size_bytes
        if own <= KNOWN_SHARE * limit_bytes:
            return None
        held_bytes = self._stored_bytes * own / (self._written.total() + size_bytes)
        if not limit_bytes or held_bytes <= limit_bytes:
            return None
        mib = f"{held_bytes / 2**20:.0f} MiB, and {limit_bytes / 2**20:.0f} MiB are the limit"
        return f"journals of the tenant's runs come to about {mib}"

    async def measure(self) -> None:
        """Ask the stream how full it is, and forget a part of what was written."""
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
