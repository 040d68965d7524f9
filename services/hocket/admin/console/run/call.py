"""The page of a model call of a run: prompt and answer, if they are stored, and the routing decision."""

from typing import Annotated

from fastapi import Path, Request
from fastapi.responses import Response

from hocket.admin.calls import reads as calls
from hocket.admin.console.page_route import page_router
from hocket.admin.console.rendering import render
from hocket.admin.content.endpoints import content_of_call
from hocket.admin.context import Ctx
from hocket.admin.pages import MAX_CALL_CHARS
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.permissions import needs
from hocket.admin.runs import reads as runs
from hocket.admin.runs.lookup import RunId, found_run
from hocket.schemas.access.roles import Permission

CallId = Annotated[str, Path(max_length=MAX_CALL_CHARS, pattern=r"^[^\x00]+$")]

router = page_router()


@router.get("/runs/{run_id}/calls/{call_id:path}")
@needs(Permission.RUNS_READ, Permission.COSTS_READ)
async def console_call(
    request: Request, run_id: RunId, call_id: CallId, context: Ctx, caller: CallerDep
) -> Response:
    """Show one call with its attempts; its prompt and answer to those who may see content."""
    run = runs.summary(await found_run(context, caller.tenant, run_id, values=False))
    content = None
    async with context.long_reads.place(caller.tenant):
        call = await calls.explain(context.pool, caller.tenant, call_id)
        if caller.sees_content:
            content = await content_of_call(context.pool, caller.tenant, run_id, call_id)
    values = {
        "section": "Runs",
        "run": run,
        "call_id": call_id,
        "call": call,
        "content": content,
    }
    return render(request, caller, "call.html", values)
