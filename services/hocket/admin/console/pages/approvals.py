"""The page of pending approvals."""

from fastapi import Request
from fastapi.responses import Response

from hocket.admin.approvals import reads
from hocket.admin.approvals.endpoints import AfterApproval
from hocket.admin.approvals.reads import WaitingFilter
from hocket.admin.console.page_route import page_router
from hocket.admin.console.pending_approvals import tell_approvals
from hocket.admin.console.rendering import address, render
from hocket.admin.context import Ctx
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.permissions import needs
from hocket.schemas.access.roles import Permission

router = page_router()


@router.get("/approvals")
@needs(Permission.RUNS_READ)
async def console_approvals(
    request: Request, context: Ctx, caller: CallerDep, after: AfterApproval = None
) -> Response:
    """List the approvals that runs wait for, to be given or refused with a comment."""
    found, more = await reads.waiting(
        context,
        caller.tenant,
        WaitingFilter(),
        content=caller.sees_content,
        after=after,
        limit=reads.DEFAULT_WAITING,
    )
    if after is None:
        tell_approvals(request, len(found), is_all=more is None)
    values = {
        "section": "Approvals",
        "waiting": found,
        "is_first": after is None,
        "more": address(request, after=more) if more else None,
    }
    return render(request, caller, "approvals.html", values)
