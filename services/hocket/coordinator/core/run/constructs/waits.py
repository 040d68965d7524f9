"""Steps that wait for the outside: approvals, signals, and suspended handlers. They hold no worker;
approvals and signals may pause the run's deadline."""

import heapq
from collections.abc import Mapping, Sequence
from typing import Any

from hocket.coordinator.core.run.constructs.results import hand_out
from hocket.coordinator.core.run.constructs.reuse import kept_for, source_of
from hocket.coordinator.core.run.ends.ending import fail_run, move_deadline
from hocket.coordinator.core.run.plan.nodes import LEAF, answers_to
from hocket.coordinator.core.run.run_size import size_of
from hocket.coordinator.core.run.state.run import (
    SUCCEEDED,
    TERMINAL,
    WAITING,
    Run,
    Signal,
    Step,
    is_suspended,
    signals_awaited,
)
from hocket.coordinator.core.run.state.values import json_of
from hocket.coordinator.core.run.suspension.calls import ended_call
from hocket.coordinator.core.run.suspension.suspended import take_signal, time_came
from hocket.coordinator.core.run.transition import Transition
from hocket.coordinator.core.time.timestamps import nearest
from hocket.schemas.errors import ErrorClass, ErrorInfo, HocketError
from hocket.schemas.messages import MAX_SIGNALS_BYTES, MAX_UNREAD_SIGNALS, SignalReceived
from hocket.schemas.pipeline.spec import ApprovalNode, SignalNode

MAX_NOTE_CHARS = 2_000
"""The length to which the note of a refused approval is cut in the run's error."""
MAX_HELD_SIGNALS = 2 * MAX_UNREAD_SIGNALS
"""The API refuses signals beyond the limit, but others sent at the same time may be on their way."""


class ApprovalRefused(HocketError):
    """`{step}` was refused by {by}: {note}."""

    code = "approval_refused"


class SignalsTooLarge(HocketError):
    """The signals that no step of the run has read yet come to {size_bytes} bytes; the limit is
    {limit_bytes}. Send a signal when its step waits for it, and instead of a large value its
    address."""

    code = "signals_too_large"
    error_class = ErrorClass.INVALID


class TooManySignals(HocketError):
    """{count} signals of the run have not been read by any step; the limit is {limit}. Send a signal
    when its step waits for it."""

    code = "too_many_signals"
    error_class = ErrorClass.INVALID


class WaitTimedOut(HocketError):
    """Nobody answered `{step}` within {wait_ms} ms. Raise `wait_ms`, or send the signal earlier."""

    code = "wait_timed_out"
    error_class = ErrorClass.TIMEOUT


def begin_wait(t: Transition, step: Step) -> None:
    """Wait for a signal, or take one that is already here or that the repeated run had."""
    run = t.run
    kept = kept_for(run, step)
    if kept is not None:
        step.source = source_of(run, kept)
        t.keep(step)
        if kept.error is not None:
            t.fail(step, kept.error)
        else:
            t.settle(step, SUCCEEDED, output=kept.output)
        return
    if step.node.pauses and run.paused_at_ms is None:
        run.paused_at_ms = t.now_ms
        t.run_changed = True
    step.state = WAITING
    step.wake_at_ms = nearest(t.now_ms + _node(step).wait_ms)
    t.keep(step)
    names = answers_to(step.node, step.key)
    for signal in run.signals:
        if signal.name in names:
            run.signals = tuple(other for other in run.signals if other is not signal)
            t.run_changed = True
            run.size_bytes -= size_of(signal.payload)
            run.remember(signal.signal_id)
            _answer(t, step, signal)
            return


def signal_received(t: Transition, event: SignalReceived) -> None:
    """Give a signal to the step that waits for it, or keep it for one that will."""
    run = t.run
    if event.signal_id in run.seen_signals:
        return
    if any(event.signal_id == unread.signal_id for unread in run.signals):
        return
    t.run_changed = True
    signal = Signal(event.signal_id, event.name, event.payload, event.by)
    step = _first_waiting(run, event.name)
    if step is not None:
        run.remember(signal.signal_id)
        _answer(t, step, signal)
        return
    run.signals = (*run.signals, signal)
    run.size_bytes += size_of(signal.payload)
    fault = signals_fault(run.signals)
    if fault is not None:
        fail_run(t, fault)


def wait_timed_out(t: Transition, step: Step) -> None:
    """Fail a wait that nobody answered, or resume a suspended handler."""
    if step.role == LEAF:
        if time_came(t, step):
            hand_out(t, step)
        return
    t.fail(step, WaitTimedOut(step=step.key, wait_ms=_node(step).wait_ms).info())


def call_settled(t: Transition, caller: Step, called: Step) -> None:
    """Resume a handler with the outcome of a node that it called."""
    waited = is_suspended(caller)
    if caller.state in TERMINAL or not ended_call(caller, called):
        return
    if called.degraded:
        caller.degraded = True
    t.keep(caller)
    if waited:
        hand_out(t, caller)


def resume_deadline(t: Transition) -> bool:
    """Resume the paused deadline, moved by the time waited, once nobody is waited for; tell whether
    it has just resumed."""
    run = t.run
    if run.paused_at_ms is None or run.pausing or run.has_ended:
        return False
    move_deadline(t)
    t.arm(run.deadline_at_ms)
    return True


def _first_waiting(run: Run, name: str) -> Step | None:
    """Return the first step, by key, that waits for a signal of this name."""
    if run.waiting is None:
        return None
    keys = run.waiting.get(name)
    while keys:
        step = run.steps[keys[0]]
        if step.state == WAITING and name in signals_awaited(step):
            return step
        heapq.heappop(keys)
    run.waiting.pop(name, None)
    return None


def _answer(t: Transition, step: Step, signal: Signal) -> None:
    if step.role == LEAF:
        take_signal(step, signal)
        hand_out(t, step)
        return
    if isinstance(_node(step), SignalNode):
        t.settle(step, SUCCEEDED, output=json_of(signal.payload))
        return
    answer: dict[str, Any] = signal.payload if isinstance(signal.payload, dict) else {}
    if answer.get("approved") is True:
        output = {"approved": True, "by": signal.by, "note": answer.get("note", "")}
        t.settle(step, SUCCEEDED, output=json_of(output))
    else:
        refused = ApprovalRefused(step=step.key, by=signal.by or "somebody", note=note_of(answer))
        t.fail(step, refused.info())


def _node(step: Step) -> ApprovalNode | SignalNode:
    node = step.node.spec
    assert isinstance(node, ApprovalNode | SignalNode)
    return node


def signals_fault(unread: Sequence[Signal]) -> ErrorInfo | None:
    """Return the error of a run whose unread signals are too many or too large; None if they are not."""
    if len(unread) > MAX_HELD_SIGNALS:
        return TooManySignals(count=len(unread), limit=MAX_UNREAD_SIGNALS).info()
    size_bytes = sum(size_of(signal.payload) for signal in unread)
    if size_bytes <= MAX_SIGNALS_BYTES:
        return None
    return SignalsTooLarge(size_bytes=size_bytes, limit_bytes=MAX_SIGNALS_BYTES).info()


def note_of(answer: Mapping[str, Any]) -> str:
    """Return why an approval was refused, for the run's error: short enough for any message."""
    return str(answer.get("note") or "no reason given")[:MAX_NOTE_CHARS]
