"""Reports the result of an attempt: encodes it, posts it to the log, and acknowledges the step once the
log has it."""

import asyncio
from typing import Any

import structlog

from hocket.kit.logs.run_lines import of_run
from hocket.kit.nats.protocol import header_of
from hocket.kit.process.clock import now_ms
from hocket.schemas.errors import ErrorClass, ErrorInfo
from hocket.schemas.structs.results import (
    FinishedAttempt,
    places_json,
    spend_json,
    timing_json,
)
from hocket.workers.runtime.execution.attempt import Attempt
from hocket.workers.runtime.execution.attempts import Attempts
from hocket.workers.runtime.execution.context import Context
from hocket.workers.runtime.execution.metrics import TypeMeters
from hocket.workers.runtime.execution.parts import Parts
from hocket.workers.runtime.journal.suspending import Suspension
from hocket.workers.runtime.results import payloads
from hocket.workers.runtime.results.failures import error_info
from hocket.workers.runtime.transport.settlement import Settlement

log = structlog.get_logger()


class Reporter:
    """Reports the results of one node type."""

    def __init__(
        self,
        parts: Parts,
        attempts: Attempts,
        settlement: Settlement,
        meters: TypeMeters,
    ) -> None:
        self.unacknowledged = 0
        """Results that are posted but not yet known to be in the log."""
        self._bus = parts.bus
        self._outbox = parts.outbox
        self._attempts = attempts
        self._settlement = settlement
        self._large_values = parts.large_values
        self._probation = parts.probation
        self._isolation = parts.isolation
        self._meters = meters
        self._worker = parts.worker
        self._loop = asyncio.get_running_loop()
        self._none_left = asyncio.Event()

    async def report(
        self, attempt: Attempt, context: Context | None, output: Any, error: BaseException | None
    ) -> None:
        """Post the result of an attempt: its error if there is one, otherwise its output."""
        info = None if error is None else error_info(error)
        suspension = attempt.suspension if attempt.is_suspended else None
        finished = self._finished(attempt, context, suspension)
        if suspension is not None:
            payload = payloads.suspended(finished)
        else:
            payload, info = await payloads.payload_of(
                finished, output, info, attempt.step.tenant, self._large_values
            )
        duration_ms = finished.finished_at_ms - finished.started_at_ms
        self._meters.finished(info, duration_ms, is_suspended=suspension is not None)
        if info is not None:
            _log_failure(attempt, context, info)
        if self._bus.publisher.is_full:
            await self._bus.wait_for_capacity()
        self.unacknowledged += 1
        attempt.result, attempt.took = payload, finished.took
        self._outbox.post(payload, attempt, self._posted)

    async def all_acknowledged(self) -> None:
        """Wait until every posted result is in the log or could not be posted."""
        while self.unacknowledged:
            self._none_left.clear()
            await self._none_left.wait()

    def _finished(
        self, attempt: Attempt, context: Context | None, suspension: Suspension | None
    ) -> FinishedAttempt:
        step, message = attempt.step, attempt.message
        finished = FinishedAttempt(
            run_id=step.run_id,
            step=step.step,
            attempt=step.attempt,
            started_at_ms=attempt.started_at_ms,
            finished_at_ms=now_ms(),
            queued_at_ms=attempt.sent_at_ms - step.held_ms,
            delivery=attempt.delivery.deliveries,
            worker=self._worker,
            dispatched_at_ms=step.dispatched_at_ms,
            input_digest=attempt.input_digest,
            capability=step.capability,
            took=message.steps if message.is_bundle else 0,
        )
        if context is not None:
            if (spent := context.spent) is not None:
                finished.spend = spend_json(spent)
            if (timing := context.timing) is not None:
                finished.timing = timing_json(timing)
        if suspension is not None:
            finished.waits = places_json(suspension.waits)
            finished.journaled = places_json(suspension.journaled)
        return finished

    def _posted(self, attempt: Attempt, failure: str | None) -> None:
        self.unacknowledged -= 1
        if not self.unacknowledged:
            self._none_left.set()
        self._attempts.drop(attempt)
        if self._probation.is_serving:
            self._loop.call_soon(self._isolation.turned)
        if failure is None:
            self._settlement.acknowledge(attempt)
        else:
            log.warning("result_not_posted", attempt_id=attempt.id, reason=failure)


def _log_failure(attempt: Attempt, context: Context | None, info: ErrorInfo) -> None:
    step = attempt.step
    trace = header_of(attempt.head, b"traceparent")
    logger = context.log if context else log.bind(**of_run(step.run_id, trace), step=step.step)
    emit = logger.info if info.error_class is ErrorClass.CANCELLED else logger.warning
    emit(
        "step_failed",
        type=step.type,
        code=info.code,
        error_class=info.error_class,
        message=info.message,
        latency_ms=round(now_ms() - attempt.started_at_ms, 1),
    )
