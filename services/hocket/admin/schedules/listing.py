"""A page of schedules, read and written as JSON in portions: the inputs of their tasks may be large."""

import asyncio
from typing import Any

import asyncpg

from hocket.admin.context import Context
from hocket.admin.pages import cursor
from hocket.admin.queries import QUERY_TIMEOUT_S, Pool
from hocket.admin.schedules import store
from hocket.schemas.administration.schedules import ScheduleList

MAX_INPUT_BYTES = 4 * 1_048_576
"""The size of the tasks in one page, which ends with the schedule that exceeds it."""
SCHEDULES_AT_ONCE = 8
"""Schedules with inputs fetched per query."""


async def page_of(
    context: Context, arguments: tuple[Any, ...], limit: int, *, with_input: bool
) -> bytes:
    """Return a page of schedules, a ScheduleList in JSON, up to `limit` and MAX_INPUT_BYTES; inputs are
    read only if they are shown. `arguments` are those of the query: tenant, the time and id before which
    the page begins, the number of rows, pipeline, paused."""
    if with_input:
        async with context.long_reads.place(arguments[0]):
            page, is_last = await _with_inputs(context.pool, arguments, limit)
            return await asyncio.to_thread(_written, page, with_input=True, is_last=is_last)
    rows = await context.pool.fetch(store.LATEST, *arguments, timeout=QUERY_TIMEOUT_S)
    return _written(rows[:limit], with_input=False, is_last=len(rows) <= limit)


async def _with_inputs(
    pool: Pool, arguments: tuple[Any, ...], limit: int
) -> tuple[list[asyncpg.Record], bool]:
    """Return schedules up to the limits of a page, and whether they are the last ones."""
    page: list[asyncpg.Record] = []
    size = 0
    async with (
        asyncio.timeout(QUERY_TIMEOUT_S),
        pool.acquire() as connection,
        connection.transaction(readonly=True),
    ):
        query = store.LATEST_WITH_INPUTS
        async for row in connection.cursor(query, *arguments, prefetch=SCHEDULES_AT_ONCE):
            if len(page) >= limit or size > MAX_INPUT_BYTES:
                return page, False
            page.append(row)
            size += len(row["task"].encode())
    return page, True


def _written(page: list[asyncpg.Record], *, with_input: bool, is_last: bool) -> bytes:
    shown = tuple(store.shown(row, None, with_input=with_input) for row in page)
    more = None if is_last else cursor(page[-1]["created_at"], page[-1]["schedule_id"])
    return ScheduleList(schedules=shown, next=more).model_dump_json(by_alias=True).encode()
