"""A run that waits to start: accepted, with its keys, but without a step until it may go on.

That it waits follows from its rows alone: its pipeline has `flow`, and it has neither ended nor any
step.
"""

from hocket.coordinator.core.run.commands import FlowPlace, WaitForFlow
from hocket.coordinator.core.run.constructs.graph import open_run
from hocket.coordinator.core.run.ends.ending import end_run, fail_run
from hocket.coordinator.core.run.state.run import RUN_CANCELLED, Run, ScopeProgress
from hocket.coordinator.core.run.transition import Transition
from hocket.schemas.errors import HocketError
from hocket.schemas.messages import FlowDecided
from hocket.schemas.templates.budget import Names


def waits_for_flow(run: Run) -> bool:
    """Tell whether flow control has not let a run start yet."""
    return not run.steps and not run.has_ended and run.plan is not None and bool(run.plan.flow)


def enter(t: Transition) -> None:
    """Let a run that begins wait at its pipeline's gates; fail it if a key cannot be computed."""
    run = t.run
    run.scope = ScopeProgress(t.plan.root, None, None)
    names = Names(t.account, {"input": run.input.value})
    places = []
    for gate in t.plan.flow:
        try:
            places.append(FlowPlace(gate.kind, gate.key_of(names), gate.rule))
        except HocketError as error:
            fail_run(t, error.info())
            return
    t.commands.append(WaitForFlow(tuple(places)))


def decided(t: Transition, event: FlowDecided) -> None:
    """Start a waiting run, or end it; a repeated decision about one that has started changes nothing."""
    if not waits_for_flow(t.run):
        return
    if event.refused is not None:
        end_run(t, RUN_CANCELLED, error=event.refused)
    else:
        open_run(t)
