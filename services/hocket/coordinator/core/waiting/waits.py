"""Steps that wait for the outside: approvals and signals. They hold no worker, and may make the
run's deadline stand still."""

from collections.abc import Iterable, Mapping
from typing import Any

from hocket.coordinator.core.reuse.repeats import Kept, kept_for, source_of
from hocket.coordinator.core.run.ending import fail_run
from hocket.coordinator.core.run.run_size import size_of
from hocket.coordinator.core.run.state import Signal, Step, StepState
from hocket.coordinator.core.run.transition import Failing, RunTransition
from hocket.coordinator.core.structures.frozen import replace
from hocket.coordinator.core.time.timestamps import nearest
from hocket.coordinator.core.waiting.signal_waiters import answers_to, pauses
from hocket.schemas.errors import ErrorClass, ErrorInfo, HocketError
from hocket.schemas.messages import SignalReceived
from hocket.schemas.pipeline.spec import ApprovalNode, SignalNode

MAX_SIGNALS = 1_000
"""Signals of one run that are remembered (unread, or to know a repeat)."""
MAX_NOTE_CHARS = 2_000
"""Of the note with which an approval is refused, in the run's error."""
MAX_SIGNALS_BYTES = 1024 * 1024
"""What unread signals of one run come to as JSON: they are in the run's row, which many events write."""


class ApprovalRefused(HocketError):
    """`{step}` was refused by {by}: {note}."""

    code = "approval_refused"


class SignalsTooLarge(HocketError):
    """The signals that no step of the run has read yet come to {size_bytes} bytes; {limit_bytes} are
    allowed. Send a signal when its step waits for it, and large values by reference
    (`PUT /v1/blobs`)."""

    code = "signals_too_large"
    error_class = ErrorClass.INVALID


class WaitTimedOut(HocketError):
    """Nobody answered `{step}` within {wait_ms} ms. Raise `wait_ms`, or send the signal earlier."""

    code = "wait_timed_out"
    error_class = ErrorClass.TIMEOUT


def begin_wait(u: RunTransition, step: Step) -> None:
    """Wait for a signal, or take one that is already here, or that the repeated run had."""
    kept = kept_for(u, step)
    if kept is not None:
        _take_over(u, step, kept)
        return
    plan = u.node_plan(step)
    if pauses(plan) and u.run.paused_at_ms is None:
        u.change(paused_at_ms=u.now_ms)
    wake_at_ms = nearest(u.now_ms + _node(u, step).wait_ms)
    u.put(replace(step, state=StepState.WAITING, wake_at_ms=wake_at_ms))
    names = answers_to(plan, step.key)
    for signal in u.run.signals:
        if signal.name in names:
            u.change(signals=tuple(s for s in u.run.signals if s is not signal))
            u.size_bytes -= size_of(signal.payload)
            _answer(u, step, signal)
            return


def signal_received(u: RunTransition, event: SignalReceived) -> None:
    """Give a signal to the step that waits for it, or keep it for one that will."""
    if event.signal_id in u.run.seen_signals:
        return
    u.change(seen_signals=(*u.run.seen_signals, event.signal_id)[-MAX_SIGNALS:])
    signal = Signal(event.signal_id, event.name, event.payload, event.by)
    step = u.waits_for(event.name)
    if step is not None:
        _answer(u, step, signal)
        return
    dropped = u.run.signals[: max(0, len(u.run.signals) + 1 - MAX_SIGNALS)]
    u.change(signals=(*u.run.signals, signal)[-MAX_SIGNALS:])
    u.size_bytes += size_of(signal.payload) - sum(size_of(one.payload) for one in dropped)
    fault = signals_fault(u.run.signals)
    if fault is not None:
        fail_run(u, fault)


def signals_fault(unread: Iterable[Signal]) -> ErrorInfo | None:
    """Return the error of a run whose unread signals are too large."""
    size_bytes = sum(size_of(signal.payload) for signal in unread)
    if size_bytes <= MAX_SIGNALS_BYTES:
        return None
    return SignalsTooLarge(size_bytes=size_bytes, limit_bytes=MAX_SIGNALS_BYTES).info()


def wait_timed_out(u: RunTransition, step: Step) -> None:
    """Fail a wait that nobody answered."""
    error = WaitTimedOut(step=step.key, wait_ms=_node(u, step).wait_ms)
    u.todo.append(Failing(step.key, error.info()))


def resume_deadline(u: RunTransition) -> bool:
    """Let the deadline run again, moved by the time waited, once nobody is waited for; tell whether
    it does so now."""
    since = u.run.paused_at_ms
    if since is None or u.pausing or u.run.ended:
        return False
    deadline = nearest(u.run.deadline_at_ms + (u.now_ms - since))
    u.change(paused_at_ms=None, deadline_at_ms=deadline)
    u.arm(deadline)
    return True


def _take_over(u: RunTransition, step: Step, kept: Kept) -> None:
    u.put(replace(step, source=source_of(u, kept)))
    if kept.error is not None:
        u.todo.append(Failing(step.key, kept.error))
    else:
        u.settle(step.key, StepState.SUCCEEDED, output=kept.output)


def _answer(u: RunTransition, step: Step, signal: Signal) -> None:
    if isinstance(_node(u, step), SignalNode):
        u.settle(step.key, StepState.SUCCEEDED, output=signal.payload)
        return
    answer: dict[str, Any] = signal.payload if isinstance(signal.payload, dict) else {}
    approved = answer.get("approved") is True
    if approved:
        output = {"approved": True, "by": signal.by, "note": answer.get("note", "")}
        u.settle(step.key, StepState.SUCCEEDED, output=output)
    else:
        refused = ApprovalRefused(step=step.key, by=signal.by or "somebody", note=note_of(answer))
        u.todo.append(Failing(step.key, refused.info()))


def note_of(answer: Mapping[str, Any]) -> str:
    """Return why an approval was refused, as the run's error tells it: short enough for any message."""
    return str(answer.get("note") or "no reason given")[:MAX_NOTE_CHARS]


def _node(u: RunTransition, step: Step) -> ApprovalNode | SignalNode:
    node = u.node_plan(step).node
    assert isinstance(node, ApprovalNode | SignalNode)
    return node
