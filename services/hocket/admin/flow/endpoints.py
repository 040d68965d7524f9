"""`/v1/flow`: the per-key limits that hold runs back."""

from typing import Annotated

from fastapi import APIRouter, Query

from hocket.admin.context import Ctx
from hocket.admin.flow import reads
from hocket.admin.pages import DEFAULT_PAGE, Limit
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.permissions import needs
from hocket.schemas.access.roles import Permission
from hocket.schemas.administration.flow import FlowQueueList, FlowRunList
from hocket.schemas.rest import Token

After = Annotated[
    str | None,
    Query(
        max_length=6, pattern=r"^[0-9]{1,6}$", description="Cursor: `next` of the previous page."
    ),
]
Queue = Annotated[
    str | None, Query(pattern=r"^[0-9a-f]{24}$", description="`queue` of a row in `GET /v1/flow`.")
]
RunId = Annotated[
    str | None, Query(alias="run", min_length=1, max_length=256, pattern=r"^[^\x00]+$")
]

router = APIRouter(prefix="/v1/flow", tags=["runs"])


@router.get("")
@needs(Permission.RUNS_READ)
async def list_flow(
    context: Ctx,
    caller: CallerDep,
    pipeline: Annotated[Token | None, Query()] = None,
    after: After = None,
    limit: Limit = DEFAULT_PAGE,
) -> FlowQueueList:
    """List the per-key limits that runs hold or wait for, those with the most waiting runs first."""
    return await reads.queues(
        context,
        caller.tenant,
        pipeline,
        skip=int(after or 0),
        limit=limit,
        content=caller.sees_content,
    )


@router.get("/runs")
@needs(Permission.RUNS_READ)
async def list_flow_runs(
    context: Ctx,
    caller: CallerDep,
    pipeline: Annotated[Token | None, Query()] = None,
    queue: Queue = None,
    run_id: RunId = None,
    after: After = None,
    limit: Limit = DEFAULT_PAGE,
) -> FlowRunList:
    """List runs that hold or wait for a slot, each with its position, by queue or run."""
    return await reads.runs(
        context,
        caller.tenant,
        pipeline=pipeline,
        queue=queue,
        run_id=run_id,
        skip=int(after or 0),
        limit=limit,
        content=caller.sees_content,
    )
