"""Puts back the planned times of schedules that lie too far ahead, with times before them left out.

A schedule's planned time is not later than the first of its times after now. It is if Postgres's clock
was ahead for a while, or if the rules of its time zone were changed. Without a correction, the schedule
would not fire until the clock has reached that time.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime

import asyncpg
import structlog

from hocket.admin.context import Context
from hocket.admin.queries import QUERY_TIMEOUT_S
from hocket.admin.schedules import store
from hocket.kit.process import clock

CHECK_S = 10.0
"""How often a process checks some schedules."""
CHECKED_AT_ONCE = 50
"""Schedules checked then, in turn: a rare time takes milliseconds to find."""

log = structlog.get_logger(__name__)


class PlannedTimes:
    """Checks the planned times of all schedules, one portion after the other, again and again."""

    def __init__(self) -> None:
        self._after = ""
        """The last schedule that was checked."""
        self._next_check_ms = 0.0

    async def check(self, context: Context) -> None:
        """Check the next portion of schedules, unless one was checked a moment ago."""
        if clock.monotonic_ms() < self._next_check_ms:
            return
        self._next_check_ms = clock.monotonic_ms() + CHECK_S * 1000
        await self.check_portion(context)

    async def check_portion(self, context: Context) -> None:
        """Put back the planned times of the next portion that lie beyond the first time after now."""
        now = await context.database_now(context.pool)
        rows = await context.pool.fetch(
            store.AHEAD, self._after, now, CHECKED_AT_ONCE, timeout=QUERY_TIMEOUT_S
        )
        self._after = rows[-1]["schedule_id"] if len(rows) == CHECKED_AT_ONCE else ""
        for row, planned_at, due_at in await asyncio.to_thread(_earlier, rows, now):
            log.warning(
                "schedule_put_back",
                schedule=row["schedule_id"],
                planned_at=row["planned_at"].isoformat(),
                first=planned_at.isoformat(),
            )
            said = (row["schedule_id"], row["planned_at"], row["revision"], planned_at, due_at)
            await context.pool.execute(store.PUT_BACK, *said, timeout=QUERY_TIMEOUT_S)


def _earlier(
    rows: Sequence[asyncpg.Record], now: datetime
) -> list[tuple[asyncpg.Record, datetime, datetime]]:
    """Return the schedules that have a time between now and the planned one, each with the first such
    time, and when that is due."""
    found = []
    for row in rows:
        times = store.times_of(row)
        try:
            first = times.next_after(now)
        except Exception:  # this machine does not know its zone, which is told when it is due
            continue
        if first is not None and first < row["planned_at"]:
            found.append((row, first, times.due_at(first)))
    return found
