"""The model calls of one attempt: numbered, made in its name, and kept in its journal; and their total
cost and time."""

import asyncio
import hashlib
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

from hocket.kit.process.clock import monotonic_ms
from hocket.schemas import ids, subjects
from hocket.schemas.journals import JournalEntry
from hocket.schemas.messages import (
    QUESTION_FIELDS,
    Attribution,
    CallReply,
    CallRequest,
    Spend,
    Timing,
)
from hocket.schemas.structs.steps import RequestedStep
from hocket.workers.runtime.journal.durable import Once
from hocket.workers.runtime.models.amounts import MONEY
from hocket.workers.runtime.models.calls import Calls
from hocket.workers.runtime.models.model_time import ModelTime
from hocket.workers.runtime.models.openai_answers import checked


class AttemptCalls:
    """The model calls of one attempt; created with its first call."""

    def __init__(
        self,
        calls: Calls,
        step: RequestedStep,
        *,
        attempt_id: str,
        delivery: int,
        deadline_at_ms: float,
        attribution: Attribution,
        traceparent: str,
        may_be_made: bool = False,
        has_ended: Callable[[], bool] | None = None,
    ) -> None:
        self.spent: Spend | None = None
        """The total used so far; None if no call has been answered."""
        self._calls = calls
        self._step = step
        self._attempt_id = attempt_id
        self._delivery = delivery
        self._deadline_at_ms = deadline_at_ms
        self._attribution = attribution
        self._traceparent = traceparent
        self._has_ended = has_ended
        """Whether the attempt's result is out: what its handler left behind makes no more calls, because
        nobody would count them."""
        self._may_be_made = may_be_made
        """Whether another worker may be making the same calls, or may have made them; false once a
        gateway has looked for one of them without success."""
        self._ordinal = 0
        self._time: ModelTime | None = None

    @property
    def timing(self) -> Timing | None:
        """How long the attempt waited for its calls so far; None if it made none."""
        return None if self._time is None else self._time.timing()

    def request(self, model: str, **asked: Any) -> CallRequest:
        """Return a request for a model call on behalf of this attempt."""
        self._ordinal += 1
        step = self._step
        return CallRequest(
            call_id=ids.call_id(self._attempt_id, self._delivery, self._ordinal),
            model=model,
            deadline_at_ms=self._deadline_at_ms,
            useful_until_ms=min(self._deadline_at_ms, step.deadline_at_ms),
            priority=step.priority,
            budget_usd=step.budget_usd,
            budget_left_usd=step.budget_left_usd,
            root_budget=step.root_budget,
            attribution=self._attribution,
            capability=step.capability,
            dispatched_at_ms=step.dispatched_at_ms,
            **asked,
        )

    async def reply(self, request: CallRequest, once: Once | None) -> CallReply:
        """Return the reply to a call, which may hold an error. With `once`, the reply comes from the
        journal if an earlier attempt made the same call."""
        if once is None:
            return await self._asked(request)
        asked = request.model_dump_json(include=set(QUESTION_FIELDS))
        digest = hashlib.sha256(asked.encode()).hexdigest()[:32]
        fresh: list[CallReply] = []

        async def ask() -> tuple[Any, Decimal, bool]:
            reply = await self._asked(request)
            fresh.append(reply)
            value = reply.model_dump(mode="json", exclude_defaults=True)
            return value, reply.cost_usd, reply.error is not None

        value, found = await once(request.model, digest, ask)
        if fresh:
            return fresh[0]
        reply = CallReply.model_validate(value)
        if found is not None and found.unpaid:
            self._spend(reply)
        return reply

    async def _asked(self, request: CallRequest) -> CallReply:
        if self._has_ended is not None and self._has_ended():
            raise asyncio.CancelledError
        asked_at_ms, queue_ms = monotonic_ms(), 0.0
        time = self._time = self._time or ModelTime()
        time.asked(asked_at_ms)
        headers = {"traceparent": self._traceparent}
        if self._may_be_made:
            headers[subjects.ASKED_AGAIN] = "1"
        try:
            reply = await self._calls.make(request, headers)
            if request.openai is not None:
                reply = checked(request.openai.path, reply)
            queue_ms = reply.queue_ms
        finally:
            if monotonic_ms() - asked_at_ms >= subjects.ASKED_AGAIN_MS:
                self._may_be_made = False
            time.answered(monotonic_ms(), asked_at_ms=asked_at_ms, queue_ms=queue_ms)
        self._spend(reply)
        return reply

    def _spend(self, reply: CallReply) -> None:
        self.spent = _with_call(self.spent, reply.input_tokens, reply.output_tokens, reply.cost_usd)


def with_journaled(spent: Spend | None, entries: Iterable[JournalEntry]) -> Spend | None:
    """Return what was used with the model calls of a journal added."""
    for entry in entries:
        told = entry.value if isinstance(entry.value, dict) else {}  # or it is in a blob as a whole
        tokens = (told.get("input_tokens", 0), told.get("output_tokens", 0))
        spent = _with_call(spent, *tokens, entry.cost_usd)
    return spent


def _with_call(
    spent: Spend | None, input_tokens: int, output_tokens: int, cost_usd: Decimal
) -> Spend:
    spent = spent or NOTHING_SPENT
    return Spend(
        calls=spent.calls + 1,
        input_tokens=spent.input_tokens + input_tokens,
        output_tokens=spent.output_tokens + output_tokens,
        cost_usd=MONEY.add(spent.cost_usd, cost_usd),
    )


NOTHING_SPENT = Spend()
