"""Loops (`loop`): run the node again, round by round, until a condition holds."""

from hocket.coordinator.core.run.state.names import names_at
from hocket.coordinator.core.run.state.run import FAILED, ROUND, SUCCEEDED, Children, Step
from hocket.coordinator.core.run.transition import START, Transition
from hocket.schemas.errors import HocketError


class LoopExhausted(HocketError):
    """The loop of `{node}` ran {rounds} rounds, but `until` was never true. Raise `max_rounds`, or set
    `on_exhausted: accept`."""

    code = "loop_exhausted"


def open_loop(t: Transition, step: Step) -> None:
    """Start the first round."""
    t.keep(step)
    step.children = Children(started=1, running=1)
    _start_round(t, step, 1)


def round_settled(t: Transition, parent: Step, child: Step) -> None:
    """End the loop with this round, or start the next one."""
    node, number = parent.node, child.index
    spec, until = node.spec.loop, node.plan.until
    assert spec is not None, parent.key
    assert until is not None, parent.key
    assert parent.children is not None, parent.key
    if child.state == FAILED:
        assert child.error is not None, child.key
        t.fail(parent, child.error)
        return
    try:
        done = bool(until(names_at(t, child).also(output=child.output.value)))
    except HocketError as error:
        t.fail(parent, error.info())
        return
    if done or (number >= spec.max_rounds and spec.on_exhausted == "accept"):
        t.settle(parent, SUCCEEDED, output=child.output, degraded=child.degraded)
    elif number >= spec.max_rounds:
        t.fail(parent, LoopExhausted(node=node.path, rounds=number).info())
    else:
        parent.children.started = number + 1
        _start_round(t, parent, number + 1)


def _start_round(t: Transition, step: Step, number: int) -> None:
    node = step.node
    key = f"{step.key}#{number}"
    child = Step(key, node, node.role_in_round, ROUND, step, step.within, number, t.now_ms)
    t.todo.append((START, child, None))
