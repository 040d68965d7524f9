"""`/v1/schedules`: tasks submitted by the clock."""

import asyncio
from datetime import datetime
from typing import Annotated

import asyncpg
from fastapi import APIRouter, Path, Query, Response
from pydantic import Field

from hocket.admin.context import Context, Ctx
from hocket.admin.pages import DEFAULT_PAGE, FAR_FUTURE, After, Limit, parse_cursor
from hocket.admin.requests.etags import ETAG, IfMatch, IfNoneMatch, etag
from hocket.admin.requests.identity import Caller, CallerDep
from hocket.admin.requests.json_bodies import PlainJsonRoute
from hocket.admin.requests.parameters import WHOLE, IdempotencyKey, Switch
from hocket.admin.requests.permissions import needs
from hocket.admin.schedules import changes, listing, store
from hocket.admin.schedules.times import Times
from hocket.admin.submission.one import merged_key
from hocket.schemas.access.roles import Permission
from hocket.schemas.administration.schedules import (
    MAX_NEXT,
    Firing,
    FiringList,
    NextTime,
    NextTimes,
    PauseBody,
    Schedule,
    ScheduleBody,
    ScheduleList,
    Timing,
    TriggerBody,
)
from hocket.schemas.rest import Token

Name = Annotated[Token, Path(description="Name of the schedule, unique in its tenant.")]
Count = Annotated[
    Annotated[int, Field(ge=1, le=MAX_NEXT), WHOLE], Query(description="Number of times to return.")
]

router = APIRouter(prefix="/v1", tags=["schedules"], route_class=PlainJsonRoute)


@router.get("/schedules", response_model=ScheduleList)
@needs(Permission.SCHEDULES_READ)
async def list_schedules(
    context: Ctx,
    caller: CallerDep,
    pipeline: Annotated[Token | None, Query()] = None,
    paused: Annotated[
        Switch | None,
        Query(description="Only schedules that are paused (`true`) or not paused (`false`)."),
    ] = None,
    after: After = None,
    limit: Limit = DEFAULT_PAGE,
) -> Response:
    """List schedules, newest first, each with its next time. A page ends early where inputs are large;
    `next` continues."""
    before = (FAR_FUTURE, "") if after is None else parse_cursor(after)
    values = (caller.tenant, *before, limit + 1, pipeline, paused)
    page = await listing.page_of(context, values, limit, with_input=caller.sees_content)
    return Response(page, media_type="application/json")


@router.post("/schedule-preview")
@needs(Permission.SCHEDULES_READ)
async def preview_schedule(
    body: Timing, context: Ctx, caller: CallerDep, count: Count = 5
) -> NextTimes:
    """Show the upcoming times of a cron expression within 50 years, without creating a schedule."""
    times = Times(body.cron, body.time_zone, body.jitter_s)
    return await _coming(context, caller, times, None, count)


@router.put("/schedules/{name}", responses={201: {"model": Schedule}})
@needs(Permission.SCHEDULES_MANAGE, Permission.RUNS_SUBMIT)
async def put_schedule(
    name: Name,
    body: ScheduleBody,
    response: Response,
    context: Ctx,
    caller: CallerDep,
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
) -> Schedule:
    """Create a schedule (201), or replace it. Its task is validated as it would be on submission."""
    row, is_new = await changes.put(
        context,
        caller,
        name,
        body,
        if_match=if_match,
        if_none_match=if_none_match,
    )
    response.status_code = 201 if is_new else 200
    response.headers[ETAG] = etag(row["revision"])
    return await _shown(context, caller, row)


@router.get("/schedules/{name}")
@needs(Permission.SCHEDULES_READ)
async def show_schedule(
    name: Name, response: Response, context: Ctx, caller: CallerDep
) -> Schedule:
    """Show a schedule."""
    row = await store.find(context.pool, caller.tenant, name)
    response.headers[ETAG] = etag(row["revision"])
    return await _shown(context, caller, row)


@router.delete("/schedules/{name}", status_code=204)
@needs(Permission.SCHEDULES_MANAGE, Permission.RUNS_SUBMIT)
async def delete_schedule(
    name: Name, context: Ctx, caller: CallerDep, if_match: IfMatch = None
) -> None:
    """Delete a schedule and its history. Its runs are kept."""
    await changes.delete(context, caller, name, if_match=if_match)


@router.post("/schedules/{name}/pause")
@needs(Permission.SCHEDULES_MANAGE, Permission.RUNS_SUBMIT)
async def pause_schedule(
    name: Name,
    response: Response,
    context: Ctx,
    caller: CallerDep,
    body: PauseBody | None = None,
    if_match: IfMatch = None,
) -> Schedule:
    """Pause a schedule. Times that pass while it is paused are skipped."""
    reason = (body or PauseBody()).reason
    row = await changes.switch(context, caller, name, paused=True, reason=reason, if_match=if_match)
    response.headers[ETAG] = etag(row["revision"])
    return await _shown(context, caller, row)


@router.post("/schedules/{name}/resume")
@needs(Permission.SCHEDULES_MANAGE, Permission.RUNS_SUBMIT)
async def resume_schedule(
    name: Name, response: Response, context: Ctx, caller: CallerDep, if_match: IfMatch = None
) -> Schedule:
    """Resume a paused schedule from its next time."""
    row = await changes.switch(context, caller, name, paused=False, reason="", if_match=if_match)
    response.headers[ETAG] = etag(row["revision"])
    return await _shown(context, caller, row)


@router.post("/schedules/{name}/trigger", status_code=202)
@needs(Permission.SCHEDULES_MANAGE, Permission.RUNS_SUBMIT)
async def trigger_schedule(
    name: Name,
    context: Ctx,
    caller: CallerDep,
    body: TriggerBody | None = None,
    idempotency_key: IdempotencyKey = None,
) -> Firing:
    """Submit a schedule's task now, whether or not it is paused; its overlap policy applies."""
    key = merged_key(body or TriggerBody(), idempotency_key).idempotency_key
    return store.shown_firing(await changes.trigger(context, caller, name, key))


@router.get("/schedules/{name}/next")
@needs(Permission.SCHEDULES_READ)
async def show_next(name: Name, context: Ctx, caller: CallerDep, count: Count = 5) -> NextTimes:
    """Show the upcoming times of a schedule within 50 years, as if it were not paused."""
    row = await store.find(context.pool, caller.tenant, name)
    return await _coming(context, caller, store.times_of(row), row, count)


@router.get("/schedules/{name}/firings")
@needs(Permission.SCHEDULES_READ)
async def list_firings(
    name: Name, context: Ctx, caller: CallerDep, after: After = None, limit: Limit = DEFAULT_PAGE
) -> FiringList:
    """List the past times of a schedule and their outcome, newest first; at most the last 1,000."""
    row = await store.find(context.pool, caller.tenant, name)
    return await store.list_firings(context.pool, row, after, limit)


async def _shown(context: Context, caller: Caller, row: asyncpg.Record) -> Schedule:
    """Return a schedule as its caller may see it, with its next times."""
    now = await context.database_now(context.pool)
    async with context.schedule_times.place(caller.tenant):
        return await asyncio.to_thread(store.shown, row, now, with_input=caller.sees_content)


async def _coming(
    context: Context, caller: Caller, times: Times, row: asyncpg.Record | None, count: int
) -> NextTimes:
    """Return the next times, those of the schedule `row` if it exists; or raise InvalidInput: this
    machine may not know their zone."""
    now = await context.database_now(context.pool)
    begin = now if row is None else store.begin_of(row, now)
    async with context.schedule_times.place(caller.tenant):
        return await asyncio.to_thread(_checked_and_coming, times, count, begin)


def _checked_and_coming(times: Times, count: int, begin: datetime) -> NextTimes:
    times.check()
    return NextTimes(
        times=tuple(
            NextTime(planned_at=one, local=times.local(one), due_at=due_at)
            for one, due_at in times.coming_and_due(begin, count)
        )
    )
