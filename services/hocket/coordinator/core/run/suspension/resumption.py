"""What a suspended step resumes with: its next attempt gets the outcomes of its handler's waits."""

from hocket.coordinator.core.run.run_size import error_size
from hocket.coordinator.core.run.state.run import FAILED, Run, Step, call_key
from hocket.schemas.messages import HandlerWait, Resumption, WaitEnded

MAX_GIVEN_BYTES = 256 * 1024
"""The limit for the outputs of calls that one attempt resumes with, apart from the first. What is
left over comes with a later attempt, once the journal has these."""


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
