"""Handles one attempt as a worker does: makes its handler's context, and limits its time."""

import asyncio
from functools import partial
from typing import Any

from hocket.kit.nats.consumers.delivery import Delivery
from hocket.kit.process.clock import now_ms
from hocket.schemas import ids
from hocket.schemas.structs.steps import RequestedStep
from hocket.testing.errors import NotPlayable
from hocket.testing.results import WORKER
from hocket.testing.stand_ins.answers import PlayedModels
from hocket.testing.stand_ins.journals import PlayedJournals
from hocket.workers.errors import AttemptTimeout
from hocket.workers.runtime.execution.attempt import Attempt
from hocket.workers.runtime.execution.context import Context
from hocket.workers.runtime.execution.step_threads import Outcome
from hocket.workers.runtime.journal.journal import Journal
from hocket.workers.runtime.journal.waits import Suspend
from hocket.workers.runtime.transport.step_message import StepMessage


def begun(step: RequestedStep, deliveries: int) -> Attempt:
    """Return an attempt that begins now."""
    delivery = Delivery(deliveries, 1, 1, int(now_ms() * 1_000_000), 0)
    attempt = Attempt(step, StepMessage("play", 0, 0.0, b""), delivery, b"")
    attempt.started_at_ms = now_ms()
    attempt.input_digest = ids.input_digest(step.input)
    return attempt


def context_of(
    attempt: Attempt, models: PlayedModels, journals: PlayedJournals, suspend: Suspend
) -> Context:
    """Return the context for an attempt's handler."""
    step = attempt.step
    return Context(
        step,
        step.input,
        attempt_id=attempt.id,
        delivery=attempt.delivery.deliveries,
        deadline_at_ms=min(attempt.started_at_ms + step.timeout_ms, attempt.latest_end_ms),
        calls=models,
        new_journal=partial(Journal, journals, attempt, WORKER),
        suspend=suspend,
        has_ended=lambda: attempt.is_left_behind,
    )


async def within(
    doing: "asyncio.Task[Outcome]", timeout_ms: float
) -> tuple[Any, BaseException | None]:
    """Return a handler's output, or its error, which is AttemptTimeout if it took too long."""
    await asyncio.wait({doing}, timeout=timeout_ms / 1000)
    if not doing.done():
        return None, AttemptTimeout(timeout_ms=round(timeout_ms))
    if doing.cancelled():
        return None, asyncio.CancelledError()
    error = doing.exception()
    if isinstance(error, NotPlayable):
        raise error
    if error is not None:
        return None, error
    outcome = doing.result()
    return outcome.value, outcome.error
