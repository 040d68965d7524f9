"""`/v1/bulk`: submit many runs, and cancel or retry many by filter, with a preview and progress."""

from typing import Annotated

from fastapi import APIRouter, Path

from hocket.admin.bulk import operations, store, targets
from hocket.admin.context import Ctx
from hocket.admin.pages import DEFAULT_PAGE, After, Limit
from hocket.admin.queries import QUERY_TIMEOUT_S
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.json_bodies import PlainJsonRoute
from hocket.admin.requests.parameters import IdempotencyKey
from hocket.admin.requests.permissions import needs
from hocket.admin.submission.many import submit_all
from hocket.admin.submission.one import merged_key
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
    str, Path(pattern=r"^b[0-9a-f]{24}$", description="ID of the bulk operation.")
]
router = APIRouter(prefix="/v1/bulk", tags=["bulk"], route_class=PlainJsonRoute)


@router.post("/runs", status_code=202)
@needs(Permission.RUNS_SUBMIT)
async def submit_runs(body: BulkSubmission, context: Ctx, caller: CallerDep) -> BulkReceipt:
    """Submit up to 1,000 tasks. Returns 202 once the broker has stored the accepted tasks; each rejected
    task has its own error."""
    return await submit_all(context, caller, body.runs)


@router.post("/preview")
@needs(Permission.RUNS_READ)
async def preview_bulk(body: BulkChange, context: Ctx, caller: CallerDep) -> BulkPreview:
    """Count the runs that an operation would change, without changing anything."""
    found = await targets.count(context, caller.tenant, body.action, body.filter)
    return BulkPreview(action=body.action, matching=found.matching)


@router.post("/operations", status_code=202)
@needs(Permission.RUNS_CANCEL, Permission.RUNS_SUBMIT)
async def begin_bulk(
    body: BulkChange, context: Ctx, caller: CallerDep, idempotency_key: IdempotencyKey = None
) -> BulkOperation:
    """Cancel or retry all runs that match a filter, in the background. Only runs accepted before the
    request are included. The operation continues even if the process working on it is stopped."""
    return await operations.begin(context, caller, merged_key(body, idempotency_key))


@router.get("/operations")
@needs(Permission.RUNS_READ)
async def list_bulk(
    context: Ctx, caller: CallerDep, after: After = None, limit: Limit = DEFAULT_PAGE
) -> BulkOperationList:
    """List bulk operations, newest first."""
    return await store.list_latest(context.pool, caller.tenant, after, limit)


@router.get("/operations/{operation_id}")
@needs(Permission.RUNS_READ)
async def show_bulk(operation_id: OperationId, context: Ctx, caller: CallerDep) -> BulkOperation:
    """Show the progress of a bulk operation."""
    return await store.find(context.pool, caller.tenant, operation_id)


@router.post("/operations/{operation_id}/stop")
@needs(Permission.RUNS_CANCEL, Permission.RUNS_SUBMIT)
async def stop_bulk(operation_id: OperationId, context: Ctx, caller: CallerDep) -> BulkOperation:
    """Stop a bulk operation. Changes already made are kept."""
    async with (
        context.pool.acquire(timeout=QUERY_TIMEOUT_S) as connection,
        connection.transaction(),
    ):
        stopped = await store.stop(connection, caller.tenant, operation_id)
        done = Action("runs.bulk_stop", f"bulk:{operation_id}", caller.tenant)
        await audit_log.record(connection, caller.actor, done)
    return stopped
