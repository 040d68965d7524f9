"""What a suspended step resumes with: its next attempt gets the outcomes of its handler's waits."""

from hocket.coordinator.core.run.faults import unsendable
from hocket.coordinator.core.run.run_size import error_size
from hocket.coordinator.core.run.state.run import FAILED, Run, Step, call_key
from hocket.schemas.errors import ErrorInfo, PayloadTooLarge
from hocket.schemas.messages import HandlerWait, Resumption, WaitEnded, encoded_without_defaults

MAX_GIVEN_BYTES = 256 * 1024
"""The limit for the outputs of calls that one attempt resumes with, apart from the first. What is
left over comes with a later attempt, once the journal has these."""


class SignalTooLarge(PayloadTooLarge):
    """`{step}` cannot resume with the signal `{signal}`: with the step's input, its message has
    {size_bytes} bytes; the limit is {limit_bytes}. Send the address of a large value in the signal
    instead of the value, or give the step a smaller input."""


def resumption_of(run: Run, step: Step) -> Resumption:
    """Return what a step's present attempt resumes with."""
    if all(one.call is None for one in step.ended):
        return Resumption(ended=step.ended, waits=step.waits)
    ended: list[WaitEnded] = []
    waits = list(step.waits)
    left_bytes = MAX_GIVEN_BYTES
    for one in step.ended:
        if one.call is None:
            ended.append(one)
            continue
        called = run.steps[call_key(step, one.call)]
        error = called.error if called.state == FAILED else None
        size_bytes = called.output.size + error_size(error)
        if size_bytes > left_bytes < MAX_GIVEN_BYTES:
            waits.append(HandlerWait(scope=one.scope, ordinal=one.ordinal, call=one.call))
            continue
        left_bytes -= size_bytes
        ended.append(one.model_copy(update={"output": called.output.value, "error": error}))
    return Resumption(ended=tuple(ended), waits=tuple(waits))


def refusal_of(run: Run, key: str, error: Exception) -> ErrorInfo:
    """Return why the message of a step cannot be sent. If it could without the largest signal that the
    step resumes with, that is named."""
    step = run.steps.get(key)
    if step is None or not step.ended or not isinstance(error, PayloadTooLarge):
        return unsendable(error)
    signals = [one for one in step.ended if one.signal_id]
    sizes = [len(encoded_without_defaults(one)) for one in signals]
    over_bytes = error.fields["size_bytes"] - error.fields["limit_bytes"]
    if max(sizes, default=0) < over_bytes or not sizes:
        return unsendable(error)
    largest = signals[sizes.index(max(sizes))]
    return SignalTooLarge(step=key, signal=largest.signal, **error.fields).info()
