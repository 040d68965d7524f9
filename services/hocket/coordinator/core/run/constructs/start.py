"""The beginning of a step. A node unfolds from the outside in: map, then loop, then what its type
says; `start` opens the outermost layer that a step's link still has to."""

from hocket.coordinator.core.run.constructs.containers.fallbacks import open_fast
from hocket.coordinator.core.run.constructs.containers.loops import open_loop
from hocket.coordinator.core.run.constructs.containers.maps import open_map
from hocket.coordinator.core.run.constructs.containers.races import open_race
from hocket.coordinator.core.run.constructs.graph import open_scope
from hocket.coordinator.core.run.constructs.planned import count_step
from hocket.coordinator.core.run.constructs.results import start_leaf
from hocket.coordinator.core.run.constructs.reuse import edited_input
from hocket.coordinator.core.run.constructs.waits import begin_wait
from hocket.coordinator.core.run.infeasible import TooSlow, give_up_at_ms, is_watched
from hocket.coordinator.core.run.plan.nodes import GRAPH, LEAF, LOOP, MAP, SUBRUN, WAIT
from hocket.coordinator.core.run.prompts import expect_prompt
from hocket.coordinator.core.run.state.names import names_at, spliced_input
from hocket.coordinator.core.run.state.run import BRANCH, FALLBACK, NODE, OPEN, Step
from hocket.coordinator.core.run.state.values import NULL, Json, json_of
from hocket.coordinator.core.run.transition import Transition
from hocket.coordinator.core.time.timestamps import nearest
from hocket.schemas.errors import ErrorClass, HocketError

MAX_STEPS = 200_000
"""Steps of one run; a graph that unfolds beyond it fails rather than exhausting memory."""


class TooManySteps(HocketError):
    """The run would unfold into more than {limit} steps. Bound its maps and loops."""

    code = "too_many_steps"
    error_class = ErrorClass.INVALID


def start(t: Transition, step: Step, *, fast: bool = False) -> None:
    """Begin a step, unless its scope or container ended while it waited its turn. `fast`: its
    node's fast variant is to serve from the start."""
    if not _is_wanted(step):
        return
    given, step.input = step.input, NULL
    if t.plan.judges and step.link == NODE and not fast:
        _watch(t, step)
    t.begin(step)
    if step.role != LEAF:
        t.keep(step)
        _set_deadline(t, step)
    elif t.run.progress or step.give_up_at_ms is not None:
        t.keep(step)  # else nobody sees it before it is dispatched
    if step.node.prefills:
        expect_prompt(t, step)
    try:
        count_step(step)
        if len(t.run.steps) > MAX_STEPS:
            raise TooManySteps(limit=MAX_STEPS)
        _open(t, step, given, fast=fast)
    except HocketError as error:
        if step.state == OPEN:
            _forget(step)
        t.fail(step, error.info())


def _watch(t: Transition, step: Step) -> None:
    """Note until when the run can wait for a node."""
    if is_watched(t):
        expected = t.expected(step.home, step.node).expectation
        step.give_up_at_ms = give_up_at_ms(t, step.node, expected)


def _is_wanted(step: Step) -> bool:
    if step.link == NODE:
        return step.within.is_open
    return step.parent is not None and step.parent.state == OPEN


def _open(t: Transition, step: Step, given: Json, *, fast: bool) -> None:
    if fast:
        _start_fast(t, step, given)
    elif step.role == MAP:
        open_map(t, step)
    elif step.role == LOOP:
        open_loop(t, step)
    else:
        _open_base(t, step, given)


def _open_base(t: Transition, step: Step, given: Json) -> None:
    """Begin a step in the way of its node's type, with its input."""
    edited = None if t.run.origin is None else edited_input(t.run, step.key)
    made = _input_of(t, step, given) if edited is None else json_of(edited)
    _ = made.size
    step.input = made
    role = step.role
    if role in (LEAF, SUBRUN):
        start_leaf(t, step)
    elif role == WAIT:
        begin_wait(t, step)
    else:
        _limit_time(t, step)
        if role == GRAPH:
            assert step.node.body is not None, step.key
            open_scope(t, step, step.node.body, step.home)
        else:
            open_race(t, step)


def _start_fast(t: Transition, step: Step, given: Json) -> None:
    fast = step.node.fast
    assert fast is not None, step.key
    if fast.plan.input is None:
        made = _input_of(t, step, given)
        _ = made.size
        step.input = made
    open_fast(t, step, fast, TooSlow(node=step.node.path).info())


def _input_of(t: Transition, step: Step, given: Json) -> Json:
    """Return the input of a step. `given`: what a branch or fallback without a `with` takes
    over."""
    node = step.node
    evaluate = node.plan.input
    if evaluate is None and (step.link == BRANCH or step.link == FALLBACK):
        return given
    if node.bound is not None and _sees_its_scope(step):
        found = spliced_input(t, step, node.bound)
        if found is not None:
            return found
    names = names_at(t, step)
    if evaluate is not None:
        return json_of(evaluate(names))
    nodes = names.pop("nodes")
    names.pop("run")
    if node.spec.map:  # the lists it maps over would go out once per item
        names.pop("input")
        return json_of(dict(names))
    return json_of(names | {need: nodes[need]["output"] for need in node.plan.needs})


def _sees_its_scope(step: Step) -> bool:
    """Tell whether `input` and `nodes` are those of the scope for the expressions of a step's node:
    no map around it gives an item such a name."""
    return step.link == NODE or (step.parent is not None and step.parent.link == NODE)


def _set_deadline(t: Transition, step: Step) -> None:
    """Give a container the deadline and slack that a leaf gets when it is dispatched."""
    forecast, deadline_at_ms = t.forecast_of(step), t.run.deadline_at_ms
    step.deadline_at_ms = forecast.deadline_at_ms(deadline_at_ms)
    step.slack_ms = forecast.slack_ms(deadline_at_ms, t.now_ms)


def _limit_time(t: Transition, step: Step) -> None:
    """Keep a graph or race, with the time that it may take where its node says one."""
    timeout_ms = step.node.spec.timeout_ms
    if timeout_ms is not None:
        step.wake_at_ms = nearest(t.now_ms + timeout_ms)
    t.keep(step)


def _forget(step: Step) -> None:
    """Leave a step that could not begin as it was when it became ready."""
    step.input = NULL
    step.source = None
    step.cache_key = None
    step.degraded = False
    step.deadline_at_ms = None
    step.slack_ms = None
