"""A run as server-sent events, read from the database: what is shown is committed.

States: following -> ended (the run ended, the time was up, the process stops, or the client left).
Between looks it waits; a comment line keeps proxies from closing a quiet connection. A run without
an end within `FOLLOW_LIMIT_S` ends with the event `timeout`; the client may ask again.

Whoever follows looks again and again at all steps, so that many who follow large runs could take the
database and this process for themselves: all of them together look at LOOKS_AT_ONCE pages at a time and
rest as long as that took, and who looked long waits long.
"""

import asyncio
from collections.abc import AsyncIterator

from hocket.admin.context import Context
from hocket.admin.requests.identity import Caller
from hocket.admin.runs import reads
from hocket.admin.runs.content import shown
from hocket.schemas.rest import MAX_PAGE, StepDetail, StepList

FOLLOW_LIMIT_S = 600.0
FOLLOW_INTERVAL_S = 0.25
QUIET_LIMIT_S = 15.0
REST_FACTOR = 4
"""How many times as long as a look took the next one is waited for."""


async def follow(context: Context, caller: Caller, run_id: str) -> AsyncIterator[str]:
    """Yield an event for each step that is new or has changed, and one for the end of the run."""
    clock = asyncio.get_running_loop().time
    began = spoke = clock()
    seen: dict[str, tuple[str, int]] = {}
    try:
        while clock() - began < FOLLOW_LIMIT_S and context.followers.has_room:
            looked = clock()
            run = await reads.run_row(context.pool, caller.tenant, run_id)
            took = clock() - looked
            after: str | None = None
            while True:
                looked = clock()
                page = await _page(context, run_id, after)
                took += clock() - looked
                for step in page.steps:
                    if seen.get(step.step) != (step.state, step.attempt):
                        context.followers.seen += step.step not in seen
                        seen[step.step] = (step.state, step.attempt)
                        spoke = clock()
                        yield _event(step)
                if (after := page.next) is None:
                    break
            if run["finished_at"] is not None:
                end = shown(reads.result(run), caller)
                yield f"event: run\ndata: {end.model_dump_json()}\n\n"
                return
            if clock() - spoke > QUIET_LIMIT_S:
                spoke = clock()
                yield ": still running\n\n"
            wait_s = min(max(FOLLOW_INTERVAL_S, REST_FACTOR * took), QUIET_LIMIT_S)
            if await _stopped_within(context.stopping, wait_s):
                return
        yield "event: timeout\ndata: {}\n\n"
    finally:
        context.followers.seen -= len(seen)


def _event(step: StepDetail) -> str:
    return f"event: step\ndata: {step.model_dump_json(exclude_none=True)}\n\n"


async def _page(context: Context, run_id: str, after: str | None) -> StepList:
    clock = asyncio.get_running_loop().time
    async with context.followers.looking:
        began = clock()
        page = await reads.list_steps(
            context.pool, run_id, after=after, limit=MAX_PAGE, values=False
        )
        if after is not None or page.next is not None:
            await asyncio.sleep(clock() - began)
        return page


async def _stopped_within(stopping: asyncio.Event, timeout_s: float) -> bool:
    try:
        async with asyncio.timeout(timeout_s):
            await stopping.wait()
    except TimeoutError:
        return False
    return True
