"""What must hold of a result before it counts: who sent it, and that it belongs to the present input."""

from pydantic_core import from_json

from hocket.coordinator.core.run.constructs.sub_runs import child_input
from hocket.coordinator.core.run.plan.nodes import SUBRUN
from hocket.coordinator.core.run.state.run import TERMINAL, Run, Step
from hocket.schemas.capabilities import Capabilities
from hocket.schemas.ids import input_digest
from hocket.schemas.messages import AttemptFinished, AttemptReturned


def may_tell(
    run: Run, event: AttemptFinished | AttemptReturned, capabilities: Capabilities | None
) -> bool:
    """Tell whether a result comes from the worker that got the attempt: it carries the capability
    of that dispatch. A step that was dispatched without one, by a release that knew none, needs
    none until it has ended; afterwards it is no longer known whether it had one."""
    if capabilities is None:
        return True
    if event.capability is not None:
        return capabilities.is_of_attempt(
            event.capability,
            run.tenant,
            event.run_id,
            event.step,
            event.attempt,
            event.dispatched_at_ms,
        )
    step = run.steps.get(event.step)
    if step is None or step.capable or step.state in TERMINAL:
        return False
    return event.attempt <= step.attempt


def is_of_another_input(step: Step, event: AttemptFinished) -> bool:
    """Tell whether the present attempt's number was executed for a different input: the end of the
    log was lost after that dispatch, and the steps before this one then came out differently."""
    if event.dispatched_at_ms is None or event.dispatched_at_ms == step.dispatched_at_ms:
        return False
    if event.input_digest == "":
        return False
    if step.role == SUBRUN and not isinstance(step.input.value, dict):
        return event.input_digest != input_digest(child_input(step))
    return event.input_digest != input_digest(from_json(step.input.text))
