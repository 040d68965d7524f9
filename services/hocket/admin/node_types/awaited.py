"""Finds steps that wait because no worker currently takes them."""

from hocket.admin.context import Context
from hocket.admin.node_types.registry import NodeTypes
from hocket.schemas.errors import HocketError
from hocket.schemas.pipeline.handlers import HandlerNotHere
from hocket.schemas.pipeline.plan import Plan
from hocket.schemas.pipeline.spec import runs_in_worker
from hocket.schemas.rest import StepDetail, StepList, StepWaits
from hocket.schemas.subjects import pool

HANDED_OUT = "dispatched"
PASSED_ON = "backoff"
LEAF = "leaf"


async def with_awaited(
    context: Context, tenant: str, pipeline: str, version: int, found: StepList
) -> StepList:
    """Return the steps of a run; those that no worker takes say what they wait for."""
    out = [step for step in found.steps if _may_wait(step)]
    if not out or not context.node_types.is_settled:
        return found
    try:
        _, plan = await context.plans.plan_of(context.pool, tenant, pipeline, version)
    except HocketError:
        return found
    waits = {step.step: _waits(step, plan, context.node_types) for step in out}
    steps = tuple(
        step.model_copy(update={"waits_for": waits.get(step.step) or step.waits_for})
        for step in found.steps
    )
    return found.model_copy(update={"steps": steps})


def _may_wait(step: StepDetail) -> bool:
    return step.state in (HANDED_OUT, PASSED_ON) and step.role == LEAF and runs_in_worker(step.type)


def _waits(step: StepDetail, plan: Plan, types: NodeTypes) -> StepWaits | None:
    node = plan.by_path.get(step.node)
    queue = node.node.queue if node is not None else None
    # the queue of an agent's tool is not known here: any worker of the type may be the one
    is_served = node is None and any(True for _ in types.types.workers_of(step.type))
    if is_served or types.has_workers(pool(step.type, queue)):
        if step.error is not None and step.error.code == HandlerNotHere.code:
            return StepWaits(type=step.type, queue=queue, reason=step.error.message)
        return None
    served = f"`{step.type}` in the queue `{queue}`" if queue else f"`{step.type}`"
    return StepWaits(
        type=step.type, queue=queue, reason=f"No worker runs {served} now; start one that does."
    )
