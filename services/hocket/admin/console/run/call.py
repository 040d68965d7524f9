"""The page of a model call, of a run or by itself: prompt and answer, if they are stored, and the
routing decision."""

from typing import Annotated, Any

from fastapi import Path, Request
from fastapi.responses import Response

from hocket.admin.calls import reads as calls
from hocket.admin.console.page_route import page_router
from hocket.admin.console.rendering import render
from hocket.admin.content.endpoints import content_of_call
from hocket.admin.context import Ctx
from hocket.admin.pages import MAX_CALL_CHARS
from hocket.admin.requests.identity import Caller, CallerDep
from hocket.admin.requests.permissions import needs
from hocket.admin.runs import reads as runs
from hocket.admin.runs.lookup import RunId, found_run
from hocket.schemas.access.roles import Permission
from hocket.schemas.errors import RunUnknown

CallId = Annotated[str, Path(max_length=MAX_CALL_CHARS, pattern=r"^[^\x00]+$")]

router = page_router()


@router.get("/runs/{run_id}/calls/{call_id:path}")
@needs(Permission.RUNS_READ, Permission.COSTS_READ)
async def console_call(
    request: Request, run_id: RunId, call_id: CallId, context: Ctx, caller: CallerDep
) -> Response:
    """Show one call of a run with its attempts; its prompt and answer to those who may see content.

    A call may name a run that is not stored: it is shown by itself. Raises RunUnknown if there is none.
    """
    try:
        run = runs.summary(await found_run(context, caller.tenant, run_id, values=False))
    except RunUnknown:
        alone = await _call(context, caller, run_id, call_id)
        if all(one.run_id != run_id for one in alone["call"].attempts) and not alone["content"]:
            raise
        return render(request, caller, "call.html", {"section": "Models", "run": None, **alone})
    shown = {"section": "Runs", "run": run, **await _call(context, caller, run_id, call_id)}
    return render(request, caller, "call.html", shown)


@router.get("/calls/{call_id:path}")
@needs(Permission.RUNS_READ, Permission.COSTS_READ)
async def console_single_call(
    request: Request, call_id: CallId, context: Ctx, caller: CallerDep
) -> Response:
    """Show one call, which need not name a run of Hocket's."""
    shown = {"section": "Models", "run": None, **await _call(context, caller, None, call_id)}
    return render(request, caller, "call.html", shown)


async def _call(context: Ctx, caller: Caller, run_id: str | None, call_id: str) -> dict[str, Any]:
    content = None
    async with context.long_reads.place(caller.tenant):
        call = await calls.explain(context.pool, caller.tenant, call_id)
        if caller.sees_content:
            content = await content_of_call(context.pool, caller.tenant, run_id, call_id)
    return {"call_id": call_id, "call": call, "content": content}
