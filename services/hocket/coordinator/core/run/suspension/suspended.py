"""Handlers that wait: their step is suspended, without holding a worker, until a signal of the run
or a moment comes, or a node that they call has ended. Then the next attempt goes out with what came
(`Resumption`), and the step's journal has what was done before. That is no retry:
`Step.suspensions` do not count as failed attempts.
"""

import heapq

from hocket.coordinator.core.run.plan.nodes import LEAF
from hocket.coordinator.core.run.run_size import size_of
from hocket.coordinator.core.run.state.run import BACKOFF, WAITING, Run, Signal, Step
from hocket.coordinator.core.run.suspension.calls import begun
from hocket.coordinator.core.run.transition import Transition
from hocket.coordinator.core.time.timestamps import nearest
from hocket.schemas.errors import ErrorClass, HocketError
from hocket.schemas.messages import AttemptFinished, HandlerWait, WaitEnded

MAX_SUSPENSIONS = 1_000
"""The most suspensions of one step."""
MAX_SUSPENDED_MS = 21 * 24 * 3_600_000.0
"""The longest duration of one suspension. Journals are kept for 30 days; a handler without its own
would start over."""


class SuspendedTooLong(HocketError):
    """The handler of `{step}` waited {days} days, which is the limit: its journal is not kept for
    longer. Split what it does into several nodes, with a `signal` node between them."""

    code = "suspended_too_long"
    error_class = ErrorClass.TIMEOUT


class TooManySuspensions(HocketError):
    """The handler of `{step}` was suspended more than {limit} times. Split what it does into several
    nodes, or into sub-pipelines."""

    code = "too_many_suspensions"
    error_class = ErrorClass.INVALID


def suspended(t: Transition, step: Step, event: AttemptFinished) -> bool:
    """Suspend a step for what its handler waits for; tell whether some of that is already here, so
    that it resumes at once."""
    if step.role != LEAF or step.suspensions >= MAX_SUSPENSIONS:
        t.keep(step)
        t.fail(step, TooManySuspensions(step=step.key, limit=MAX_SUSPENSIONS).info())
        return False
    stored = {place.key for place in event.journaled}
    ended = tuple(one for one in step.ended if one.key not in stored)
    step.set_seldom(ended=ended)
    try:
        waits = begun(t, step, event.waits)
    except HocketError as error:
        t.keep(step)
        t.fail(step, error.info())
        return False
    step.suspensions += 1
    step.set_seldom(waits=waits, error=None)
    step.tries = (*step.tries, step.past(t.now_ms, is_suspended=True))
    known = {one.key for one in ended}
    is_here = any(wait.key in known for wait in event.waits)
    for wait in event.waits:
        if wait.key not in known and wait.signal is not None:
            signal = _unread(t, wait.signal)
            if signal is not None:
                _end(step, wait, signal)
                is_here = True
    _rest(t, step)
    note_waits(t.run, step)
    t.keep(step)
    return is_here


def _rest(t: Transition, step: Step) -> None:
    """Let a step rest until the first moment that its handler waits for. One that only sleeps gets
    the state of a step in backoff, which earlier releases know how to handle."""
    moments = [nearest(wait.until_ms) for wait in step.waits if wait.until_ms is not None]
    is_outside = any(wait.signal or wait.call for wait in step.waits)
    step.state = WAITING if is_outside else BACKOFF
    step.wake_at_ms = min([nearest(t.now_ms + MAX_SUSPENDED_MS), *moments])


def note_waits(run: Run, step: Step) -> None:
    """Let signals find a step that waits for them."""
    for name in {wait.signal for wait in step.waits if wait.signal is not None}:
        heapq.heappush(run.waiting_for(name), step.key)


def take_signal(step: Step, signal: Signal) -> None:
    """Give a signal to the first of a step's waits that expects it."""
    wait = next(wait for wait in step.waits if wait.signal == signal.name)
    _end(step, wait, signal)


def time_came(t: Transition, step: Step) -> bool:
    """End the waits of a step whose moment has come, or fail it if it waited too long. Tell whether
    it resumes."""
    due = [one for one in step.waits if one.until_ms is not None]
    due = [one for one in due if nearest(one.until_ms or 0.0) <= t.now_ms]
    for wait in due:
        _end(step, wait, None)
    if not due:
        days = round(MAX_SUSPENDED_MS / 86_400_000)
        t.keep(step)
        t.fail(step, SuspendedTooLong(step=step.key, days=days).info())
    return bool(due)


def _unread(t: Transition, name: str) -> Signal | None:
    """Remove the first unread signal with this name from the run, and return it."""
    run = t.run
    for signal in run.signals:
        if signal.name == name:
            run.signals = tuple(other for other in run.signals if other is not signal)
            run.size_bytes -= size_of(signal.payload)
            run.remember(signal.signal_id)
            t.run_changed = True
            return signal
    return None


def _end(step: Step, wait: HandlerWait, signal: Signal | None) -> None:
    place = {"scope": wait.scope, "ordinal": wait.ordinal, "signal": wait.signal}
    if signal is None:
        ended = WaitEnded(**place, timed_out=True)
    else:
        came = {"signal_id": signal.signal_id, "payload": signal.payload, "by": signal.by}
        ended = WaitEnded(**place, **came)
    step.ended = (*step.ended, ended)
    step.waits = tuple(other for other in step.waits if other is not wait)
