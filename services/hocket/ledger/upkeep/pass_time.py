"""The time by which rows expire: that of Postgres, which is the same for every ledger and wrote most
of the rows' times.

A machine whose clock is days ahead would otherwise delete what has not expired. If the clocks of
Postgres and of the ledger's machine differ, one of them is wrong, and nothing is deleted.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import asyncpg

MAX_DIFFERENCE = timedelta(minutes=5)
"""By how much the two clocks may differ."""
TIMEOUT_S = 10.0
GRACE = timedelta(days=1)
"""For how long into a month the calls of the last one stay: the clock of a gateway may be behind."""

OwnTime = Callable[[], datetime]

_NOW = "SELECT clock_timestamp()"


class ClocksDiffer(Exception):
    """Says which clock is ahead, and by how much."""


def machine_time() -> datetime:
    """Return the time of this machine's clock."""
    return datetime.now(UTC)


async def postgres_time(connection: asyncpg.Connection) -> datetime:
    """Return the time of Postgres's clock."""
    at: datetime = await connection.fetchval(_NOW, timeout=TIMEOUT_S)
    return at


async def agreed_time(connection: asyncpg.Connection, own_time: OwnTime = machine_time) -> datetime:
    """Return the time of Postgres's clock, or raise ClocksDiffer."""
    asked_at = own_time()
    now = await postgres_time(connection)
    ahead, behind = asked_at - now, now - own_time()
    if max(ahead, behind) > MAX_DIFFERENCE:
        way, by = ("ahead of", ahead) if ahead > behind else ("behind", behind)
        difference = timedelta(seconds=round(by.total_seconds()))
        raise ClocksDiffer(f"this machine's clock is {difference} {way} that of Postgres")
    return now


def expired_before(period: str, days: int, now: datetime) -> datetime:
    """Return the time before which rows have expired that are kept for `days`, for one of the fields
    of `Periods`.

    Calls of the current month (UTC) stay whatever the period, because budgets count them.
    """
    expired = now - timedelta(days=days)
    if period != "usage":
        return expired
    month = (now - GRACE).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return min(expired, month)
