"""`/v1/approvals`: what runs wait for, from a person."""

from dataclasses import asdict

from fastapi import APIRouter

from hocket.admin.approvals import reads
from hocket.admin.context import Ctx
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.permissions import needs
from hocket.schemas.access.roles import Permission
from hocket.schemas.administration.approvals import Approval, ApprovalList

router = APIRouter(prefix="/v1/approvals", tags=["runs"])


@router.get("")
@needs(Permission.RUNS_READ)
async def list_approvals(context: Ctx, caller: CallerDep) -> ApprovalList:
    """List the approvals that runs wait for, the one that waits longest first."""
    found = await reads.waiting(context, caller.tenant, content=caller.sees_content)
    return ApprovalList(approvals=tuple(Approval(**asdict(one)) for one in found))
