"""`/v1/experiments`: how the arms of experiments perform, and switching an arm off and on.

The gateways hold this state; one of them is asked.
"""

from typing import Annotated, Literal

from fastapi import APIRouter, Path

from hocket.admin.audit.recording import record
from hocket.admin.backends.errors import GatewayAway, GatewayRefused
from hocket.admin.context import Context, Ctx
from hocket.admin.requests.identity import Caller, CallerDep
from hocket.admin.requests.json_bodies import PlainJsonRoute
from hocket.admin.requests.permissions import needs
from hocket.kit.nats.errors import BusUnavailable
from hocket.schemas import subjects
from hocket.schemas.access.roles import Permission
from hocket.schemas.messages import ExperimentControl, ExperimentsTold, OutcomeTold
from hocket.schemas.rest import ExperimentList, OutcomeBody, OutcomeSent, Token

GATEWAY_TIMEOUT_MS = 5_000.0

ExperimentName = Annotated[Token, Path(description="Name of the experiment.")]
ArmName = Annotated[Token, Path(description="Name of one of its arms, other than the control.")]

router = APIRouter(prefix="/v1/experiments", tags=["experiments"], route_class=PlainJsonRoute)


@router.get("")
@needs(Permission.EXPERIMENTS_READ)
async def list_experiments(context: Ctx, caller: CallerDep) -> ExperimentList:
    """List experiments of the tenant and of all tenants, with their arms and each arm's recent
    results."""
    return await _asked(context, ExperimentControl(action="list", tenant=caller.tenant))


@router.post("/outcomes", status_code=202)
@needs(Permission.RUNS_SUBMIT)
async def report_outcome(body: OutcomeBody, context: Ctx, caller: CallerDep) -> OutcomeSent:
    """Report whether the result of a run was good. Experiments judge the arms that the run's calls went
    to by it, in the place of the run's status. Returns 202; gateways that restart forget it."""
    told = OutcomeTold(tenant=caller.tenant, run_id=body.run_id, good=body.good)
    if not context.bus.nc.is_connected:
        raise BusUnavailable(reason="the connection is lost")
    context.bus.publish_nowait(subjects.GATEWAY_OUTCOME, told.model_dump_json().encode())
    return OutcomeSent(tenant=caller.tenant, run_id=body.run_id, good=body.good)


@router.post("/{experiment}/arms/{arm}/rollback")
@needs(Permission.EXPERIMENTS_CONTROL)
async def roll_back(
    experiment: ExperimentName, arm: ArmName, context: Ctx, caller: CallerDep
) -> ExperimentList:
    """Switch off an arm: its runs go to the control. For an experiment of all tenants, this requires an
    all-tenants key."""
    await _check_reach(context, caller, experiment)
    await record(context, caller, "experiments.rollback", f"experiment:{experiment}/{arm}")
    return await _asked(context, _control("rollback", experiment, arm, caller))


@router.post("/{experiment}/arms/{arm}/restore")
@needs(Permission.EXPERIMENTS_CONTROL)
async def restore(
    experiment: ExperimentName, arm: ArmName, context: Ctx, caller: CallerDep
) -> ExperimentList:
    """Switch an arm back on and discard its past results. For an experiment of all tenants, this
    requires an all-tenants key."""
    await _check_reach(context, caller, experiment)
    await record(context, caller, "experiments.restore", f"experiment:{experiment}/{arm}")
    return await _asked(context, _control("restore", experiment, arm, caller))


async def _check_reach(context: Context, caller: Caller, experiment: str) -> None:
    """Raise TenantForbidden if a key of one tenant tries to switch an arm for every tenant."""
    if caller.bearer.tenant is None:
        return
    known = await _asked(context, ExperimentControl(action="list", tenant=caller.tenant))
    if any(one.experiment == experiment and one.tenant is None for one in known.experiments):
        caller.check_all_tenants()


def _control(
    action: Literal["rollback", "restore"], experiment: str, arm: str, caller: Caller
) -> ExperimentControl:
    return ExperimentControl(
        action=action, tenant=caller.tenant, experiment=experiment, arm=arm, by=caller.name
    )


async def _asked(context: Context, wanted: ExperimentControl) -> ExperimentList:
    payload = wanted.model_dump_json().encode()
    try:
        reply = await context.bus.request(
            subjects.GATEWAY_EXPERIMENTS, payload, timeout_ms=GATEWAY_TIMEOUT_MS
        )
    except (BusUnavailable, TimeoutError) as error:
        raise GatewayAway(reason=str(error) or type(error).__name__) from error
    told = ExperimentsTold.model_validate_json(reply.data)
    if told.error is not None:
        raise GatewayRefused(told.error)
    return ExperimentList(experiments=told.experiments)
