"""What is done about a node that the run can no longer wait for (`on_infeasible`): the run ends,
the node's fast variant takes over, or the node is left out."""

from hocket.coordinator.core.run.constructs.containers.fallbacks import open_fast
from hocket.coordinator.core.run.constructs.leaf import dispatch_again
from hocket.coordinator.core.run.constructs.results import hand_out
from hocket.coordinator.core.run.ends.ending import cancel_below, close_scope, end_run, withdraw
from hocket.coordinator.core.run.infeasible import (
    DeadlineInfeasible,
    TooSlow,
    give_up_at_ms,
    is_too_late,
    is_watched,
    may_be_spared,
)
from hocket.coordinator.core.run.state.run import (
    DISPATCHED,
    FAILED,
    NODE,
    OPEN,
    RUN_FAILED,
    Step,
)
from hocket.coordinator.core.run.transition import Transition
from hocket.schemas.errors import HeldTooLong
from hocket.schemas.messages import AttemptFinished


def give_up(t: Transition, step: Step) -> None:
    """Act on a node that has run out of time, as its pipeline specifies."""
    node = step.node
    # otherwise it would be due again at this very moment
    step.give_up_at_ms = None
    t.keep(step)
    if t.plan.fails_infeasible:
        end_run(t, RUN_FAILED, error=DeadlineInfeasible(node=node.path).info())
        return
    error = TooSlow(node=node.path).info()
    withdraw(t, step, error.code)
    cancel_below(t, step, error.code)
    close_scope(step)
    if node.fast is not None and not step.fallbacks:
        open_fast(t, step, node.fast, error)
    else:
        step.state = OPEN
        step.wake_at_ms = None
        t.keep(step)
        t.settle(step, FAILED, error=error)


def waited_in_vain(event: AttemptFinished) -> bool:
    """Tell whether an attempt never ran, because it waited too long for its turn."""
    return event.error is not None and event.error.code == HeldTooLong.code


def turn_came(t: Transition, event: AttemptFinished) -> None:
    """Decide about a step that waited too long, at the gate or on its way to a worker. If it is now
    too late for the run's deadline, `on_infeasible` applies; otherwise the step goes out and is not
    judged again. A step that a worker gave back becomes a new attempt, because streams would drop a
    repeat of the former one."""
    step = t.run.steps.get(event.step)
    if step is None or step.state != DISPATCHED or step.attempt != event.attempt:
        return
    node = step.node
    if may_be_spared(t, node) and is_too_late(t, node, t.forecast_of(step).expectation):
        give_up(t, step)
    elif event.started_at_ms:
        step.untried += 1
        hand_out(t, step, judged=False)
    else:
        t.commands.append(dispatch_again(t, step, judged=False))


def watch_again(t: Transition) -> None:
    """Recompute when running nodes are to be given up, after the deadline was moved; does nothing
    if the pipeline gives no nodes up."""
    if not is_watched(t):
        return
    for step in t.run.live():
        node = step.node
        if step.link == NODE and (node.fast is not None or node.optional):
            step.give_up_at_ms = give_up_at_ms(t, node, t.forecast_of(step).expectation)
            t.keep(step)
