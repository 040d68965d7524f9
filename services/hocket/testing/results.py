"""The results of a play's attempts, written as a worker and read as a coordinator would."""

from typing import Any

from hocket.kit.process.clock import now_ms
from hocket.schemas.messages import AttemptFinished
from hocket.schemas.structs.results import (
    FinishedAttempt,
    places_json,
    spend_json,
    timing_json,
)
from hocket.workers.runtime.execution.attempt import Attempt
from hocket.workers.runtime.execution.context import Context
from hocket.workers.runtime.results import encoding
from hocket.workers.runtime.results.failures import error_info, waiting

WORKER = "play"


def result_of(
    attempt: Attempt, context: Context, output: Any, error: BaseException | None
) -> AttemptFinished:
    """Return the result of an attempt: its error if there is one, and otherwise its output."""
    step, suspension = attempt.step, attempt.suspension
    finished = FinishedAttempt(
        run_id=step.run_id,
        step=step.step,
        attempt=step.attempt,
        started_at_ms=attempt.started_at_ms,
        finished_at_ms=now_ms(),
        queued_at_ms=attempt.delivery.stored_at_ms,
        delivery=attempt.delivery.deliveries,
        worker=WORKER,
        spend=spend_json(context.spent),
        timing=timing_json(context.timing),
        dispatched_at_ms=step.dispatched_at_ms,
        input_digest=attempt.input_digest,
        waits=places_json(suspension.waits if suspension else ()),
        journaled=places_json(suspension.journaled if suspension else ()),
    )
    info = None if error is None else error_info(error)
    if suspension is not None:
        info = waiting()
    try:
        payload = encoding.encode(finished, None if info else output, info)
        encoding.check_size(payload)
    except Exception as fault:  # also of what the output's own code raises
        payload = encoding.encode(finished, None, error_info(fault))
    return AttemptFinished.model_validate_json(payload)
