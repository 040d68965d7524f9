"""Runs an attempt within its time, in a task of its own, until its result is reported.

Anything that goes wrong in a handler becomes a typed error in a result. If a handler ignores being
cancelled, or runs in a thread, the attempt is reported after `STOP_GRACE_S` without it; the slot is held
until it ends.

Each attempt has its own task and context. Long-lived tasks, one per slot, were tried: they saved nothing
measurable, and what a handler leaves behind (a context variable, a late cancellation) would reach the
next attempt in its slot.
"""

import asyncio
import decimal
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import structlog

from hocket.kit.logs.run_lines import RUNNING
from hocket.kit.process.clock import now_ms
from hocket.kit.process.limits.memory import end_if_short
from hocket.schemas import ids
from hocket.schemas.errors import HeldTooLong, HocketError
from hocket.workers.errors import AttemptCancelled, AttemptTimeout, DeadlinePassed
from hocket.workers.runtime.execution.attempt import Attempt, State
from hocket.workers.runtime.execution.background import Background
from hocket.workers.runtime.execution.context import Context
from hocket.workers.runtime.execution.parts import Parts
from hocket.workers.runtime.execution.slots import LeftBehind
from hocket.workers.runtime.journal.journal import Journal
from hocket.workers.runtime.journal.suspending import Suspension
from hocket.workers.runtime.lines.logged_attempt import LoggedAttempt
from hocket.workers.runtime.results.reporter import Reporter

STOP_GRACE_S = 1.0
DECIMALS = decimal.Context(prec=28)
"""The decimal context in which every handler begins."""

log = structlog.get_logger()

Handler = Callable[[Context], Awaitable[Any]]


class Runner:
    """Runs the attempts of one node type. `ended` is called when an attempt's time is over, whatever its
    result, with anything that is still running for it."""

    def __init__(
        self,
        parts: Parts,
        handler: Handler,
        background: Background,
        reporter: Reporter,
        ended: Callable[[Attempt, LeftBehind | None], None],
    ) -> None:
        self._handler = handler
        self._bus = parts.bus
        self._calls = parts.calls
        self._journals = parts.journals
        self._worker = parts.worker
        self._cancellations = parts.cancellations
        self._large_values = parts.large_values
        self._alarms = parts.alarms
        self._lines = parts.lines
        self._background = background
        self._reporter = reporter
        self._ended = ended

    def begin(self, attempt: Attempt) -> None:
        """Run a ready attempt."""
        attempt.state = State.RUNNING
        attempt.task = self._background.start(self._run(attempt))

    def stop(self, attempt: Attempt, error: HocketError) -> bool:
        """End an attempt with an error; return False if it has already concluded or been stopped."""
        stopped = attempt.stop(error)
        if stopped and attempt.state is State.RUNNING:
            self._alarms.set(attempt, STOP_GRACE_S, self._answer_for)
        return stopped

    async def _run(self, attempt: Attempt) -> None:
        attempt.started_at_ms = now_ms()
        attempt.input_digest = ids.input_digest(attempt.step.input)  # its handler may change it
        context: Context | None = None
        output: Any = None
        error: BaseException | None = self._refusal(attempt)
        if error is None and not attempt.let_go:
            try:
                given = attempt.step.input
                if attempt.has_references:
                    given = await self._resolved_input(attempt)
                context = self._context(attempt, given)
                attempt.context = context
                decimal.setcontext(DECIMALS.copy())  # handlers would otherwise share a context
                timeout_ms = context.deadline_at_ms - attempt.started_at_ms
                self._alarms.set(attempt, timeout_ms / 1000, self._timed_out)
                logged = LoggedAttempt(attempt.step, context.delivery, context, self._lines)
                RUNNING.set(logged)
                output = await self._handler(context)
            except BaseException as raised:
                end_if_short(raised)  # the step is redelivered
                error = raised
        if attempt.is_cut_off:
            _forget_cancellation()
            output, error = None, attempt.stopped
        self._alarms.void(attempt)
        left_behind = None if context is None else context.left_behind
        if attempt.conclude():
            await self._report(attempt, context, output, error)
            self._ended(attempt, left_behind)
        attempt.task = attempt.context = None  # break reference cycles: both hold the attempt

    async def _report(
        self, attempt: Attempt, context: Context | None, output: Any, error: BaseException | None
    ) -> None:
        """Report an attempt, unless it was let go."""
        if attempt.let_go:
            return
        try:
            await self._reporter.report(attempt, context, output, error)
        except BaseException as fault:  # caused by the handler, whose task may still be cancelled
            again = None if isinstance(fault, asyncio.CancelledError) else fault
            self._background.start(self._report_again(attempt, context, output, again or error))

    async def _report_again(
        self, attempt: Attempt, context: Context | None, output: Any, error: BaseException | None
    ) -> None:
        """Report in a task that no handler knows, so that an attempt is reported whatever its handler
        left behind."""
        raised: BaseException | None = None
        try:
            await self._reporter.report(attempt, context, output, error)
        except asyncio.CancelledError:
            raise
        except BaseException as fault:
            raised = fault
        if raised is not None:
            await self._reporter.report(attempt, None, None, raised)

    def _refusal(self, attempt: Attempt) -> HocketError | None:
        """Return why the attempt must not run at all, or None."""
        step, at_ms = attempt.step, attempt.started_at_ms
        if attempt.stopped is not None:
            return attempt.stopped
        if not self._cancellations.is_empty:
            reason = self._cancellations.reason_for(
                step.run_id,
                step.step,
                step.attempt,
                sent_at_ms=attempt.sent_at_ms,
                now_ms=at_ms,
                capability=step.capability,
            )
            if reason is not None:
                return AttemptCancelled(reason=reason)
        if at_ms >= attempt.latest_end_ms:
            return DeadlinePassed(late_ms=round(at_ms - attempt.latest_end_ms))
        if step.start_by_at_ms is not None and at_ms > step.start_by_at_ms:
            return HeldTooLong()
        return None

    async def _resolved_input(self, attempt: Attempt) -> Any:
        """Return an attempt's input with its blobs loaded; the attempt's time starts after that."""
        step = attempt.step
        left_ms = max(attempt.latest_end_ms - attempt.started_at_ms, 0.0)
        self._alarms.set(attempt, left_ms / 1000, self._waited_too_long)
        value, attempt.held_bytes = await self._large_values.resolved_input(step)
        self._alarms.void(attempt)
        attempt.started_at_ms = now_ms()
        return value

    def _context(self, attempt: Attempt, step_input: Any) -> Context:
        step = attempt.step
        return Context(
            step,
            step_input,
            attempt_id=attempt.id,
            delivery=attempt.delivery.deliveries,
            deadline_at_ms=min(attempt.started_at_ms + step.timeout_ms, attempt.latest_end_ms),
            calls=self._calls,
            head=attempt.head,
            may_be_repeated=self._may_be_repeated(attempt),
            new_journal=partial(Journal, self._journals, attempt, self._worker),
            values=self._large_values,
            suspend=partial(self._suspend, attempt),
            has_ended=lambda: attempt.is_left_behind,
        )

    def _suspend(self, attempt: Attempt, suspension: Suspension) -> None:
        """End an attempt whose handler waits; the step is dispatched again when the wait is over."""
        if attempt.suspend(suspension):
            self._alarms.set(attempt, STOP_GRACE_S, self._answer_for)

    def _may_be_repeated(self, attempt: Attempt) -> bool:
        """Tell whether another worker may make the same calls: a server that crashed forgets which
        worker it gave a step to, and delivers it to another one as if for the first time. Later
        deliveries have their own call ids."""
        return attempt.delivery.deliveries == 1 and attempt.sent_at_ms <= self._bus.lost_at_ms

    def _timed_out(self, attempt: Attempt) -> None:
        left_ms = attempt.latest_end_ms - attempt.started_at_ms
        timeout_ms = round(min(attempt.step.timeout_ms, left_ms))
        if not self.stop(attempt, AttemptTimeout(timeout_ms=timeout_ms)):
            self._answer_for(attempt)

    def _waited_too_long(self, attempt: Attempt) -> None:
        self.stop(attempt, DeadlinePassed(late_ms=0))

    def _answer_for(self, attempt: Attempt) -> None:
        """Conclude an attempt whose handler did not end after being cancelled."""
        if attempt.conclude():
            log.warning("handler_ignores_cancellation", attempt_id=attempt.id)
            if attempt.let_go:
                self._ended(attempt, attempt.task)
            else:
                self._background.start(self._answer(attempt))

    async def _answer(self, attempt: Attempt) -> None:
        await self._reporter.report(attempt, attempt.context, None, attempt.stopped)
        self._ended(attempt, attempt.task)


def _forget_cancellation() -> None:
    """Undo the cancellation of a stopped handler's task, so that the rest of the task can await."""
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()
