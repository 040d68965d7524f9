"""The page of pending approvals."""

from fastapi import Request
from fastapi.responses import Response

from hocket.admin.approvals import reads
from hocket.admin.console.page_route import page_router
from hocket.admin.console.pending_approvals import tell_approvals
from hocket.admin.console.rendering import render
from hocket.admin.context import Ctx
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.permissions import needs
from hocket.schemas.access.roles import Permission

router = page_router()


@router.get("/approvals")
@needs(Permission.RUNS_READ)
async def console_approvals(request: Request, context: Ctx, caller: CallerDep) -> Response:
    """List the approvals that runs wait for, to be given or refused with a comment."""
    found = await reads.waiting(context, caller.tenant, content=caller.sees_content)
    is_full = len(found) == reads.MAX_WAITING
    tell_approvals(request, len(found), is_all=not is_full)
    values = {"section": "Approvals", "waiting": found, "is_full": is_full}
    return render(request, caller, "approvals.html", values)
