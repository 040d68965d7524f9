"""`/v1/schedules`: tasks submitted by the clock."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response
from pydantic import Field

from hocket.admin.context import Ctx
from hocket.admin.pages import DEFAULT_PAGE, FAR_FUTURE, After, Limit, cursor, parse_cursor
from hocket.admin.queries import QUERY_TIMEOUT_S
from hocket.admin.requests.etags import ETAG, IfMatch, IfNoneMatch, etag
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.json_bodies import PlainJsonRoute
from hocket.admin.requests.parameters import WHOLE, Switch
from hocket.admin.requests.permissions import needs
from hocket.admin.schedules import changes, store
from hocket.admin.schedules.times import Times
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


@router.get("/schedules")
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
) -> ScheduleList:
    """List schedules, newest first, each with its next time."""
    before = (FAR_FUTURE, "") if after is None else parse_cursor(after)
    values = (caller.tenant, *before, limit + 1, pipeline, paused)
    rows = await context.pool.fetch(store.LATEST, *values, timeout=QUERY_TIMEOUT_S)
    last = rows[limit - 1] if len(rows) > limit else None
    found = tuple(store.shown(row, None, with_input=caller.sees_content) for row in rows[:limit])
    more = None if last is None else cursor(last["created_at"], last["schedule_id"])
    return ScheduleList(schedules=found, next=more)


@router.post("/schedule-preview")
@needs(Permission.SCHEDULES_READ)
async def preview_schedule(body: Timing, context: Ctx, count: Count = 5) -> NextTimes:
    """Show the upcoming times of a cron expression, without creating a schedule."""
    times = Times(body.cron, body.time_zone, body.jitter_s)
    times.check()
    return _coming(times, count, context.now())


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
        now=context.now(),
        if_match=if_match,
        if_none_match=if_none_match,
    )
    response.status_code = 201 if is_new else 200
    response.headers[ETAG] = etag(row["revision"])
    return store.shown(row, context.now(), with_input=caller.sees_content)


@router.get("/schedules/{name}")
@needs(Permission.SCHEDULES_READ)
async def show_schedule(
    name: Name, response: Response, context: Ctx, caller: CallerDep
) -> Schedule:
    """Show a schedule."""
    row = await store.find(context.pool, caller.tenant, name)
    response.headers[ETAG] = etag(row["revision"])
    return store.shown(row, context.now(), with_input=caller.sees_content)


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
    now = context.now()
    row = await changes.switch(
        context, caller, name, paused=True, reason=reason, now=now, if_match=if_match
    )
    response.headers[ETAG] = etag(row["revision"])
    return store.shown(row, now, with_input=caller.sees_content)


@router.post("/schedules/{name}/resume")
@needs(Permission.SCHEDULES_MANAGE, Permission.RUNS_SUBMIT)
async def resume_schedule(
    name: Name, response: Response, context: Ctx, caller: CallerDep, if_match: IfMatch = None
) -> Schedule:
    """Resume a paused schedule from its next time."""
    now = context.now()
    row = await changes.switch(
        context, caller, name, paused=False, reason="", now=now, if_match=if_match
    )
    response.headers[ETAG] = etag(row["revision"])
    return store.shown(row, now, with_input=caller.sees_content)


@router.post("/schedules/{name}/trigger", status_code=202)
@needs(Permission.SCHEDULES_MANAGE, Permission.RUNS_SUBMIT)
async def trigger_schedule(
    name: Name, context: Ctx, caller: CallerDep, body: TriggerBody | None = None
) -> Firing:
    """Submit a schedule's task now, whether or not it is paused; its overlap policy applies."""
    key = (body or TriggerBody()).idempotency_key
    return store.shown_firing(await changes.trigger(context, caller, name, key, context.now()))


@router.get("/schedules/{name}/next")
@needs(Permission.SCHEDULES_READ)
async def show_next(name: Name, context: Ctx, caller: CallerDep, count: Count = 5) -> NextTimes:
    """Show the upcoming times of a schedule, as if it were not paused."""
    times = store.times_of(await store.find(context.pool, caller.tenant, name))
    times.check()  # this machine may not know its zone
    return _coming(times, count, context.now())


@router.get("/schedules/{name}/firings")
@needs(Permission.SCHEDULES_READ)
async def list_firings(
    name: Name, context: Ctx, caller: CallerDep, after: After = None, limit: Limit = DEFAULT_PAGE
) -> FiringList:
    """List the past times of a schedule and their outcome, newest first; at most the last 1,000."""
    row = await store.find(context.pool, caller.tenant, name)
    return await store.list_firings(context.pool, row, after, limit)


def _coming(times: Times, count: int, now: datetime) -> NextTimes:
    found = times.coming(now, count)
    return NextTimes(
        times=tuple(
            NextTime(planned_at=one, local=times.local(one), due_at=times.due_at(one))
            for one in found
        )
    )
