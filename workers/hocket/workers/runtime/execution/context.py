"""What a handler is given: its step, its time, its log, and the way to a model."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import cached_property
from typing import Any, Protocol

import structlog

from hocket.kit.nats.protocol import header_of
from hocket.kit.process.clock import monotonic_ms
from hocket.schemas import ids
from hocket.schemas.errors import ErrorInfo, HocketError
from hocket.schemas.messages import (
    NO_REQUIREMENTS,
    Attribution,
    CallReply,
    CallRequest,
    ChatMessage,
    Document,
    Requirements,
    Spend,
    StepRequested,
    Timing,
)
from hocket.schemas.structs.steps import RequestedStep
from hocket.schemas.tracing.context import TraceContext
from hocket.schemas.tracing.spans import attempt_span_id, context_of_run
from hocket.workers.runtime.models.model_time import ModelTime

_TRACEPARENT = b"traceparent"


class Calls(Protocol):
    """The way to the gateway."""

    async def make(self, request: CallRequest, headers: dict[str, str] | None = None) -> CallReply:
        """Return the gateway's reply, which may hold a typed error."""
        ...


class ModelCallFailed(HocketError):
    """The call of model `{model}` failed: {reason}"""

    code = "model_call_failed"

    def __init__(self, model: str, error: ErrorInfo) -> None:
        super().__init__(model=model, reason=error.message)
        self.error = error

    def info(self) -> ErrorInfo:
        """Return the gateway's own error, so that a graph can branch on its code and class."""
        return self.error


class Context:
    """One attempt, seen from its handler.

    `deadline_at_ms` is when this attempt is stopped; `delivery` counts how often it came to a worker.
    `head` are the headers of its message.
    """

    def __init__(
        self,
        step: RequestedStep,
        step_input: Any,
        *,
        attempt_id: str,
        delivery: int,
        deadline_at_ms: float,
        calls: Calls,
        head: bytes = b"",
    ) -> None:
        self._step = step
        self.input = step_input
        self.attempt_id = attempt_id
        self.delivery = delivery
        self.deadline_at_ms = deadline_at_ms
        self._head = head
        """Empty once the trace was read from it."""
        self.left_behind: Future[Any] | None = None
        """What runs for this attempt and cannot be stopped; its slot is taken until it ends."""
        self._calls = calls
        self._ordinal = 0
        self.spent: Spend | None = None
        """What the calls used so far, in sum; None where there was none."""
        self._model_time: ModelTime | None = None

    @cached_property
    def step(self) -> StepRequested:
        """The step's request, as it came."""
        return self._step.contract()

    @property
    def tenant(self) -> str:
        """The tenant whose run this is."""
        return self._step.tenant

    @property
    def config(self) -> Mapping[str, Any]:
        """The node's own fields."""
        return self._step.config

    @cached_property
    def log(self) -> structlog.typing.FilteringBoundLogger:
        """A logger whose lines carry run, trace, step and attempt."""
        logger: structlog.typing.FilteringBoundLogger = structlog.get_logger()
        return logger.bind(**self.log_fields())

    def log_fields(self) -> dict[str, Any]:
        """Return what every line that is logged for this attempt carries."""
        step = self._step
        return {
            "run_id": step.run_id,
            "trace_id": self.trace_id,
            "step": step.step,
            "attempt": step.attempt,
        }

    @cached_property
    def _trace(self) -> TraceContext:
        step, head = self._step, self._head
        self._head = b""
        of_run = context_of_run(step.run_id, header_of(head, _TRACEPARENT) if head else None)
        span_id = attempt_span_id(step.run_id, step.step, step.attempt)
        return TraceContext(of_run.trace_id, span_id, of_run.flags)

    @property
    def traceparent(self) -> str:
        """The W3C context of this attempt: its calls stand below it, and what it asks of others too."""
        return self._trace.header

    @property
    def trace_id(self) -> str:
        """The W3C trace id of the run."""
        return self._trace.trace_id

    @property
    def attribution(self) -> Attribution:
        """Who this attempt's calls are for."""
        step = self._step
        return Attribution(
            tenant=step.tenant,
            pipeline=step.pipeline,
            version=step.version,
            run_id=step.run_id,
            node=step.node,
            step=step.step,
            attempt=step.attempt,
            labels=step.labels,
        )

    async def model(
        self,
        model: str,
        prompt: str | None = None,
        *,
        system: str | None = None,
        messages: Sequence[ChatMessage] = (),
        documents: Sequence[Document] = (),
        task: str = "chat",
        context: Mapping[str, Any] | None = None,
        embed: Sequence[str] = (),
        max_tokens: int | None = None,
        temperature: float | None = None,
        response_schema: dict[str, Any] | None = None,
        requires: Mapping[str, Any] | None = None,
    ) -> CallReply:
        """Call a model by its logical name; raise ModelCallFailed with the gateway's error.

        `requires` is what a backend must be: `min_quality`, `labels`, `residency`.

        `system` and `prompt` are put before and after `messages`. What the call cost is added to the
        attempt's spend, whether it failed or not.
        """
        self._ordinal += 1
        request = CallRequest(
            call_id=ids.call_id(self.attempt_id, self.delivery, self._ordinal),
            model=model,
            messages=(
                *([ChatMessage(role="system", content=system)] if system else ()),
                *messages,
                *([ChatMessage(role="user", content=prompt)] if prompt is not None else ()),
            ),
            documents=tuple(documents),
            task=task,
            context=dict(context or {}),
            embed=tuple(embed),
            max_tokens=max_tokens,
            temperature=temperature,
            response_schema=response_schema,
            deadline_at_ms=self.deadline_at_ms,
            useful_until_ms=min(self.deadline_at_ms, self._step.deadline_at_ms),
            priority=self._step.priority,
            requires=Requirements.model_validate(requires) if requires else NO_REQUIREMENTS,
            budget_usd=self._step.budget_usd,
            budget_left_usd=self._step.budget_left_usd,
            attribution=self.attribution,
            capability=self._step.capability,
            dispatched_at_ms=self._step.dispatched_at_ms,
        )
        reply = await self._timed(request, {"traceparent": self.traceparent})
        spent = self.spend
        self.spent = Spend(
            calls=spent.calls + 1,
            input_tokens=spent.input_tokens + reply.input_tokens,
            output_tokens=spent.output_tokens + reply.output_tokens,
            cost_usd=spent.cost_usd + reply.cost_usd,
        )
        if reply.error is not None:
            raise ModelCallFailed(model, reply.error)
        return reply

    @property
    def spend(self) -> Spend:
        """What the calls used so far, in sum."""
        return self.spent or NOTHING_SPENT

    @property
    def timing(self) -> Timing | None:
        """How long the attempt waited for models so far, None where it called none."""
        return None if self._model_time is None else self._model_time.timing()

    async def _timed(self, request: CallRequest, headers: dict[str, str] | None) -> CallReply:
        asked_at_ms, queue_ms = monotonic_ms(), 0.0
        model_time = self._model_time = self._model_time or ModelTime()
        model_time.asked(asked_at_ms)
        try:
            reply = await self._calls.make(request, headers)
            queue_ms = reply.queue_ms
        finally:
            model_time.answered(monotonic_ms(), asked_at_ms=asked_at_ms, queue_ms=queue_ms)
        return reply


NOTHING_SPENT = Spend()
