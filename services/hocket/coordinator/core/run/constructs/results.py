"""How attempts end: with a result, or with an error (`attempt_ends.py`).

A result that the run has not asked for yet, because the log lost its tail, is held; one that it no
longer waits for is recorded as late. The cost of an attempt is counted once, however often its
result arrives.
"""

from decimal import Decimal

from hocket.coordinator.core.run.commands import ReleaseCache
from hocket.coordinator.core.run.constructs.attempt_ends import (
    attempt_after_backoff,
    count_spend,
    failed,
    gave_nothing,
    late_outcome,
    note_end,
    record,
    supersede,
)
from hocket.coordinator.core.run.constructs.caching import fill, look_again
from hocket.coordinator.core.run.constructs.graph import open_scope
from hocket.coordinator.core.run.constructs.leaf import begin_leaf, compute, dispatch
from hocket.coordinator.core.run.constructs.planned import emits, emitted_by
from hocket.coordinator.core.run.constructs.result_checks import is_of_another_input
from hocket.coordinator.core.run.constructs.reuse import Kept, source_of
from hocket.coordinator.core.run.ends.ending import cancel_below, release_cache
from hocket.coordinator.core.run.run_size import result_size
from hocket.coordinator.core.run.state.run import (
    BACKOFF,
    DISPATCHED,
    LOOKING_UP,
    OPEN,
    SUCCEEDED,
    TERMINAL,
    Source,
    Step,
)
from hocket.coordinator.core.run.state.values import Json, json_of
from hocket.coordinator.core.run.transition import Transition
from hocket.schemas.errors import ErrorClass, HocketError
from hocket.schemas.messages import AttemptFinished, CacheAnswered

MAX_EARLY = 10_000
"""The most results that are held before their step is dispatched; others are dropped, and their
steps run again."""


class StepTimedOut(HocketError):
    """The step `{step}` took longer than its timeout of {timeout_ms} ms. Raise `timeout_ms`."""

    code = "step_timed_out"
    error_class = ErrorClass.TIMEOUT


_NOTHING = Decimal(0)


def start_leaf(t: Transition, step: Step) -> None:
    """Begin a step that runs elsewhere, or end it with what is already here."""
    found = begin_leaf(t, step)
    if isinstance(found, Kept):
        _take_over(t, step, found)
    else:
        _take_held(t, step, found)


def finished(t: Transition, event: AttemptFinished) -> None:
    """Apply the end of an attempt."""
    step = t.run.steps.get(event.step)
    if step is None or (event.attempt > step.attempt and step.state not in TERMINAL):
        _hold(t, event)
        return
    if event.spend.cost_usd or event.outside_usd:
        count_spend(t, step, event)
    if step.state != DISPATCHED or event.attempt != step.attempt:
        _came_late(t, step, event)
    elif is_of_another_input(step, event):
        record(t, step, event, "late")
        _ask_anew(t, step)
    else:
        note_end(t, step, event)
        if event.error is not None or event.waits:
            if gave_nothing(t, step, event):
                hand_out(t, step)
        else:
            _gave(t, step, event)


def _came_late(t: Transition, step: Step, event: AttemptFinished) -> None:
    if not event.retold:
        record(t, step, event, late_outcome(step, event))


def cache_answered(t: Transition, event: CacheAnswered) -> None:
    """Take the output that the cache has for a step, or compute it. If the step no longer waits for
    the answer, a turn to compute is given back."""
    step = t.run.steps.get(event.step)
    if step is None or step.cache_key != event.key:
        if not event.hit:
            t.commands.append(ReleaseCache(event.key, event.run_id, event.step))
        return
    if step.state != LOOKING_UP:
        return  # it is already computing
    if not event.hit:
        _take_held(t, step, compute(t, step))
        return
    source = Source(
        "cache", event.computed_by_run, event.computed_by_step, saved_usd=event.saved_usd
    )
    step.cache_key = None
    step.source = source
    try:
        _succeeded(t, step, json_of(event.output), _NOTHING)
    except HocketError as error:
        t.keep(step)
        t.fail(step, error.info())


def woken(t: Transition, step: Step) -> None:
    """Act on a step whose time has come: its backoff is over, its lookup had no answer, or it took
    too long."""
    if step.state == BACKOFF:
        _take_held(t, step, dispatch(t, step, attempt_after_backoff(step)))
    elif step.state == LOOKING_UP:
        if not look_again(t, step):
            _take_held(t, step, compute(t, step))
    else:
        timeout_ms = step.node.spec.timeout_ms
        t.fail(step, StepTimedOut(step=step.key, timeout_ms=timeout_ms).info())


def hand_out(t: Transition, step: Step, *, judged: bool = True) -> None:
    """Hand out the next attempt of a step, or take its result if it is already here."""
    _take_held(t, step, dispatch(t, step, step.attempt + 1, judged=judged))


# ---- what ends a step -----------------------------------------------------------------------


def _take_held(t: Transition, step: Step, held: AttemptFinished | None) -> None:
    if held is None:
        return
    assert t.run.early is not None, step.key
    del t.run.early[step.key, step.attempt]
    t.run_changed = True
    t.run.size_bytes -= result_size(held)
    finished(t, held)


def _take_over(t: Transition, step: Step, kept: Kept) -> None:
    step.source = source_of(t.run, kept)
    if kept.error is not None:
        t.keep(step)
        t.fail(step, kept.error)
    else:
        step.degraded = kept.step.degraded
        _succeeded(t, step, kept.output, _NOTHING)


def _gave(t: Transition, step: Step, event: AttemptFinished) -> None:
    if event.degraded:  # a degraded output is not cached for others
        release_cache(t, step)
        step.degraded = True
    try:
        _succeeded(t, step, json_of(event.output), event.spend.cost_usd)
    except HocketError as error:
        failed(t, step, event, error.info())


def _succeeded(t: Transition, step: Step, output: Json, cost_usd: Decimal) -> None:
    """End a step with the output of its attempt, or splice in the steps of a planner or of an
    agent's round. Raises PlanRefused, TurnInvalid or ValueTooDeep before anything is changed."""
    if not emits(step, output):
        _ = output.size
        if step.children is not None:  # calls that its handler made and did not wait for
            cancel_below(t, step, "its handler has ended")
        fill(t, step, output, cost_usd)
        step.set_seldom(error=None)  # an earlier attempt's: the attempts' records have it
        t.settle(step, SUCCEEDED, output=output)
        return
    emitted = emitted_by(step, output, degrades=t.plan.degrades)
    _ = output.size
    fill(t, step, output, cost_usd)
    step.set_seldom(error=None)
    step.state = OPEN
    step.emitted = emitted
    step.wake_at_ms = None
    t.keep(step)
    open_scope(t, step, emitted.plan.root, step)


def _ask_anew(t: Transition, step: Step) -> None:
    """Hand a step out under the next attempt number: streams and workers may already know the
    present one. That is no retry."""
    supersede(t, step)
    step.untried += 1
    hand_out(t, step)


def _hold(t: Transition, event: AttemptFinished) -> None:
    early = t.run.early
    if early is None:
        early = t.run.early = {}
    key = (event.step, event.attempt)
    if key not in early and len(early) < MAX_EARLY:
        early[key] = event
        t.run_changed = True
        t.run.size_bytes += result_size(event)
