"""What handlers call: each call is a step below the handler's, which is suspended until the call
ends.

A worker names the call and its input; which node that is, the handler's own node defines (`calls`),
as its author wrote it. A call is identified by its place in the handler's journal: a later attempt
that asks for it finds it in flight, or ended. A call that no handler waits for any more is
cancelled.
"""

from hocket.coordinator.core.run.ends.ending import cancel_step
from hocket.coordinator.core.run.state.run import (
    CALL,
    FAILED,
    TERMINAL,
    Children,
    Step,
    call_key,
)
from hocket.coordinator.core.run.state.values import json_of
from hocket.coordinator.core.run.transition import START, Transition
from hocket.schemas.errors import ErrorClass, HocketError
from hocket.schemas.messages import HandlerWait, NodeCall, WaitEnded
from hocket.schemas.pipeline.spec import CallingNode

_Identity = tuple[str, int, str, str]


class CallUnknown(HocketError):
    """The handler of `{step}` calls `{name}`, but its node does not name it under `calls`. Add it
    there, and apply the pipeline."""

    code = "call_unknown"
    error_class = ErrorClass.INVALID


class TooManyCalls(HocketError):
    """The handler of `{step}` calls more than {limit} nodes. Raise `max_calls`, or call a node that does
    more at once: a `graph` with a `map`, or a pipeline."""

    code = "too_many_calls"
    error_class = ErrorClass.INVALID


def begun(t: Transition, step: Step, asked: tuple[HandlerWait, ...]) -> tuple[HandlerWait, ...]:
    """Begin the calls that are new, cancel those that are no longer asked for, and return what the
    step waits for; raise CallUnknown or TooManyCalls before any call is begun."""
    under_way = {_identity(one): one for one in step.waits if one.call is not None}
    if not under_way and all(one.call is None for one in asked):
        return asked
    known = {one.key for one in step.ended}
    left = [one for one in asked if one.call is None or one.key not in known]
    _check(step, [one for one in left if one.call is not None and _identity(one) not in under_way])
    waits = [_waited_for(t, step, one, under_way) for one in left]
    for wait in under_way.values():
        _drop(t, step, wait)
    return tuple(waits)


def ended_call(step: Step, called: Step) -> bool:
    """Note that a call has ended; tell whether the step waits for it."""
    for wait in step.waits:
        if wait.call is not None and wait.call.number == called.index:
            place = {"scope": wait.scope, "ordinal": wait.ordinal}
            step.ended = (*step.ended, WaitEnded(**place, call=wait.call))
            step.waits = tuple(other for other in step.waits if other is not wait)
            return True
    return False


def forget_failed(t: Transition, step: Step) -> None:
    """Forget the calls that failed, so that the next attempt of the handler makes them again."""
    if any(one.call is not None for one in step.ended):
        step.ended = tuple(
            one
            for one in step.ended
            if one.call is None or t.run.steps[call_key(step, one.call)].state != FAILED
        )


def _waited_for(
    t: Transition, step: Step, wait: HandlerWait, under_way: dict[_Identity, HandlerWait]
) -> HandlerWait:
    """Return a wait as the step keeps it: taken out of `under_way`, or newly begun."""
    if wait.call is None:
        return wait
    found = under_way.pop(_identity(wait), None)
    return _begin(t, step, wait, wait.call) if found is None else found


def _check(step: Step, new: list[HandlerWait]) -> None:
    if not new:
        return
    for wait in new:
        if wait.call is not None and wait.call.name not in step.node.calls:
            raise CallUnknown(step=step.key, name=wait.call.name)
    spec = step.node.spec
    assert isinstance(spec, CallingNode), step.key
    made = 0 if step.children is None else step.children.started
    if made + len(new) > spec.max_calls:
        raise TooManyCalls(step=step.key, limit=spec.max_calls)


def _begin(t: Transition, step: Step, wait: HandlerWait, asked: NodeCall) -> HandlerWait:
    if step.children is None:
        step.children = Children(started=0, running=0)
    step.children.started += 1
    number = step.children.started
    call = NodeCall(name=asked.name, digest=asked.digest, number=number)
    node = step.node.calls[call.name]
    called = Step(call_key(step, call), node, node.role, CALL, step, step.within, number, t.now_ms)
    called.input = json_of(asked.input)
    t.todo.append((START, called, None))
    return HandlerWait(scope=wait.scope, ordinal=wait.ordinal, call=call)


def _drop(t: Transition, step: Step, wait: HandlerWait) -> None:
    assert wait.call is not None, step.key
    called = t.run.steps.get(call_key(step, wait.call))
    if called is not None and called.state not in TERMINAL:
        cancel_step(t, called, "its handler is no longer waiting for it")


def _identity(wait: HandlerWait) -> _Identity:
    assert wait.call is not None, wait
    return (*wait.key, wait.call.name, wait.call.digest)
