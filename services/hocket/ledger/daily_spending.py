"""What a tenant or one of its pipelines spent on calls since the beginning of a day.

Days that are over are read from their rollups, as reports read them, so that a month of many calls
is told as soon as a day of them. Each call counts once: of a day that is not rolled up, or that has
changed since, the calls themselves are added up, in one snapshot with the rollups. So are those of a day
that has been closed and is not over by the server's clock, which then notes no changes to it
(docs/decisions/0018-reports-read-rollups.md). What a label spent is not read from rollups: theirs has no
index for one label, and calls do.
"""

from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import asyncpg

A_DAY = timedelta(days=1)

OF_ROLLED_DAYS = """
WITH rolled AS (
    SELECT least(open_day, hocket.day_of(now())) AS until FROM hocket.rollup_state
), by_call AS (
    SELECT DISTINCT d.day FROM hocket.dirty_day d
    WHERE d.tenant = $1 AND d.day >= hocket.day_of($3) AND d.day < (SELECT until FROM rolled)
)
SELECT coalesce(sum(r.cost_usd), 0) AS spent_usd, (SELECT until FROM rolled) AS until,
       ARRAY(SELECT day FROM by_call ORDER BY day) AS by_call
FROM hocket.rollup_calls r
WHERE r.tenant = $1 AND ($2::text IS NULL OR r.pipeline = $2) AND r.day >= hocket.day_of($3)
  AND r.day < (SELECT until FROM rolled) AND r.day NOT IN (SELECT day FROM by_call)
"""
"""The cost on days whose rollup is right, the day before which days are rolled up, and those of them
whose calls must be added up."""

OF_CALLS = """
SELECT coalesce(sum(u.cost_usd), 0)
FROM hocket.usage u
WHERE u.tenant = $1 AND ($2::text IS NULL OR u.pipeline = $2) AND u.started_at >= $3
  AND ($4::timestamptz IS NULL OR u.started_at < $4)
"""
"""The cost of the calls of a span of time; without `$4`, of all that began later."""


def is_told_by_days(since: datetime, labels: dict[str, str] | None) -> bool:
    """Tell whether `spent_since_day` answers what was spent since then (UTC), with some labels."""
    return since.time() == time() and labels is None


async def spent_since_day(
    connection: asyncpg.Connection, tenant: str, pipeline: str | None, since: datetime
) -> Decimal:
    """Return the cost of the calls of a tenant, or of one of its pipelines, since the beginning of a
    day."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        row = await connection.fetchrow(OF_ROLLED_DAYS, tenant, pipeline, since)
        usd: Decimal = row["spent_usd"]
        for start, end in spans_of(row["by_call"], since, row["until"]):
            usd += await connection.fetchval(OF_CALLS, tenant, pipeline, start, end)
    return usd


def spans_of(
    days: Iterable[date], since: datetime, until: date
) -> list[tuple[datetime, datetime | None]]:
    """Return the spans of time whose calls must be added up: of some days, in their order, and what
    follows the days before `until`; days that follow one another are one span. Pure."""
    spans: list[tuple[datetime, datetime | None]] = []
    open_span = (max(since, _from(until)), None)
    for start, end in [*((_from(day), _from(day) + A_DAY) for day in days), open_span]:
        follows = bool(spans) and spans[-1][1] == start
        spans.append((spans.pop()[0] if follows else start, end))
    return spans


def _from(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)
