"""The health of the platform's parts as seen by the API process."""

import asyncio
from importlib.metadata import version

import asyncpg

from hocket.admin.context import Context
from hocket.admin.queries import Pool
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.postgres.database import said
from hocket.schemas import subjects
from hocket.schemas.rest import Part, SystemHealth

PROBE_TIMEOUT_S = 2.0
PROBE_TIMEOUT_MS = 2_000

PARTITIONS = """
SELECT count(*) AS partitions, count(*) FILTER (WHERE owner <> '') AS owned FROM hocket.partition
"""
"""How many partitions there are, and how many are owned by a coordinator."""


async def system_health(context: Context) -> SystemHealth:
    """Return the state of the parts: broker, disk, database, partitions and gateway."""
    parts = (
        _nats(context.bus),
        Part(name="disk", ok=not context.disk.low, detail=context.disk.reason or "there is room"),
        await _database(context.reserved or context.pool),
        await _gateway(context),
    )
    return SystemHealth(
        status="ok" if all(part.ok for part in parts) else "impaired",
        version=version("hocket"),
        parts=parts,
    )


async def database_answers(pool: Pool) -> bool:
    """Tell whether the database answers within PROBE_TIMEOUT_S."""
    return (await _database(pool)).ok


async def _database(pool: Pool) -> Part:
    try:
        async with asyncio.timeout(
            PROBE_TIMEOUT_S
        ):  # also for a connection: the pool may have none
            row = await pool.fetchrow(PARTITIONS)
    except (
        asyncpg.PostgresError,
        asyncpg.InterfaceError,
        asyncpg.InternalClientError,
        OSError,
    ) as error:
        return Part(name="database", ok=False, detail=said(error))
    assert row is not None, "an aggregate has a row"
    detail = f"{row['owned']} of {row['partitions']} partitions have an owner"
    return Part(name="database", ok=True, detail=detail)


async def _gateway(context: Context) -> Part:
    try:
        await context.bus.request(subjects.GATEWAY_MODELS, b"{}", timeout_ms=PROBE_TIMEOUT_MS)
    except (BusUnavailable, TimeoutError) as error:
        return Part(name="gateway", ok=False, detail=str(error) or "it does not answer")
    return Part(name="gateway", ok=True, detail="it answers")


def _nats(bus: Bus) -> Part:
    if not bus.connected:
        return Part(name="nats", ok=False, detail="not connected; it reconnects by itself")
    return Part(
        name="nats", ok=not bus.publisher.stalled, detail=bus.publisher.stalled or "connected"
    )
