"""A run as server-sent events, read from the database: what is shown is committed.

States: following -> ended (the run ended, the time was up, the process stops, or the client left).
Between looks it waits; a comment line keeps proxies from closing a quiet connection. A run without
an end within `FOLLOW_LIMIT_S` ends with the event `timeout`; the client may ask again.
"""

import asyncio
from collections.abc import AsyncIterator

from hocket.admin.context import Context
from hocket.admin.runs import reads
from hocket.schemas.rest import MAX_PAGE, StepDetail

FOLLOW_LIMIT_S = 600.0
FOLLOW_INTERVAL_S = 0.25
QUIET_LIMIT_S = 15.0


async def follow(context: Context, tenant: str, run_id: str) -> AsyncIterator[str]:
    """Yield an event for each step that is new or has changed, and one for the end of the run."""
    clock = asyncio.get_running_loop().time
    began = spoke = clock()
    seen: dict[str, tuple[str, int]] = {}
    while clock() - began < FOLLOW_LIMIT_S:
        run = await reads.run_row(context.pool, tenant, run_id)
        async for step in _changed(context, run_id, seen):
            spoke = clock()
            yield f"event: step\ndata: {step.model_dump_json(exclude_none=True)}\n\n"
        if run["finished_at"] is not None:
            yield f"event: run\ndata: {reads.result(run).model_dump_json()}\n\n"
            return
        if clock() - spoke > QUIET_LIMIT_S:
            spoke = clock()
            yield ": still running\n\n"
        if await _stopped_within(context.stopping, FOLLOW_INTERVAL_S):
            return
    yield "event: timeout\ndata: {}\n\n"


async def _changed(
    context: Context, run_id: str, seen: dict[str, tuple[str, int]]
) -> AsyncIterator[StepDetail]:
    after: str | None = None
    while True:
        page = await reads.list_steps(
            context.pool, run_id, after=after, limit=MAX_PAGE, values=False
        )
        for step in page.steps:
            if seen.get(step.step) != (step.state, step.attempt):
                seen[step.step] = (step.state, step.attempt)
                yield step
        if page.next is None:
            return
        after = page.next


async def _stopped_within(stopping: asyncio.Event, timeout_s: float) -> bool:
    try:
        async with asyncio.timeout(timeout_s):
            await stopping.wait()
    except TimeoutError:
        return False
    return True
