"""`/v1/data`: permanently delete the data of a tenant, or of its tasks with a label."""

import asyncio

from fastapi import APIRouter

from hocket.admin.context import Ctx
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.json_bodies import PlainJsonRoute
from hocket.admin.requests.permissions import needs
from hocket.kit.postgres import data_deletion
from hocket.kit.postgres.data_deletion import Selection
from hocket.schemas.access.roles import Permission
from hocket.schemas.administration.data import DataDeleted, DataDeletion
from hocket.schemas.errors import ErrorClass, HocketError

DELETION_S = 20.0
"""How long one request may spend deleting, or wait for its turn; the next request continues."""
router = APIRouter(prefix="/v1/data", tags=["data"], route_class=PlainJsonRoute)


class TenantUnconfirmed(HocketError):
    """The request is for the tenant `{tenant}`, but its field `tenant` says `{said}`. Name the tenant
    whose data is to be deleted; nothing was deleted."""

    code = "tenant_unconfirmed"
    error_class = ErrorClass.INVALID


@router.post("/delete")
@needs(Permission.DATA_DELETE)
async def delete_data(body: DataDeletion, context: Ctx, caller: CallerDep) -> DataDeleted:
    """Permanently delete the runs of the request's tenant, or only those with a label, with their
    results, calls and all other data. Runs in flight must have ended. The deletion is recorded in the
    audit log."""
    if body.tenant != caller.tenant:
        raise TenantUnconfirmed(tenant=caller.tenant, said=body.tenant)
    label = None if body.label is None else next(iter(body.label.items()))
    selection = Selection(caller.tenant, label)
    gone: dict[str, int] = {}
    try:
        async with (
            asyncio.timeout(DELETION_S),
            context.long_reads.place(caller.tenant),
            context.pool.acquire() as connection,
        ):
            if body.dry_run:
                found = await data_deletion.counted(connection, selection)
                return DataDeleted(complete=False, rows=found)
            await data_deletion.deleted(connection, selection, caller.actor, gone, count=False)
    except TimeoutError:
        if body.dry_run:
            raise
    else:
        return DataDeleted(complete=True, rows=gone)
    return DataDeleted(complete=False, rows=gone)
