"""`/v1/backends`: the state of backends' replicas at all gateways; drain, resume, warm, reset.

Backends are shared by all tenants, so only a key of all tenants can change them. Each order is written
to the audit before it is sent.
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
    Name, Path(max_length=MAX_NAME_CHARS, description="Name of the backend in the configuration.")
]

router = APIRouter(prefix="/v1/backends", tags=["backends"], route_class=PlainJsonRoute)
rates_router = APIRouter(prefix="/v1", tags=["backends"], route_class=PlainJsonRoute)


@router.get("")
@needs(Permission.MODELS_READ)
async def list_backends(context: Ctx) -> BackendList:
    """List the replicas of all backends, as seen by each gateway."""
    return await gathered(context.bus)


@rates_router.get("/model-rates")
@needs(Permission.MODELS_READ)
async def list_rates(context: Ctx, caller: CallerDep) -> ModelRateList:
    """List the usage of tenant and model rate limits in the last minute: those of the caller's tenant
    and those shared by all tenants. All-tenants keys see every limit."""
    return await gathered_rates(context.bus, caller.bearer.tenant)


@router.post("/{backend}/drain")
@needs(Permission.MODELS_CONTROL)
async def drain_backend(
    backend: BackendName, body: ReplicaChange, context: Ctx, caller: CallerDep
) -> BackendList:
    """Stop sending calls to a backend; calls in flight finish. New calls go to other replicas and
    fallbacks, or wait if there are none. The drain lasts until the backend is resumed, and also applies
    to gateways started later."""
    return await _changed(context, caller, backend, body, "drain")


@router.post("/{backend}/resume")
@needs(Permission.MODELS_CONTROL)
async def resume_backend(
    backend: BackendName, body: ReplicaChange, context: Ctx, caller: CallerDep
) -> BackendList:
    """Resume sending calls to a drained backend."""
    return await _changed(context, caller, backend, body, "resume")


@router.post("/{backend}/warm")
@needs(Permission.MODELS_CONTROL)
async def warm_backend(
    backend: BackendName, body: ReplicaWarmth, context: Ctx, caller: CallerDep
) -> BackendList:
    """Start a backend's replicas now and keep them ready for a time. Only for replicas that gateways
    start and stop (`warm:` in the configuration)."""
    return await _changed(context, caller, backend, body, "warm", body.for_s * MS_PER_S)


@router.post("/{backend}/reset")
@needs(Permission.MODELS_CONTROL)
async def reset_backend(
    backend: BackendName, body: ReplicaChange, context: Ctx, caller: CallerDep
) -> BackendList:
    """Close a backend's breakers at all gateways, and end any pause that it requested."""
    return await _changed(context, caller, backend, body, "reset")


async def _changed(
    context: Context,
    caller: Caller,
    backend: str,
    body: ReplicaChange,
    action: Literal["drain", "resume", "warm", "reset"],
    for_ms: float = 0.0,
) -> BackendList:
    caller.check_all_tenants()
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
