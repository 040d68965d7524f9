"""The lock of a collection: one process at a time adds to it or deletes from it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from hocket.kit.postgres.advisory_lock import lock_taken
from hocket.kit.postgres.session_cleanup import given_up
from hocket.kit.postgres.vector_indexes import COLLECTION_LOCK
from hocket.workers.retrieval.errors import CollectionBusy

LOCK_WAIT_MS = 60_000


@asynccontextmanager
async def sole_writer(
    pool: asyncpg.Pool, collection: str, collection_id: int, wait_ms: float, timeout_s: float
) -> AsyncIterator[Any]:
    """Hold the collection's lock, and yield the connection that has it: the lock ends with it, so that
    no statement on it is run without the lock. Raises CollectionBusy."""
    deadline = asyncio.get_running_loop().time() + wait_ms / 1000
    keys = (COLLECTION_LOCK, collection_id % 2**31)
    unlock = "SELECT pg_advisory_unlock({}::int, {}::int)".format(*keys)
    async with pool.acquire() as connection, given_up(connection, unlock, timeout_s=timeout_s):
        if not await lock_taken(connection, keys, deadline, timeout_s=timeout_s):
            raise CollectionBusy(collection=collection, waited_ms=round(wait_ms))
        yield connection
