"""What forms offer to choose from: pipelines that accept runs, and time zones."""

import asyncio
from functools import cache
from zoneinfo import available_timezones

from hocket.admin.context import Context
from hocket.admin.queries import QUERY_TIMEOUT_S
from hocket.admin.requests.identity import Caller
from hocket.admin.schedules.times import OTHER_CLOCKS
from hocket.schemas.access.roles import Permission

MAX_PIPELINES = 200
"""Pipelines in a list to choose from; if there are more, or the caller may not list them, names are
typed."""
NO_PLACES = (*OTHER_CLOCKS, "Etc/", "SystemV/")

ACTIVE = """
SELECT DISTINCT name FROM hocket.pipeline p
WHERE tenant = $1 AND NOT EXISTS (
    SELECT FROM hocket.pipeline_release r
    WHERE r.tenant = p.tenant AND r.name = p.name AND r.archived_at IS NOT NULL)
ORDER BY name LIMIT $2
"""
"""The pipelines of a tenant that accept runs, by name."""


async def active_pipelines(context: Context, caller: Caller) -> list[str]:
    """Return the names of the caller's pipelines that accept runs; none if they are to be typed."""
    if not caller.bearer.may(Permission.PIPELINES_READ):
        return []
    values = (caller.tenant, MAX_PIPELINES + 1)
    rows = await context.pool.fetch(ACTIVE, *values, timeout=QUERY_TIMEOUT_S)
    return [row["name"] for row in rows] if len(rows) <= MAX_PIPELINES else []


async def time_zones() -> tuple[str, ...]:
    """Return the names of the time zones to choose from: UTC, and those of places."""
    return await asyncio.to_thread(_time_zones)


@cache
def _time_zones() -> tuple[str, ...]:
    found = available_timezones()
    return ("UTC", *sorted(one for one in found if "/" in one and not one.startswith(NO_PLACES)))
