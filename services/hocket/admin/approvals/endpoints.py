"""`/v1/approvals`: the approvals that runs are waiting for."""

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query

from hocket.admin.approvals import reads
from hocket.admin.approvals.reads import WaitingFilter
from hocket.admin.context import Ctx
from hocket.admin.pages import CURSOR, Limit
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.permissions import needs
from hocket.schemas.access.roles import Permission
from hocket.schemas.administration.approvals import Approval, ApprovalList
from hocket.schemas.rest import Token

AfterApproval = Annotated[
    str | None,
    Query(
        max_length=reads.MAX_PLACE_CHARS,
        pattern=CURSOR,
        description="Cursor: `next` of the previous page.",
    ),
]

router = APIRouter(prefix="/v1/approvals", tags=["runs"])


@router.get("")
@needs(Permission.RUNS_READ)
async def list_approvals(
    context: Ctx,
    caller: CallerDep,
    run_id: Annotated[
        str | None, Query(alias="run", min_length=1, max_length=256, pattern=r"^[^\x00]+$")
    ] = None,
    pipeline: Annotated[Token | None, Query()] = None,
    after: AfterApproval = None,
    limit: Limit = reads.DEFAULT_WAITING,
) -> ApprovalList:
    """List pending approvals, longest-waiting first: all, or those of one `run` or `pipeline`."""
    found, more = await reads.waiting(
        context,
        caller.tenant,
        WaitingFilter(run_id, pipeline),
        content=caller.sees_content,
        after=after,
        limit=limit,
    )
    return ApprovalList(approvals=tuple(Approval(**asdict(one)) for one in found), next=more)
