"""The pages of schedules: tasks submitted by the clock."""

from typing import Annotated

from fastapi import Path, Request
from fastapi.responses import Response

from hocket.admin.console.authors import names_of
from hocket.admin.console.page_route import page_router
from hocket.admin.console.rendering import address, render
from hocket.admin.context import Ctx
from hocket.admin.pages import FAR_FUTURE, After, cursor, parse_cursor
from hocket.admin.queries import QUERY_TIMEOUT_S
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.permissions import needs
from hocket.admin.schedules import store
from hocket.schemas.access.roles import Permission

ROWS = 100
COMING = 5

router = page_router()


@router.get("/schedules")
@needs(Permission.SCHEDULES_READ)
async def console_schedules(
    request: Request, context: Ctx, caller: CallerDep, after: After = None
) -> Response:
    """List the schedules, the latest first, each with its next time."""
    before = (FAR_FUTURE, "") if after is None else parse_cursor(after)
    values = (caller.tenant, *before, ROWS + 1, None, None)
    rows = await context.pool.fetch(store.LATEST, *values, timeout=QUERY_TIMEOUT_S)
    last = rows[ROWS - 1] if len(rows) > ROWS else None
    shown = {
        "section": "Schedules",
        "schedules": [store.shown(row, None, with_input=False) for row in rows[:ROWS]],
        "older": address(request, after=cursor(last["created_at"], last["schedule_id"]))
        if last
        else None,
    }
    return render(request, caller, "schedules.html", shown)


@router.get("/schedules/{name}")
@needs(Permission.SCHEDULES_READ)
async def console_schedule(
    request: Request,
    name: Annotated[str, Path(max_length=64)],
    context: Ctx,
    caller: CallerDep,
    after: After = None,
) -> Response:
    """Show a schedule with its coming times, and what became of those before."""
    row = await store.find(context.pool, caller.tenant, name)
    times, now = store.times_of(row), await context.database_now(context.pool)
    firings = await store.list_firings(context.pool, row, after, ROWS)
    schedule = store.shown(row, now, with_input=caller.sees_content)
    values = {
        "section": "Schedules",
        "schedule": schedule,
        "by": await names_of(context.pool, [schedule.changed_by]),
        "coming": [
            (one, times.local(one), times.due_at(one)) for one in store.coming(row, now, COMING)
        ],
        "firings": firings.firings,
        "older": address(request, after=firings.next) if firings.next else None,
    }
    return render(request, caller, "schedule.html", values)
