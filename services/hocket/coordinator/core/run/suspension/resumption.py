"""What a suspended step resumes with: its next attempt gets the outcomes of its handler's waits."""

from hocket.coordinator.core.run.faults import unsendable
from hocket.coordinator.core.run.run_size import error_size
from hocket.coordinator.core.run.state.run import FAILED, Run, Step, call_key
from hocket.schemas.errors import ErrorInfo, PayloadTooLarge
from hocket.schemas.messages import HandlerWait, Resumption, WaitEnded, encoded_without_defaults

MAX_GIVEN_BYTES = 256 * 1024
"""The limit for the outputs of calls that one attempt resumes with, apart from the first. What is
left over comes with a later attempt, once the journal has these."""
MESSAGE_BYTES = 1_000_000
"""How large a step's message may become with what it resumes with: less than NATS takes, because of
the message's other fields. What is left over comes with a later attempt here, too."""
SMALL_BYTES = 1_024
"""Outcomes below this are always given."""


class SignalTooLarge(PayloadTooLarge):
    """`{step}` cannot resume with the signal `{signal}`: with the step's input, its message has
    {size_bytes} bytes; the limit is {limit_bytes}. Send the address of a large value in the signal
    instead of the value, or give the step a smaller input."""


def resumption_of(run: Run, step: Step) -> Resumption:
    """Return what a step's present attempt resumes with."""
    if len(step.ended) < 2:
        return Resumption(
            ended=tuple(_given(run, step, one) for one in step.ended), waits=step.waits
        )
    ended: list[WaitEnded] = []
    waits = list(step.waits)
    sizes = [_size_of(run, step, one) for one in step.ended]
    small_bytes = sum(size for size in sizes if size < SMALL_BYTES)
    room_bytes = _room_bytes(step) - small_bytes
    calls_bytes = MAX_GIVEN_BYTES
    for one, size in zip(step.ended, sizes, strict=True):
        is_call = one.call is not None
        if size >= SMALL_BYTES:
            is_first = not small_bytes and not ended
            is_left_over = is_call and size > calls_bytes < MAX_GIVEN_BYTES
            if is_left_over or (size > room_bytes and not is_first):
                place = {"scope": one.scope, "ordinal": one.ordinal}
                waits.append(HandlerWait(**place, signal=one.signal, call=one.call))
                continue
            room_bytes -= size
        if is_call:
            calls_bytes -= size
        ended.append(_given(run, step, one))
    return Resumption(ended=tuple(ended), waits=tuple(waits))


def refusal_of(run: Run, key: str, error: Exception) -> ErrorInfo:
    """Return why the message of a step cannot be sent. If it could without the largest signal that the
    step resumes with, that is named."""
    step = run.steps.get(key)
    if step is None or not step.ended or not isinstance(error, PayloadTooLarge):
        return unsendable(error)
    signals = [one for one in resumption_of(run, step).ended if one.signal_id]
    sizes = [_size_of(run, step, one) for one in signals]
    over_bytes = error.fields["size_bytes"] - error.fields["limit_bytes"]
    if max(sizes, default=0) < over_bytes or not sizes:
        return unsendable(error)
    largest = signals[sizes.index(max(sizes))]
    return SignalTooLarge(step=key, signal=largest.signal, **error.fields).info()


def _room_bytes(step: Step) -> int:
    """Return how much the message of a step has room for, beside its input and its node."""
    waits_bytes = len(encoded_without_defaults(Resumption(waits=step.waits)))
    return MESSAGE_BYTES - step.input.size - len(step.node.static) - waits_bytes


def _size_of(run: Run, step: Step, one: WaitEnded) -> int:
    """Return the size of the outcome of a wait, that of a call's approximately (bytes)."""
    if one.call is None:
        return len(encoded_without_defaults(one))
    called = run.steps[call_key(step, one.call)]
    return called.output.size + error_size(called.error if called.state == FAILED else None)


def _given(run: Run, step: Step, one: WaitEnded) -> WaitEnded:
    """Return the outcome of a wait as the handler gets it."""
    if one.call is None:
        return one
    called = run.steps[call_key(step, one.call)]
    error = called.error if called.state == FAILED else None
    return one.model_copy(update={"output": called.output.value, "error": error})
