"""Steps that wait for the outside: approvals and signals. They hold no worker, and may make the
run's deadline stand still."""

import heapq
from typing import Any

from hocket.coordinator.core.machine.constructs.reuse import kept_for, source_of
from hocket.coordinator.core.machine.ending import fail_run
from hocket.coordinator.core.machine.state.run import SUCCEEDED, WAITING, Run, Step
from hocket.coordinator.core.machine.state.values import json_of
from hocket.coordinator.core.machine.transition import Transition
from hocket.coordinator.core.run.run_size import size_of
from hocket.coordinator.core.run.state import Signal
from hocket.coordinator.core.time.timestamps import nearest
from hocket.coordinator.core.waiting.signal_waiters import answers_to
from hocket.coordinator.core.waiting.waits import (
    MAX_SIGNALS,
    ApprovalRefused,
    WaitTimedOut,
    note_of,
    signals_fault,
)
from hocket.schemas.messages import SignalReceived
from hocket.schemas.pipeline.spec import ApprovalNode, SignalNode


def begin_wait(t: Transition, step: Step) -> None:
    """Wait for a signal, or take one that is already here, or that the repeated run had."""
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
    names = answers_to(step.node.plan, step.key)
    for signal in run.signals:
        if signal.name in names:
            run.signals = tuple(other for other in run.signals if other is not signal)
            t.run_changed = True
            run.size_bytes -= size_of(signal.payload)
            _answer(t, step, signal)
            return


def signal_received(t: Transition, event: SignalReceived) -> None:
    """Give a signal to the step that waits for it, or keep it for one that will."""
    run = t.run
    if event.signal_id in run.seen_signals:
        return
    run.seen_signals = (*run.seen_signals, event.signal_id)[-MAX_SIGNALS:]
    t.run_changed = True
    signal = Signal(event.signal_id, event.name, event.payload, event.by)
    step = _first_waiting(run, event.name)
    if step is not None:
        _answer(t, step, signal)
        return
    dropped = run.signals[: max(0, len(run.signals) + 1 - MAX_SIGNALS)]
    run.signals = (*run.signals, signal)[-MAX_SIGNALS:]
    run.size_bytes += size_of(signal.payload) - sum(size_of(one.payload) for one in dropped)
    fault = signals_fault(run.signals)
    if fault is not None:
        fail_run(t, fault)


def wait_timed_out(t: Transition, step: Step) -> None:
    """Fail a wait that nobody answered."""
    t.fail(step, WaitTimedOut(step=step.key, wait_ms=_node(step).wait_ms).info())


def resume_deadline(t: Transition) -> bool:
    """Let the deadline run again, moved by the time waited, once nobody is waited for; tell whether
    it does so now."""
    run = t.run
    since_ms = run.paused_at_ms
    if since_ms is None or run.pausing or run.has_ended:
        return False
    run.deadline_at_ms = nearest(run.deadline_at_ms + (t.now_ms - since_ms))
    run.paused_at_ms = None
    run.prefix = None
    t.run_changed = True
    t.arm(run.deadline_at_ms)
    return True


def _first_waiting(run: Run, name: str) -> Step | None:
    """Return the first step, by key, that waits for a signal of this name."""
    keys = run.waiting.get(name)
    while keys:
        step = run.steps[keys[0]]
        if step.state == WAITING:
            return step
        heapq.heappop(keys)
    run.waiting.pop(name, None)
    return None


def _answer(t: Transition, step: Step, signal: Signal) -> None:
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
