"""`/v1/approvals`: the approvals that runs are waiting for."""

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query

from hocket.admin.approvals import reads
from hocket.admin.context import Ctx
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.permissions import needs
from hocket.schemas.access.roles import Permission
from hocket.schemas.administration.approvals import Approval, ApprovalList

router = APIRouter(prefix="/v1/approvals", tags=["runs"])


@router.get("")
@needs(Permission.RUNS_READ)
async def list_approvals(
    context: Ctx,
    caller: CallerDep,
    run_id: Annotated[
        str | None, Query(alias="run", min_length=1, max_length=256, pattern=r"^[^\x00]+$")
    ] = None,
) -> ApprovalList:
    """List pending approvals, longest-waiting first: the first 200, or those of one `run`."""
    content = caller.sees_content
    found = await reads.waiting(context, caller.tenant, content=content, run_id=run_id)
    return ApprovalList(approvals=tuple(Approval(**asdict(one)) for one in found))
