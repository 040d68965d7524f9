"""`/v1/tenants`, `/v1/workers`, `/v1/queues`, `/v1/partitions`: what the platform is made of."""

from typing import Annotated

from fastapi import APIRouter, Query

from hocket.admin.context import Context, Ctx
from hocket.admin.node_types.endpoints import TypeName
from hocket.admin.pages import DEFAULT_PAGE, Limit
from hocket.admin.platform_parts import drains, reads
from hocket.admin.requests.identity import Caller, CallerDep
from hocket.admin.requests.json_bodies import PlainJsonRoute
from hocket.admin.requests.permissions import needs
from hocket.schemas.access.keys import TenantForbidden
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
    Query(max_length=300, pattern=r"^[!-~]*$", description="The last name of the page before."),
]

router = APIRouter(prefix="/v1", tags=["platform"], route_class=PlainJsonRoute)


@router.get("/tenants")
@needs(Permission.PLATFORM_READ)
async def list_tenants(
    context: Ctx, caller: CallerDep, after: AfterName = "", limit: Limit = DEFAULT_PAGE
) -> TenantList:
    """List the tenants that have runs, pipelines or keys. Only with a key of all tenants."""
    _check_wide(caller)
    return await reads.tenants(context.pool, after, limit)


@router.get("/workers")
@needs(Permission.PLATFORM_READ)
async def list_workers(
    context: Ctx, caller: CallerDep, after: AfterName = "", limit: Limit = DEFAULT_PAGE
) -> WorkerList:
    """List the workers that announced themselves within the last seconds, with the steps that they
    take. Only with a key of all tenants."""
    _check_wide(caller)
    return reads.workers(context.node_types, after, limit)


@router.get("/queues")
@needs(Permission.PLATFORM_READ)
async def list_queues(context: Ctx, caller: CallerDep) -> QueueList:
    """List the queues of steps with what waits in them, that of all tenants together. Only with a key
    of all tenants."""
    _check_wide(caller)
    return await reads.queues(context.bus, context.node_types)


@router.get("/partitions")
@needs(Permission.PLATFORM_READ)
async def list_partitions(context: Ctx, caller: CallerDep) -> PartitionList:
    """List the partitions of the runs with the coordinators that own them. Only with a key of all
    tenants."""
    _check_wide(caller)
    return await reads.partitions(context.pool)


@router.post("/types/{name}/drain")
@needs(Permission.WORKERS_CONTROL)
async def drain_type(
    name: TypeName, context: Ctx, caller: CallerDep, body: QueueDrain | None = None
) -> QueueList:
    """Hand out no more steps of a node type, or of a queue of it, for a time: an hour by default, at
    most a week. Steps that workers have go on, others wait, and their deadlines with them. Only with a
    key of all tenants."""
    return await _changed(name, context, caller, body or QueueDrain())


@router.post("/types/{name}/resume")
@needs(Permission.WORKERS_CONTROL)
async def resume_type(
    name: TypeName, context: Ctx, caller: CallerDep, body: QueueChange | None = None
) -> QueueList:
    """Hand out the steps of a drained node type, or of a queue of it, again. Only with a key of all
    tenants."""
    return await _changed(name, context, caller, body or QueueChange())


async def _changed(name: str, context: Context, caller: Caller, body: QueueChange) -> QueueList:
    _check_wide(caller)
    await drains.change(context, caller, name, body)
    found = await reads.queues(context.bus, context.node_types)
    own = [one for one in found.queues if (one.type, one.queue) == (name, body.queue)]
    return QueueList(queues=tuple(own))


def _check_wide(caller: Caller) -> None:
    if caller.bearer.tenant is not None:
        raise TenantForbidden(key=caller.bearer.key_id)
