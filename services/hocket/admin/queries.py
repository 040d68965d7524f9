"""What queries of the API share: the pool type, the time limit, and how pages of large rows are read."""

import asyncio
from collections.abc import AsyncIterable, Callable, Sequence
from datetime import datetime
from typing import Any, TypeAlias

import asyncpg

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"

QUERY_TIMEOUT_S = 10.0
"""How long one query may take; long reports belong in a BI tool on the schema `report`."""
ROWS_AT_ONCE = 8
"""Large rows fetched per query, so that those beyond a page are not read."""
DATABASE_NOW = "SELECT clock_timestamp()"


async def database_now(connection: "Pool | asyncpg.Connection") -> datetime:
    """Return the time by Postgres's clock, which is the same for all processes."""
    now = await connection.fetchval(DATABASE_NOW, timeout=QUERY_TIMEOUT_S)
    assert isinstance(now, datetime)
    return now


async def large_rows(
    pool: Pool,
    query: str,
    arguments: Sequence[Any],
    *,
    limit: int,
    limit_bytes: int,
    size_of: Callable[[asyncpg.Record], int],
) -> tuple[list[asyncpg.Record], bool]:
    """Return the same as `rows_up_to`, over a connection of a pool, within QUERY_TIMEOUT_S."""
    async with (
        asyncio.timeout(QUERY_TIMEOUT_S),
        pool.acquire() as connection,
        connection.transaction(readonly=True),
    ):
        return await rows_up_to(
            connection.cursor(query, *arguments, prefetch=ROWS_AT_ONCE),
            limit=limit,
            limit_bytes=limit_bytes,
            size_of=size_of,
        )


async def rows_up_to(
    rows: AsyncIterable[asyncpg.Record],
    *,
    limit: int,
    limit_bytes: int,
    size_of: Callable[[asyncpg.Record], int],
) -> tuple[list[asyncpg.Record], bool]:
    """Return a page of rows, and whether there are more. It ends after `limit` rows, and with the row
    whose size exceeds `limit_bytes` together with those before."""
    page: list[asyncpg.Record] = []
    size = 0
    async for row in rows:
        if len(page) >= limit or size > limit_bytes:
            return page, True
        page.append(row)
        size += size_of(row)
    return page, False
