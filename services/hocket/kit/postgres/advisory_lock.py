"""Waits for an advisory lock by asking again and again: a session that waited in a statement would
itself be waited for by whoever builds an index beside it."""

import asyncio
from typing import Any

LOCK_POLL_S = 0.1


async def lock_taken(
    connection: Any, keys: tuple[int, int], deadline_s: float, *, timeout_s: float
) -> bool:
    """Take the lock of two keys for the session, and tell whether that was possible by `deadline_s`, on
    the event loop's clock. `timeout_s` is the limit of each question."""
    loop = asyncio.get_running_loop()
    while not await connection.fetchval(
        "SELECT pg_try_advisory_lock($1::int, $2::int)", *keys, timeout=timeout_s
    ):
        if loop.time() >= deadline_s:
            return False
        await asyncio.sleep(LOCK_POLL_S)
    return True
