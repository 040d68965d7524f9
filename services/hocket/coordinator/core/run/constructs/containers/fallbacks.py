"""Fallbacks, and the fast variant, which is the fallback with the number 0: what serves in place of
a node that failed, or that the run cannot wait for."""

from hocket.coordinator.core.run.ends.ending import cancel_below, close_scope, release_cache
from hocket.coordinator.core.run.plan.nodes import Node
from hocket.coordinator.core.run.retries import matches
from hocket.coordinator.core.run.state.run import (
    FAILED,
    FALLBACK,
    ITEM,
    OPEN,
    ROUND,
    SUCCEEDED,
    TERMINAL,
    Step,
)
from hocket.coordinator.core.run.transition import START, Transition
from hocket.schemas.errors import ErrorInfo


def failing(t: Transition, step: Step, error: ErrorInfo) -> None:
    """Fail a step, unless its node has a fallback for the error."""
    if step.state in TERMINAL:
        return
    if step.cache_key is not None:
        release_cache(t, step)
        t.keep(step)
    cancel_below(t, step, error.code)
    close_scope(step)
    owns_fallbacks = step.link != ITEM and step.link != ROUND
    if owns_fallbacks and _open_next(t, step, error, after=0):
        return
    t.settle(step, FAILED, error=error)


def open_fast(t: Transition, step: Step, fast: Node, error: ErrorInfo) -> None:
    """Let the fast variant of a node serve in its place."""
    _open_child(t, step, fast, 0, error)


def fallback_settled(t: Transition, parent: Step, child: Step) -> None:
    """End a node the way its fallback ended, or try the next one."""
    if child.state == SUCCEEDED:
        t.settle(parent, SUCCEEDED, output=child.output, degraded=True)
        return
    assert child.error is not None, child.key
    if not _open_next(t, parent, child.error, after=child.index):
        t.settle(parent, FAILED, error=child.error)


def _open_next(t: Transition, step: Step, error: ErrorInfo, *, after: int) -> bool:
    """Open the next fallback that handles this error; tell whether there is one."""
    fallbacks = step.node.fallbacks
    for number in range(after + 1, len(fallbacks) + 1):
        patterns = step.node.spec.fallback[number - 1].on
        if not patterns or matches(patterns, error):
            _open_child(t, step, fallbacks[number - 1], number, error)
            return True
    return False


def _open_child(t: Transition, step: Step, node: Node, number: int, error: ErrorInfo) -> None:
    step.state = OPEN
    step.error = error
    step.degraded = True
    step.wake_at_ms = None
    t.keep(step)
    key = f"{step.key}!{number}"
    child = Step(key, node, node.role, FALLBACK, step, step.within, number, t.now_ms)
    child.input = step.input
    t.todo.append((START, child, None))
