"""`/v1/tenants`, `/v1/workers`, `/v1/queues`, `/v1/partitions`: the parts of the platform."""

from typing import Annotated

from fastapi import APIRouter, Query

from hocket.admin.context import Context, Ctx
from hocket.admin.node_types.endpoints import TypeName
from hocket.admin.pages import DEFAULT_PAGE, Limit
from hocket.admin.platform_parts import drains, reads
from hocket.admin.requests.identity import Caller, CallerDep
from hocket.admin.requests.json_bodies import PlainJsonRoute
from hocket.admin.requests.permissions import needs
from hocket.schemas.access.roles import Permission
from hocket.schemas.administration.platform_parts import (
    PartitionList,
    QueueChange,
    QueueDrain,
    QueueList,
    TenantList,
    WorkerList,
)

AfterName = Annotated[
    str,
    Query(max_length=300, pattern=r"^[!-~]*$", description="Last name of the previous page."),
]

router = APIRouter(prefix="/v1", tags=["platform"], route_class=PlainJsonRoute)


@router.get("/tenants")
@needs(Permission.PLATFORM_READ)
async def list_tenants(
    context: Ctx, caller: CallerDep, after: AfterName = "", limit: Limit = DEFAULT_PAGE
) -> TenantList:
    """List the tenants that have runs, pipelines or keys. Requires an all-tenants key."""
    caller.check_all_tenants()
    return await reads.tenants(context.pool, after, limit)


@router.get("/workers")
@needs(Permission.PLATFORM_READ)
async def list_workers(
    context: Ctx, caller: CallerDep, after: AfterName = "", limit: Limit = DEFAULT_PAGE
) -> WorkerList:
    """List the workers that announced themselves within the last seconds, with the steps they take.
    Requires an all-tenants key."""
    caller.check_all_tenants()
    return reads.workers(context.node_types, after, limit)


@router.get("/queues")
@needs(Permission.PLATFORM_READ)
async def list_queues(context: Ctx, caller: CallerDep) -> QueueList:
    """List step queues with their backlog, for all tenants together. Requires an all-tenants key."""
    caller.check_all_tenants()
    return await reads.queues(context.bus, context.node_types)


@router.get("/partitions")
@needs(Permission.PLATFORM_READ)
async def list_partitions(context: Ctx, caller: CallerDep) -> PartitionList:
    """List the partitions and the coordinators that own them. Requires an all-tenants key."""
    caller.check_all_tenants()
    return await reads.partitions(context.pool)


@router.post("/types/{name}/drain")
@needs(Permission.WORKERS_CONTROL)
async def drain_type(
    name: TypeName, context: Ctx, caller: CallerDep, body: QueueDrain | None = None
) -> QueueList:
    """Stop dispatching steps of a node type, or of one of its queues, for a time: by default one
    hour, at most a week. Steps already at workers continue; the others wait while their deadlines
    keep running. Requires an all-tenants key."""
    return await _changed(name, context, caller, body or QueueDrain())


@router.post("/types/{name}/resume")
@needs(Permission.WORKERS_CONTROL)
async def resume_type(
    name: TypeName, context: Ctx, caller: CallerDep, body: QueueChange | None = None
) -> QueueList:
    """Resume dispatching steps of a drained node type, or of one of its queues. Requires an all-tenants
    key."""
    return await _changed(name, context, caller, body or QueueChange())


async def _changed(name: str, context: Context, caller: Caller, body: QueueChange) -> QueueList:
    caller.check_all_tenants()
    await drains.change(context, caller, name, body)
    found = await reads.queues(context.bus, context.node_types)
    own = [one for one in found.queues if (one.type, one.queue) == (name, body.queue)]
    return QueueList(queues=tuple(own))
