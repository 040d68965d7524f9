"""The beginning of a step: checks that it is still wanted, sets how long it may take, and keeps the
run from unfolding without end. The step is then opened in `opening.py`."""

from hocket.coordinator.core.run.constructs.opening import evaluated_input, open_step
from hocket.coordinator.core.run.constructs.planned import count_step
from hocket.coordinator.core.run.constructs.reuse import edited_input
from hocket.coordinator.core.run.infeasible import give_up_at_ms, is_watched
from hocket.coordinator.core.run.plan.nodes import LEAF
from hocket.coordinator.core.run.prompts import expect_prompt
from hocket.coordinator.core.run.state.run import (
    BACKOFF,
    CALL,
    DISPATCHED,
    FALLBACK,
    NODE,
    OPEN,
    WAITING,
    Step,
    takes_part,
)
from hocket.coordinator.core.run.state.values import NULL, Json, json_of
from hocket.coordinator.core.run.transition import Transition
from hocket.schemas.errors import ErrorClass, HocketError

MAX_STEPS = 200_000
"""Steps of one run; a graph that unfolds beyond it fails rather than exhausting memory."""


class TooManySteps(HocketError):
    """The run would unfold into more than {limit} steps. Limit its maps and loops."""

    code = "too_many_steps"
    error_class = ErrorClass.INVALID


def start(t: Transition, step: Step, *, fast: bool = False) -> None:
    """Begin a step, unless its scope or container ended while it was queued. With `fast`, its
    node's fast variant serves from the start."""
    if not _is_wanted(step):
        return
    given, step.input = step.input, NULL
    if t.plan.judges and step.link == NODE and not fast:
        _watch(t, step)
    t.begin(step)
    _keep_begun(t, step)
    if step.node.prefills:
        expect_prompt(t, step)
    try:
        count_step(step)
        if len(t.run.steps) > MAX_STEPS:
            raise TooManySteps(limit=MAX_STEPS)
        if step.link == FALLBACK and given.is_null:
            given = _inherited(t, step)
        open_step(t, step, given, fast=fast)
    except HocketError as error:
        if step.state == OPEN:
            _forget(step, given)
        t.fail(step, error.info())


def _keep_begun(t: Transition, step: Step) -> None:
    if step.role != LEAF:
        t.keep(step)
        _set_deadline(t, step)
    elif t.run.progress or step.give_up_at_ms is not None:
        t.keep(step)  # otherwise nobody sees it before it is dispatched


def _watch(t: Transition, step: Step) -> None:
    """Note how long the run can wait for a node."""
    if is_watched(t):
        expected = t.expected(step.home, step.node).expectation
        step.give_up_at_ms = give_up_at_ms(t, step.node, expected)


def _is_wanted(step: Step) -> bool:
    if step.link == NODE:
        return step.within.is_open
    if step.link == CALL:
        return step.parent is not None and step.parent.state in (WAITING, BACKOFF, DISPATCHED)
    return step.parent is not None and takes_part(step.parent, step)


def _set_deadline(t: Transition, step: Step) -> None:
    """Give a container the deadline and slack that a leaf gets when it is dispatched."""
    forecast, deadline_at_ms = t.forecast_of(step), t.run.deadline_seen_at_ms(t.now_ms)
    step.deadline_at_ms = forecast.deadline_at_ms(deadline_at_ms)
    step.slack_ms = forecast.slack_ms(deadline_at_ms, t.now_ms)


def _inherited(t: Transition, fallback: Step) -> Json:
    """Return the input that a fallback without `with` takes over from a node that has none, because it
    could not begin (its `when` or `cache.key` failed) or its fast variant served from the start: the
    input that the node would have had. Null if that cannot be evaluated, either.

    The node itself stays without an input. If the run is repeated, its failure is not taken over: what
    failed is no part of what its step does, and may give something else then."""
    replaced = fallback.parent
    assert replaced is not None, fallback.key
    spec = replaced.node.spec
    is_repeated = spec.map is not None or (spec.loop is not None and replaced.node.agent is None)
    if fallback.node.plan.input is not None or replaced.link != NODE or is_repeated:
        return NULL
    try:
        edited = edited_input(t.run, replaced.key)
        made = evaluated_input(t, replaced) if edited is None else json_of(edited)
        _ = made.size
    except HocketError:
        return NULL
    return made


def _forget(step: Step, given: Json) -> None:
    """Reset a step that could not begin to what it was when it became ready. A called node keeps the
    input that its call gave, which its fallbacks take over."""
    step.input = given if step.link == CALL else NULL
    step.source = None
    step.cache_key = None
    step.degraded = False
    step.deadline_at_ms = None
    step.slack_ms = None
