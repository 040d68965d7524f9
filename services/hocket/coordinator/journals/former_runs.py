"""Recognizes journals that a deleted run has left behind.

A run's id comes from its idempotency key. Once its data is deleted, the same key begins another run of
that id, while a journal of the deleted one may stay in its stream for weeks. What it says was done must
be done again. Fails open: while Postgres does not answer, a journal counts as the present run's.
"""

import asyncio

import asyncpg

from hocket.kit.postgres.errors import STATEMENT_ERRORS

MARGIN_MS = 60_000.0
"""How much earlier than its run was accepted a journal must have been written. A run is accepted anew,
later, if NATS lost its acceptance before it was in Postgres."""
APPEARS_WITHIN_S = 2.0
"""How long to wait for the run, which a worker may have before it is in Postgres."""
APPEAR_INTERVAL_S = 0.05
TIMEOUT_S = 2.0

ACCEPTED = """
SELECT (extract(epoch FROM accepted_at) * 1000)::double precision FROM hocket.run
WHERE run_id = $1 AND status <> 'rejected'
"""


class FormerRuns:
    """Looks runs up in Postgres."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def has_left(self, run_id: str, written_ms: float) -> bool:
        """Tell whether a journal whose last writer was handed the step at `written_ms` (epoch ms) is of
        another run than the present one of that id."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + APPEARS_WITHIN_S
        while True:
            try:
                accepted_ms = await self._pool.fetchval(ACCEPTED, run_id, timeout=TIMEOUT_S)
            except STATEMENT_ERRORS:
                return False
            if accepted_ms is not None:
                return bool(written_ms < accepted_ms - MARGIN_MS)
            if loop.time() >= until_s:
                return False
            await asyncio.sleep(APPEAR_INTERVAL_S)
