"""Whether the database answers, for probes: they need no key and are not limited, so all of them share
one question."""

import asyncio
import time

from hocket.admin.health import reads
from hocket.admin.queries import Pool

KEPT_S = 1.0
"""How long an answer is kept, before the database is asked again."""


class DatabaseCheck:
    """Asks the database once at a time, for whoever wants to know, and keeps the answer for KEPT_S."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._answers = False
        self._kept_until = 0.0
        self._asking: asyncio.Task[None] | None = None

    async def answers(self) -> bool:
        """Tell whether the database answers promptly, or did so a moment ago."""
        if time.monotonic() >= self._kept_until:
            if self._asking is None:
                self._asking = asyncio.create_task(self._ask())
            await asyncio.shield(self._asking)  # one client may leave, and the others wait on
        return self._answers

    async def _ask(self) -> None:
        try:
            self._answers = await reads.database_answers(self._pool)
            self._kept_until = time.monotonic() + KEPT_S
        finally:
            self._asking = None
