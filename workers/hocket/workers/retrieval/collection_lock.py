"""The lock of a collection: one process at a time adds to it or deletes from it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from hocket.kit.postgres.session_cleanup import given_up
from hocket.kit.postgres.vector_indexes import COLLECTION_LOCK
from hocket.workers.retrieval.errors import CollectionBusy

LOCK_WAIT_MS = 60_000
LOCK_POLL_S = 0.1


@asynccontextmanager
async def sole_writer(
    pool: asyncpg.Pool, collection: str, collection_id: int, wait_ms: float, timeout_s: float
) -> AsyncIterator[Any]:
    """Hold the collection's lock, and yield the connection that has it: the lock ends with it, so that
    no statement on it is run without the lock. Raises CollectionBusy."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_ms / 1000
    keys = (COLLECTION_LOCK, collection_id % 2**31)
    unlock = "SELECT pg_advisory_unlock({}::int, {}::int)".format(*keys)
    async with pool.acquire() as connection, given_up(connection, unlock, timeout_s=timeout_s):
        while not await connection.fetchval(
            "SELECT pg_try_advisory_lock($1::int, $2::int)", *keys, timeout=timeout_s
        ):
            if loop.time() >= deadline:
                raise CollectionBusy(collection=collection, waited_ms=round(wait_ms))
            await asyncio.sleep(LOCK_POLL_S)
        yield connection
