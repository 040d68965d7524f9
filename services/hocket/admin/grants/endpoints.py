"""`/v1/grants`: what the pipelines of a tenant may use, shown to the tenant, set by operators."""

from fastapi import APIRouter, Response

from hocket.admin.context import Ctx
from hocket.admin.requests.etags import ETAG, IfMatch, check_match, etag
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.json_bodies import PlainJsonRoute
from hocket.admin.requests.permissions import needs
from hocket.kit.access import grant_store
from hocket.schemas.access.grants import Grants
from hocket.schemas.access.roles import Permission

QUERY_TIMEOUT_S = 2.5

router = APIRouter(prefix="/v1/grants", tags=["grants"], route_class=PlainJsonRoute)


@router.get("")
@needs(Permission.GRANTS_READ)
async def show_grants(response: Response, context: Ctx, caller: CallerDep) -> Grants:
    """Show what the pipelines of the request's tenant may use. A list that is `null` is unrestricted."""
    stored = await grant_store.read(context.pool, caller.tenant)
    response.headers[ETAG] = etag(stored.revision)
    return stored.grants


@router.put("")
@needs(Permission.GRANTS_MANAGE)
async def set_grants(
    body: Grants, response: Response, context: Ctx, caller: CallerDep, if_match: IfMatch = None
) -> Grants:
    """Replace what the pipelines of the request's tenant may use; `{}` lets them use everything.
    Requires an all-tenants key, so that tenants cannot extend their own grants."""
    caller.check_all_tenants()
    async with (
        context.pool.acquire(timeout=QUERY_TIMEOUT_S) as connection,
        connection.transaction(),
    ):
        before = await grant_store.locked(connection, caller.tenant)
        check_match(if_match, before.revision)
        stored = await grant_store.replace(connection, caller.tenant, before, body, caller.actor)
    response.headers[ETAG] = etag(stored.revision)
    return stored.grants
