"""How attempts end: with a result, with an error that is tried again after a backoff (`retry`), or
with one that fails the step. One that its worker passes on, because it does not know the handler, is
handed out again.

A result that the run has not asked for yet is held (the log lost its tail); one that it does not
wait for any more is recorded as late. What an attempt cost is counted once, however often its
result comes.
"""

from decimal import Decimal

from pydantic_core import from_json

from hocket.coordinator.core.run.commands import RecordAttempt, ReleaseCache
from hocket.coordinator.core.run.constructs.caching import fill, look_again
from hocket.coordinator.core.run.constructs.graph import open_scope
from hocket.coordinator.core.run.constructs.leaf import begin_leaf, compute, dispatch
from hocket.coordinator.core.run.constructs.planned import count_cost, emitted_by
from hocket.coordinator.core.run.constructs.reuse import Kept, source_of
from hocket.coordinator.core.run.constructs.sub_runs import child_input
from hocket.coordinator.core.run.ends.ending import release_cache
from hocket.coordinator.core.run.plan.nodes import LEAF, SUBRUN
from hocket.coordinator.core.run.retries import NOT_HERE, asked_anew_ms, backoff_ms
from hocket.coordinator.core.run.run_size import result_size
from hocket.coordinator.core.run.state.messages import cancel_attempt
from hocket.coordinator.core.run.state.run import (
    BACKOFF,
    CANCELLED,
    DISPATCHED,
    LOOKING_UP,
    OPEN,
    SUCCEEDED,
    TERMINAL,
    PastAttempt,
    Run,
    Source,
    Step,
)
from hocket.coordinator.core.run.state.values import Json, json_of
from hocket.coordinator.core.run.transition import Transition
from hocket.coordinator.core.time.timestamps import nearest
from hocket.schemas.capabilities import Capabilities
from hocket.schemas.errors import ErrorClass, ErrorInfo, HocketError
from hocket.schemas.ids import input_digest
from hocket.schemas.messages import AttemptFinished, CacheAnswered

MAX_COUNTED = 64
"""Paid executions of one step that are remembered, to know a result that comes again."""
MAX_EARLY = 10_000
"""Results held before their step is dispatched; one more is dropped, and its step runs again."""


class StepTimedOut(HocketError):
    """The step `{step}` took longer than its timeout of {timeout_ms} ms. Raise `timeout_ms`."""

    code = "step_timed_out"
    error_class = ErrorClass.TIMEOUT


_NOTHING = Decimal(0)
PYTHON = "python"


def may_tell(run: Run, event: AttemptFinished, capabilities: Capabilities | None) -> bool:
    """Tell whether a result comes from who got its attempt: it has the capability of that dispatch.
    What was dispatched without one, by a release that knew none, needs none until it has ended:
    whether a step that ended had one is not kept."""
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


def start_leaf(t: Transition, step: Step) -> None:
    """Begin a step that somebody else runs, or that ends with what is here already."""
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
    if event.spend.cost_usd:
        _count(t, step, event)
    if step.state != DISPATCHED or event.attempt != step.attempt:
        _record(t, step, event, _late_outcome(step, event))
    elif _is_of_another_input(step, event):
        _record(t, step, event, "late")
        _ask_anew(t, step)
    else:
        if step.is_repeated:  # the second message of it may reach a worker yet
            t.commands.append(cancel_attempt(t.run, step, "its result has come"))
            step.set_seldom(is_repeated=False)
        _note_clocks(step, event)
        if event.error is not None:
            _failed(t, step, event, event.error)
        else:
            _gave(t, step, event)


def cache_answered(t: Transition, event: CacheAnswered) -> None:
    """Take the output that the cache has for a step, or compute it; an answer that its step does
    not wait for any more is given back where it is a turn to compute."""
    step = t.run.steps.get(event.step)
    if step is None or step.cache_key != event.key:
        if not event.hit:
            t.commands.append(ReleaseCache(event.key, event.run_id, event.step))
        return
    if step.state != LOOKING_UP:
        return  # it computes already
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
    """Act on a step whose time has come: the backoff is over, nobody answered it, or it took too
    long."""
    if step.state == BACKOFF:
        attempt = step.attempt + 1
        if step.error is not None and step.error.code == NOT_HERE:
            attempt, step.error = step.attempt, None
        _take_held(t, step, dispatch(t, step, attempt))
    elif step.state == LOOKING_UP:
        if not look_again(t, step):
            _take_held(t, step, compute(t, step))
    else:
        timeout_ms = step.node.spec.timeout_ms
        t.fail(step, StepTimedOut(step=step.key, timeout_ms=timeout_ms).info())


def hand_out(t: Transition, step: Step, *, judged: bool = True) -> None:
    """Hand the next attempt of a step out, or take its result where it is here."""
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
    if event.degraded:  # the makeshift is not kept for others
        release_cache(t, step)
        step.degraded = True
    try:
        _succeeded(t, step, json_of(event.output), event.spend.cost_usd)
    except HocketError as error:
        _failed(t, step, event, error.info())


def _succeeded(t: Transition, step: Step, output: Json, cost_usd: Decimal) -> None:
    """End a step with the output of its attempt; a planner's steps are spliced in instead. Raises
    PlanRefused or ValueTooDeep, having done nothing."""
    policy = step.node.emit
    if policy is None:
        _ = output.size
        fill(t, step, output, cost_usd)
        t.settle(step, SUCCEEDED, output=output)
        return
    emitted = emitted_by(step, output, policy, degrades=t.plan.degrades)
    _ = output.size
    fill(t, step, output, cost_usd)
    step.state = OPEN
    step.emitted = emitted
    step.wake_at_ms = None
    t.keep(step)
    open_scope(t, step, emitted.plan.root, step)


def _failed(t: Transition, step: Step, event: AttemptFinished, error: ErrorInfo) -> None:
    run = t.run
    retry = step.node.spec.retry
    if error.code == NOT_HERE and step.node.type == PYTHON:
        _pass_on(t, step, error)
        return
    wait_ms = backoff_ms(retry, error, run_id=run.run_id, step=step.key, attempt=event.attempt)
    if wait_ms is None or t.now_ms + wait_ms >= run.deadline_at_ms:
        t.keep(step)
        t.fail(step, error)
        return
    outcome = "timed_out" if error.error_class is ErrorClass.TIMEOUT else "failed"
    _record(t, step, event, outcome)
    step.state = BACKOFF
    step.error = error
    step.wake_at_ms = nearest(t.now_ms + wait_ms)
    step.tries = (*step.tries, _try_of(step, t.now_ms))
    t.keep(step)


def _pass_on(t: Transition, step: Step, error: ErrorInfo) -> None:
    """Hand an attempt out again after a while, under its number, that its worker does not know: another
    one may. It is no failure, and waits until the run's deadline."""
    waited_ms = t.now_ms - step.ready_at_ms
    wait_ms = asked_anew_ms(waited_ms, run_id=t.run.run_id, step=step.key)
    if t.now_ms + wait_ms >= t.run.deadline_at_ms:
        t.keep(step)
        t.fail(step, error)
        return
    step.state = BACKOFF
    step.error = error
    step.wake_at_ms = nearest(t.now_ms + wait_ms)
    t.keep(step)


def _ask_anew(t: Transition, step: Step) -> None:
    """Hand a step out under the next number: streams and workers may know the present one
    already."""
    if step.role == LEAF:
        t.commands.append(cancel_attempt(t.run, step, "superseded"))
    step.tries = (*step.tries, _try_of(step, t.now_ms))
    hand_out(t, step)


# ---- what a result says ---------------------------------------------------------------------


def _is_of_another_input(step: Step, event: AttemptFinished) -> bool:
    """Tell whether what was executed under the number of the present attempt is something else: the
    end of the log was lost after it was handed out, and what came before the step came out
    otherwise."""
    if event.dispatched_at_ms is None or event.dispatched_at_ms == step.dispatched_at_ms:
        return False
    if event.input_digest == "":
        return False
    if step.role == SUBRUN and not isinstance(step.input.value, dict):
        return event.input_digest != input_digest(child_input(step))
    return event.input_digest != input_digest(from_json(step.input.text))


def _note_clocks(step: Step, event: AttemptFinished) -> None:
    """Keep what whoever ran the present attempt says of it."""
    started_at_ms = event.started_at_ms
    if started_at_ms:
        step.started_at_ms = nearest(started_at_ms)
        step.took_ms = max(0.0, event.finished_at_ms - started_at_ms)
    else:
        step.started_at_ms = None
        step.took_ms = None
    step.queued_at_ms = nearest(event.queued_at_ms) or None
    if step.timing is not event.timing:
        step.timing = event.timing
    step.worker = event.worker


def _try_of(step: Step, finished_at_ms: float) -> PastAttempt:
    assert step.dispatched_at_ms is not None, step.key
    return PastAttempt(
        step.dispatched_at_ms,
        finished_at_ms,
        step.queued_at_ms,
        step.started_at_ms,
        step.took_ms,
        step.timing,
    )


def _count(t: Transition, step: Step, event: AttemptFinished) -> None:
    """Add what an attempt cost to what the run has spent, once however often its result comes. Each
    delivery costs; what is executed twice under one number makes the same calls, and costs as much
    as the dearer of the two."""
    cost_usd = event.spend.cost_usd
    counted = {(attempt, delivery): known for attempt, delivery, known in step.counted}
    execution = (event.attempt, event.delivery)
    news_usd = cost_usd - counted.get(execution, _NOTHING)
    if news_usd <= 0:
        return
    counted[execution] = cost_usd
    t.run.spent_usd += news_usd
    t.run_changed = True
    count_cost(step, news_usd)
    kept = [(attempt, delivery, known) for (attempt, delivery), known in counted.items()]
    step.counted = tuple(kept[-MAX_COUNTED:])
    t.note(step)


def _hold(t: Transition, event: AttemptFinished) -> None:
    early = t.run.early
    if early is None:
        early = t.run.early = {}
    key = (event.step, event.attempt)
    if key not in early and len(early) < MAX_EARLY:
        early[key] = event
        t.run_changed = True
        t.run.size_bytes += result_size(event)


def _late_outcome(step: Step, event: AttemptFinished) -> str:
    """Tell the end of an attempt that was stopped from one that nobody waited for any more."""
    error = event.error
    stopped = error is not None and error.error_class is ErrorClass.CANCELLED
    return "cancelled" if stopped and step.state == CANCELLED else "late"


def _record(t: Transition, step: Step, event: AttemptFinished, outcome: str) -> None:
    t.commands.append(
        RecordAttempt(
            key=step.key,
            attempt=event.attempt,
            outcome=outcome,
            error=event.error,
            dispatched_at_ms=step.dispatched_at_ms,
            started_at_ms=event.started_at_ms or None,
            finished_at_ms=t.now_ms,
            worker=event.worker,
        )
    )
