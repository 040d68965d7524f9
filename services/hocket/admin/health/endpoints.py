"""`/healthz` and `/readyz` for probes, `/v1/health` for people. The process's own health port serves the
same probes and `/metrics`."""

from fastapi import APIRouter, Request, Response

from hocket.admin.context import Ctx
from hocket.admin.health import reads
from hocket.admin.health.database_check import DatabaseCheck
from hocket.admin.requests.permissions import needs, public
from hocket.schemas.access.roles import Permission
from hocket.schemas.rest import SystemHealth

router = APIRouter(tags=["health"])


@router.get("/healthz", include_in_schema=False)
@public
async def process_lives() -> Response:
    """Return 200 as long as the process is alive."""
    return Response("ok\n", media_type="text/plain")


@router.get("/readyz", include_in_schema=False)
@public
async def can_serve(request: Request, context: Ctx) -> Response:
    """Return 200 if broker and database can be reached; 503 otherwise, or once the process was asked to
    stop."""
    if context.leaving.is_set() or context.stopping.is_set():
        return Response("shutting down\n", 503)
    check: DatabaseCheck = request.app.state.database_check
    ready = context.bus.connected and await check.answers()
    return Response("ready\n" if ready else "not ready\n", 200 if ready else 503)


@router.get("/v1/health")
@needs(Permission.PLATFORM_READ)
async def system_health(context: Ctx) -> SystemHealth:
    """Show the state of the platform's parts, as seen by this process."""
    return await reads.system_health(context)
