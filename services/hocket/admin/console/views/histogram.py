"""Counts the runs of a list over time of acceptance, by how they ended.

For a long range, the hours of `hocket.rollup_run_hours` are added up, if the filter permits; for all
pipelines together those of `hocket.rollup_run_totals`, for a single error those of
`hocket.rollup_error_hours`. Hours cut by either end of the range, today, and days changed since they
were rolled up are counted from the runs themselves. Everything is read in one snapshot, so that no run
is counted twice or missed.
"""

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from math import ceil
from typing import Any

import asyncpg

from hocket.admin.console.shown_sql import shown_sql
from hocket.admin.queries import QUERY_TIMEOUT_S, Pool
from hocket.admin.runs.reads import RunFilter, conditions_of, within_reach

BUCKETS = 60
"""The maximum number of bars; one more if they begin on full hours."""
HOUR = timedelta(hours=1)
LONG = timedelta(days=2)
"""Ranges of this length or longer are added up from hours."""
MIN_SPAN = timedelta(seconds=1)
KINDS = ("good", "failed", "cancelled", "running")
KIND_OF = {
    "succeeded": "good",
    "degraded": "good",
    "failed": "failed",
    "expired": "failed",
    "rejected": "failed",
    "cancelled": "cancelled",
    "running": "running",
}
"""The part of a bar in which each status is counted."""

BARS = """
SELECT date_bin($1::interval, accepted_at, $2::timestamptz) AS begun, status, count(*) AS runs
FROM hocket.run
WHERE tenant = $3
"""
"""The number of runs accepted in each interval of a time range, by status."""

COUNT = """
SELECT status, count(*) AS runs
FROM hocket.run
WHERE tenant = $1
"""
"""The same as totals; `report.runs_by_hour` has it by the hour."""

ROLLED_UP = """
SELECT hour AS begun, status, sum(runs)::bigint AS runs
FROM hocket.{table}
WHERE tenant = $1 AND day >= $2 AND day <= $3 AND hour >= $4 AND hour < $5 AND day <> ALL ($6::date[])
"""
"""The same from rolled-up hours, without the days that are not up to date."""
HOURS = "rollup_run_hours"
"""A row per hour, status, pipeline and version."""
TOTALS = "rollup_run_totals"
"""A row per hour and status: the sums of HOURS over all pipelines."""
ERRORS = "rollup_error_hours"
"""A row per hour, status, pipeline, version and error code."""

STATE = """
SELECT open_from, ARRAY(
    SELECT DISTINCT day FROM hocket.dirty_day
    WHERE tenant = $1 AND day >= $2 AND day <= $3 AND day < open_day
) AS dirty
FROM hocket.rollup_state
"""
"""The time from which nothing is rolled up, and the tenant's days that changed since they were rolled
up."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Bars from `start` on, each `width_s` wide."""

    start: datetime
    width_s: float
    good: list[int]
    failed: list[int]
    cancelled: list[int]
    running: list[int]

    @property
    def total(self) -> int:
        """The number of runs in all bars."""
        return sum(map(sum, (self.good, self.failed, self.cancelled, self.running)))

    def as_json(self) -> dict[str, Any]:
        """Return the data that the script draws."""
        return {
            "total": self.total,
            "start": self.start.timestamp(),
            "width": self.width_s,
            "good": self.good,
            "failed": self.failed,
            "cancelled": self.cancelled,
            "running": self.running,
        }


async def histogram(
    pool: Pool,
    tenant: str,
    wanted: RunFilter,
    start: datetime,
    end: datetime,
    after: str | None = None,
) -> Histogram:
    """Return the histogram of a filter's runs. If each run has to be examined, only those within reach
    of the list's page `after` are counted."""
    if end - start >= LONG and _is_rolled_up(wanted):
        return await _of_hours(pool, tenant, wanted, start, end)
    wanted = await within_reach(pool, tenant, wanted, after)
    width = max(end - start, MIN_SPAN) / BUCKETS
    async with pool.acquire(timeout=QUERY_TIMEOUT_S) as connection:
        reached = after if wanted.is_search else None
        rows = await _counted(connection, tenant, wanted, width, start, reached)
    return _drawn(rows, start, width, BUCKETS)


def count_sql(tenant: str, wanted: RunFilter, start: datetime) -> str:
    """Return the SQL that counts the runs of a filter from `start` on, by how they ended."""
    values: list[Any] = [tenant]
    conditions = conditions_of(replace(wanted, since=start), values)
    return shown_sql(f"{COUNT}{conditions}GROUP BY status", *values)


def _is_rolled_up(wanted: RunFilter) -> bool:
    """Tell whether a filter uses only the columns by which hours are rolled up."""
    return wanted.asks_only_for("pipeline", "version", "status", "error_code", "since", "until")


async def _of_hours(
    pool: Pool, tenant: str, wanted: RunFilter, start: datetime, end: datetime
) -> Histogram:
    width = HOUR * ceil((end - start) / HOUR / BUCKETS)
    first = _hour(start)
    rows: list[asyncpg.Record] = []
    async with (
        pool.acquire(timeout=QUERY_TIMEOUT_S) as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        days = first.date(), end.astimezone(UTC).date()
        state = await connection.fetchrow(STATE, tenant, *days, timeout=QUERY_TIMEOUT_S)
        from_at = first if first == start else first + HOUR
        to_at = max(min(_hour(end), state["open_from"]), from_at)
        rows += await _rolled_up(
            connection, wanted, [tenant, *days, from_at, to_at, state["dirty"]]
        )
        for since, until in (
            (start, from_at),
            *_spans(state["dirty"], from_at, to_at),
            (to_at, end),
        ):
            if since < until:
                part = replace(wanted, since=since, until=until)
                rows += await _counted(connection, tenant, part, HOUR, first)
    return _drawn(rows, first, width, ceil((end - first) / width))


def _spans(days: list[date], from_at: datetime, to_at: datetime) -> list[tuple[datetime, datetime]]:
    """Return the days as time ranges, clipped to a range."""
    begins = [datetime(day.year, day.month, day.day, tzinfo=UTC) for day in sorted(days)]
    return [(max(begin, from_at), min(begin + timedelta(days=1), to_at)) for begin in begins]


async def _rolled_up(
    connection: asyncpg.Connection, wanted: RunFilter, values: list[Any]
) -> list[asyncpg.Record]:
    """Return the counts for a filter's runs from the hours selected by `values`."""
    if wanted.error_code is not None:
        table = ERRORS
    else:
        table = TOTALS if wanted.pipeline is None and wanted.version is None else HOURS
    query = ROLLED_UP.format(table=table)
    for column, value in (
        ("pipeline", wanted.pipeline),
        ("version", wanted.version),
        ("status", wanted.status),
        ("code", wanted.error_code),
    ):
        if value is not None:
            values.append(value)
            query += f"  AND {column} = ${len(values)}\n"
    query += "GROUP BY hour, status"
    return list(await connection.fetch(query, *values, timeout=QUERY_TIMEOUT_S))


async def _counted(
    connection: asyncpg.Connection,
    tenant: str,
    wanted: RunFilter,
    width: timedelta,
    start: datetime,
    after: str | None = None,
) -> list[asyncpg.Record]:
    values: list[Any] = [width, start, tenant]
    query = BARS + conditions_of(wanted, values, after) + "GROUP BY begun, status"
    return list(await connection.fetch(query, *values, timeout=QUERY_TIMEOUT_S))


def _drawn(rows: list[asyncpg.Record], start: datetime, width: timedelta, number: int) -> Histogram:
    bars = {kind: [0] * number for kind in KINDS}
    for row in rows:
        bar = (row["begun"] - start) // width
        kind = KIND_OF.get(row["status"])
        if kind is not None and 0 <= bar < number:
            bars[kind][bar] += row["runs"]
    return Histogram(start=start, width_s=width.total_seconds(), **bars)


def _hour(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
