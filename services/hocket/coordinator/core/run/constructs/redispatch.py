"""Hands a run's work in flight out again: for a new owner, or where a server may have lost it."""

from hocket.coordinator.core.run.constructs.caching import ask_of
from hocket.coordinator.core.run.constructs.leaf import dispatch_again
from hocket.coordinator.core.run.constructs.sub_runs import start_sub_run
from hocket.coordinator.core.run.plan.nodes import SUBRUN
from hocket.coordinator.core.run.state.run import DISPATCHED, LOOKING_UP, Step
from hocket.coordinator.core.run.transition import Transition
from hocket.schemas.messages import AttemptReturned


def hand_out_again(t: Transition) -> None:
    """Ask again for everything that the steps of a run wait for; repeats are dropped where the
    first one arrived."""
    for step in t.run.live():
        if step.state == LOOKING_UP:
            t.commands.append(ask_of(t, step))
        elif step.state == DISPATCHED and step.role == SUBRUN:
            t.commands.append(start_sub_run(t, step))
        elif step.state == DISPATCHED:
            _hand_out(t, step)


def returned(t: Transition, event: AttemptReturned) -> None:
    """Hand out again an attempt that its worker gave back, unless it has ended meanwhile."""
    step = t.run.steps.get(event.step)
    if step is None or step.state != DISPATCHED or step.role == SUBRUN:
        return
    if (step.attempt, step.dispatched_at_ms) == (event.attempt, event.dispatched_at_ms):
        _hand_out(t, step)


def _hand_out(t: Transition, step: Step) -> None:
    step.set_seldom(is_repeated=True)
    t.commands.append(dispatch_again(t, step))
