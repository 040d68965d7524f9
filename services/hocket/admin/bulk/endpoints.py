"""`/v1/bulk`: submit many runs, and cancel or retry many by filter, with a preview and progress."""

from typing import Annotated

from fastapi import APIRouter, Path

from hocket.admin.bulk import operations, store
from hocket.admin.context import Ctx
from hocket.admin.pages import DEFAULT_PAGE, After, Limit
from hocket.admin.queries import QUERY_TIMEOUT_S
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.json_bodies import PlainJsonRoute
from hocket.admin.requests.permissions import needs
from hocket.admin.submission.many import submit_all
from hocket.kit.access import audit_log
from hocket.kit.access.audit_log import Action
from hocket.schemas.access.roles import Permission
from hocket.schemas.administration.bulk import (
    BulkChange,
    BulkOperation,
    BulkOperationList,
    BulkPreview,
    BulkReceipt,
    BulkSubmission,
)

OperationId = Annotated[
    str, Path(pattern=r"^b[0-9a-f]{24}$", description="The id of a bulk operation.")
]
router = APIRouter(prefix="/v1/bulk", tags=["bulk"], route_class=PlainJsonRoute)


@router.post("/runs", status_code=202)
@needs(Permission.RUNS_SUBMIT)
async def submit_runs(body: BulkSubmission, context: Ctx, caller: CallerDep) -> BulkReceipt:
    """Submit up to 1,000 tasks. 202 once the broker has stored those that are taken; each of the others
    has its error."""
    return await submit_all(context, caller, body.runs)


@router.post("/preview")
@needs(Permission.RUNS_READ)
async def preview_bulk(body: BulkChange, context: Ctx, caller: CallerDep) -> BulkPreview:
    """Count the runs that an operation would change, and change nothing."""
    found = await operations.count(context, caller.tenant, body.action, body.filter)
    return BulkPreview(action=body.action, matching=found)


@router.post("/operations", status_code=202)
@needs(Permission.RUNS_CANCEL, Permission.RUNS_SUBMIT)
async def begin_bulk(body: BulkChange, context: Ctx, caller: CallerDep) -> BulkOperation:
    """Cancel or retry all runs that a filter means, in the background: those that were accepted until
    now. It goes on where the process that works on it is stopped."""
    return await operations.begin(context, caller, body)


@router.get("/operations")
@needs(Permission.RUNS_READ)
async def list_bulk(
    context: Ctx, caller: CallerDep, after: After = None, limit: Limit = DEFAULT_PAGE
) -> BulkOperationList:
    """List bulk operations, the latest first."""
    return await store.list_latest(context.pool, caller.tenant, after, limit)


@router.get("/operations/{operation_id}")
@needs(Permission.RUNS_READ)
async def show_bulk(operation_id: OperationId, context: Ctx, caller: CallerDep) -> BulkOperation:
    """Show how far a bulk operation is."""
    return await store.find(context.pool, caller.tenant, operation_id)


@router.post("/operations/{operation_id}/stop")
@needs(Permission.RUNS_CANCEL, Permission.RUNS_SUBMIT)
async def stop_bulk(operation_id: OperationId, context: Ctx, caller: CallerDep) -> BulkOperation:
    """Stop a bulk operation where it is. What it has changed stays so."""
    async with (
        context.pool.acquire(timeout=QUERY_TIMEOUT_S) as connection,
        connection.transaction(),
    ):
        stopped = await store.stop(connection, caller.tenant, operation_id)
        done = Action("runs.bulk_stop", f"bulk:{operation_id}", caller.tenant)
        await audit_log.record(connection, caller.actor, done)
    return stopped
