"""A page of schedules, read and written as JSON in portions: the inputs of their tasks may be large."""

import asyncio
from typing import Any

import asyncpg

from hocket.admin.context import Context
from hocket.admin.pages import cursor
from hocket.admin.queries import QUERY_TIMEOUT_S, large_rows
from hocket.admin.schedules import store
from hocket.schemas.administration.schedules import ScheduleList

MAX_INPUT_BYTES = 4 * 1_048_576
"""The size of the tasks in one page, which ends with the schedule that exceeds it."""


async def page_of(
    context: Context, arguments: tuple[Any, ...], limit: int, *, with_input: bool
) -> bytes:
    """Return a page of schedules, a ScheduleList in JSON, up to `limit` and MAX_INPUT_BYTES; inputs are
    read only if they are shown. `arguments` are those of the query: tenant, the time and id before which
    the page begins, the number of rows, pipeline, paused."""
    if with_input:
        async with context.long_reads.place(arguments[0]):
            page, more = await large_rows(
                context.pool,
                store.LATEST_WITH_INPUTS,
                arguments,
                limit=limit,
                limit_bytes=MAX_INPUT_BYTES,
                size_of=lambda row: len(row["task"].encode()),
            )
            return await asyncio.to_thread(_written, page, with_input=True, is_last=not more)
    rows = await context.pool.fetch(store.LATEST, *arguments, timeout=QUERY_TIMEOUT_S)
    return _written(rows[:limit], with_input=False, is_last=len(rows) <= limit)


def _written(page: list[asyncpg.Record], *, with_input: bool, is_last: bool) -> bytes:
    shown = tuple(store.shown(row, None, with_input=with_input) for row in page)
    more = None if is_last else cursor(page[-1]["created_at"], page[-1]["schedule_id"])
    return ScheduleList(schedules=shown, next=more).model_dump_json(by_alias=True).encode()
