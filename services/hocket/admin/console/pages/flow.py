"""The page of the per-key limits that hold runs back."""

from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import Response

from hocket.admin.console.page_route import page_router
from hocket.admin.console.rendering import render
from hocket.admin.context import Ctx
from hocket.admin.flow import reads
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.permissions import needs
from hocket.schemas.access.roles import Permission

QUEUES = 100
RUNS = 200

router = page_router()


@router.get("/flow")
@needs(Permission.RUNS_READ)
async def console_flow(
    request: Request,
    context: Ctx,
    caller: CallerDep,
    queue: Annotated[str | None, Query(pattern=r"^[0-9a-f]{24}$")] = None,
) -> Response:
    """List the limits at which runs stand, and of one of them the runs."""
    content = caller.sees_content
    found = await reads.queues(context, caller.tenant, None, skip=0, limit=QUEUES, content=content)
    runs = None
    if queue is not None:
        runs = await reads.runs(
            context,
            caller.tenant,
            pipeline=None,
            queue=queue,
            run_id=None,
            skip=0,
            limit=RUNS,
            content=content,
        )
    values = {
        "section": "Flow",
        "queues": found.queues,
        "more": found.next is not None,
        "queue": queue,
        "runs": None if runs is None else runs.runs,
        "more_runs": runs is not None and runs.next is not None,
    }
    return render(request, caller, "flow.html", values)
