"""Opening a step, with its input. A node unfolds from the outside in: map, then loop, then what its
type does."""

from hocket.coordinator.core.run.constructs.containers.fallbacks import open_fast
from hocket.coordinator.core.run.constructs.containers.loops import open_loop
from hocket.coordinator.core.run.constructs.containers.maps import open_map
from hocket.coordinator.core.run.constructs.containers.races import open_race
from hocket.coordinator.core.run.constructs.graph import open_scope
from hocket.coordinator.core.run.constructs.results import start_leaf
from hocket.coordinator.core.run.constructs.reuse import edited_input, kept_for, source_of
from hocket.coordinator.core.run.constructs.waits import begin_wait
from hocket.coordinator.core.run.infeasible import TooSlow
from hocket.coordinator.core.run.plan.nodes import GRAPH, LEAF, LOOP, MAP, SUBRUN, WAIT
from hocket.coordinator.core.run.state.names import names_at, round_of, spliced_input
from hocket.coordinator.core.run.state.run import BRANCH, CALL, FALLBACK, NODE, ROUND, Step
from hocket.coordinator.core.run.state.values import Json, json_of
from hocket.coordinator.core.run.transition import Transition
from hocket.coordinator.core.time.timestamps import nearest


def open_step(t: Transition, step: Step, given: Json, *, fast: bool) -> None:
    """Open the outermost layer that a step's link has not opened yet. `given` is its input so far;
    with `fast`, its node's fast variant serves."""
    if fast:
        _start_fast(t, step, given)
    elif step.role == MAP:
        open_map(t, step)
    elif step.role == LOOP:
        if step.node.agent is not None or _takes_over(step):
            step.input = _sized(_input_of(t, step, given))  # the input of each of its rounds
        open_loop(t, step)
    else:
        _open_base(t, step, given)


def _open_base(t: Transition, step: Step, given: Json) -> None:
    """Begin a step according to its node's type, with its input."""
    edited = None if t.run.origin is None else edited_input(t.run, step.key)
    step.input = _sized(_input_of(t, step, given) if edited is None else json_of(edited))
    role = step.role
    if role in (LEAF, SUBRUN):
        start_leaf(t, step)
    elif role == WAIT:
        begin_wait(t, step)
    else:
        _limit_time(t, step)
        kept = kept_for(t.run, step)
        if kept is not None:
            assert kept.error is not None, step.key
            step.source = source_of(t.run, kept)
            t.keep(step)
            t.fail(step, kept.error)
        elif role == GRAPH:
            assert step.node.body is not None, step.key
            open_scope(t, step, step.node.body, step.home)
        else:
            open_race(t, step)


def _start_fast(t: Transition, step: Step, given: Json) -> None:
    fast = step.node.fast
    assert fast is not None, step.key
    if fast.plan.input is None:
        step.input = _sized(_input_of(t, step, given))
    open_fast(t, step, fast, TooSlow(node=step.node.path).info())


def _input_of(t: Transition, step: Step, given: Json) -> Json:
    """Return the input of a step. `given` is what a branch or fallback without a `with` takes over."""
    if _takes_over(step):
        return given
    if step.link == ROUND:
        found = round_of(step)
        if found is not None:
            return found
    node = step.node
    if node.bound is not None and _sees_its_scope(step):
        found = spliced_input(t, step, node.bound)
        if found is not None:
            return found
    return evaluated_input(t, step)


def evaluated_input(t: Transition, step: Step) -> Json:
    """Return what the `with` of a step's node gives, or the input that a node without it has."""
    node, names = step.node, names_at(t, step)
    if node.plan.input is not None:
        return json_of(node.plan.input(names))
    nodes = names.pop("nodes")
    names.pop("run")
    if node.spec.map:  # otherwise the lists it maps over would go out with every item
        names.pop("input")
        return json_of(dict(names))
    return json_of(names | {need: nodes[need]["output"] for need in node.plan.needs})


def _takes_over(step: Step) -> bool:
    """Tell whether a step's input is that of the race or node it serves for, or that of the call."""
    if step.link == CALL:
        return True
    return step.node.plan.input is None and step.link in (BRANCH, FALLBACK)


def _sized(made: Json) -> Json:
    """Return an input unchanged; raise ValueTooDeep if no message could hold it."""
    _ = made.size
    return made


def _sees_its_scope(step: Step) -> bool:
    """Tell whether `input` and `nodes` in the expressions of a step's node are those of its scope:
    no map around it can have given an item one of these names."""
    return step.link == NODE or (step.parent is not None and step.parent.link == NODE)


def _limit_time(t: Transition, step: Step) -> None:
    """Store a graph or race, with a timeout if its node has one."""
    timeout_ms = step.node.spec.timeout_ms
    if timeout_ms is not None:
        step.wake_at_ms = nearest(t.now_ms + timeout_ms)
    t.keep(step)
