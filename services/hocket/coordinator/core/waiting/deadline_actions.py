"""What is done about a node that the run can wait for no longer: the run ends, the node's fast variant
takes over, or the node is left out."""

from hocket.coordinator.core.graph.containers import open_fast
from hocket.coordinator.core.run.attempts import dispatch, redispatch
from hocket.coordinator.core.run.ending import cancel_below, end_run, withdraw
from hocket.coordinator.core.run.feasibility import (
    DeadlineInfeasible,
    TooSlow,
    give_up_at_ms,
    is_too_late,
    may_be_spared,
)
from hocket.coordinator.core.run.state import RunStatus, Step, StepState
from hocket.coordinator.core.run.transition import RunTransition
from hocket.coordinator.core.structures.frozen import replace
from hocket.schemas.errors import HeldTooLong
from hocket.schemas.messages import AttemptFinished


def give_up(u: RunTransition, step: Step) -> None:
    """Act on a node whose time has come, by what the pipeline wants."""
    plan = u.node_plan(step)
    # else it would be due again at this very moment
    step = u.put(replace(step, give_up_at_ms=None))
    if u.plan.pipeline.on_infeasible == "fail":
        end_run(u, RunStatus.FAILED, error=DeadlineInfeasible(node=plan.path).info())
        return
    error = TooSlow(node=plan.path).info()
    step = withdraw(u, step, error.code)
    cancel_below(u, step.key, error.code)
    u.scopes.pop(step.key, None)
    u.tallies.pop(step.key, None)
    replaced = any(f"{step.key}!{n}" in u.steps for n in range(len(plan.fallbacks) + 1))
    if plan.fast is not None and not replaced:
        open_fast(u, step, plan, error)
    else:
        u.put(replace(step, state=StepState.OPEN, wake_at_ms=None))
        u.settle(step.key, StepState.FAILED, error=error)


def waited_in_vain(event: AttemptFinished) -> bool:
    """Tell whether an attempt did not run, but waited for its turn until it was too late."""
    return event.error is not None and event.error.code == HeldTooLong.code


def turn_came(u: RunTransition, event: AttemptFinished) -> None:
    """Decide about a step that waited too long, at the gate or on its way to a worker: what its run does
    where it cannot make its deadline any more; else it goes out, and is not asked for again. What a
    worker gave back is another attempt, for streams drop the name of the former."""
    step: Step | None = u.steps.get(event.step)
    if step is None or step.state is not StepState.DISPATCHED or step.attempt != event.attempt:
        return
    plan = u.node_plan(step)
    if may_be_spared(u, plan) and is_too_late(u, plan, u.expectation(step)):
        give_up(u, step)
    elif event.started_at_ms:
        dispatch(u, step, step.attempt + 1, judged=False)
    else:
        u.commands.append(redispatch(u, step, judged=False))


def watch_again(u: RunTransition) -> None:
    """Watch the nodes that run by the deadline as it is now, after it was moved."""
    for key in u.live_keys():
        step: Step = u.steps[key]
        plan = u.node_plan(step)
        if step.link == "node" and (plan.fast is not None or plan.node.optional):
            at_ms = give_up_at_ms(u, plan, u.expectation(step))
            u.put(replace(step, give_up_at_ms=at_ms))
