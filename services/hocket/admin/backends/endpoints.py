"""`/v1/backends`: how the replicas of models' backends are at all gateways; drain, resume, warm, reset.

Backends are all tenants': only a key of all tenants changes something. What is asked for stands in the
audit before it is sent.
"""

from typing import Annotated, Literal

from fastapi import APIRouter, Path

from hocket.admin.audit.recording import record
from hocket.admin.backends.errors import GatewayAway, GatewayRefused
from hocket.admin.backends.gathering import gathered, gathered_rates
from hocket.admin.context import Context, Ctx
from hocket.admin.requests.identity import Caller, CallerDep
from hocket.admin.requests.json_bodies import PlainJsonRoute
from hocket.admin.requests.permissions import needs
from hocket.kit.nats.errors import BusUnavailable
from hocket.schemas import subjects
from hocket.schemas.access.keys import TenantForbidden
from hocket.schemas.access.roles import Permission
from hocket.schemas.administration.backends import (
    BackendList,
    ModelRateList,
    ReplicaChange,
    ReplicaWarmth,
)
from hocket.schemas.checks.bounded import Name
from hocket.schemas.messages import ReplicaControl, ReplicasTold

GATEWAY_TIMEOUT_MS = 5_000.0
MAX_NAME_CHARS = 256
MS_PER_S = 1_000.0

BackendName = Annotated[
    Name, Path(max_length=MAX_NAME_CHARS, description="The backend's name in the configuration.")
]

router = APIRouter(prefix="/v1/backends", tags=["backends"], route_class=PlainJsonRoute)
rates_router = APIRouter(prefix="/v1", tags=["backends"], route_class=PlainJsonRoute)


@router.get("")
@needs(Permission.MODELS_READ)
async def list_backends(context: Ctx) -> BackendList:
    """List the replicas of all backends, as every gateway sees them."""
    return await gathered(context.bus)


@rates_router.get("/model-rates")
@needs(Permission.MODELS_READ)
async def list_rates(context: Ctx, caller: CallerDep) -> ModelRateList:
    """List what was used, within the last minute, of the rates of tenants and models: those of the
    caller's tenant, and those of all tenants together; keys of all tenants see each."""
    return await gathered_rates(context.bus, caller.bearer.tenant)


@router.post("/{backend}/drain")
@needs(Permission.MODELS_CONTROL)
async def drain_backend(
    backend: BackendName, body: ReplicaChange, context: Ctx, caller: CallerDep
) -> BackendList:
    """Send a backend no more calls; those that it has end. Calls go to other replicas and fallbacks, and
    wait where there is none. It holds until it is resumed, also for gateways that start later."""
    return await _changed(context, caller, backend, body, "drain")


@router.post("/{backend}/resume")
@needs(Permission.MODELS_CONTROL)
async def resume_backend(
    backend: BackendName, body: ReplicaChange, context: Ctx, caller: CallerDep
) -> BackendList:
    """Send a drained backend calls again."""
    return await _changed(context, caller, backend, body, "resume")


@router.post("/{backend}/warm")
@needs(Permission.MODELS_CONTROL)
async def warm_backend(
    backend: BackendName, body: ReplicaWarmth, context: Ctx, caller: CallerDep
) -> BackendList:
    """Start a backend's replicas now, and keep them ready for a time: those that gateways start and stop
    (`warm:` in the configuration)."""
    return await _changed(context, caller, backend, body, "warm", body.for_s * MS_PER_S)


@router.post("/{backend}/reset")
@needs(Permission.MODELS_CONTROL)
async def reset_backend(
    backend: BackendName, body: ReplicaChange, context: Ctx, caller: CallerDep
) -> BackendList:
    """Close the breakers of a backend at all gateways, and end the rest that it asked for."""
    return await _changed(context, caller, backend, body, "reset")


async def _changed(
    context: Context,
    caller: Caller,
    backend: str,
    body: ReplicaChange,
    action: Literal["drain", "resume", "warm", "reset"],
    for_ms: float = 0.0,
) -> BackendList:
    if caller.bearer.tenant is not None:
        raise TenantForbidden(key=caller.bearer.key_id)
    wanted = ReplicaControl(
        action=action,
        backend=backend,
        replica=body.replica or "",
        for_ms=for_ms,
        reason=body.reason,
        by=caller.name,
    )
    said = body.model_dump(exclude_defaults=True)
    await record(context, caller, f"backends.{action}", f"backend:{backend}", after=said)
    try:
        reply = await context.bus.request(
            subjects.GATEWAY_REPLICAS,
            wanted.model_dump_json().encode(),
            timeout_ms=GATEWAY_TIMEOUT_MS,
        )
    except (BusUnavailable, TimeoutError) as error:
        raise GatewayAway(reason=str(error) or type(error).__name__) from error
    told = ReplicasTold.model_validate_json(reply.data)
    if told.error is not None:
        raise GatewayRefused(told.error)
    return await gathered(context.bus)
