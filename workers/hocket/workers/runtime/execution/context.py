"""The context that a handler receives: its step, time, log, journal, and access to models."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any

import structlog

from hocket.kit.nats.protocol import header_of
from hocket.schemas import subjects
from hocket.schemas.errors import ErrorInfo, HocketError
from hocket.schemas.messages import (
    NO_REQUIREMENTS,
    Attribution,
    CallReply,
    ChatMessage,
    Document,
    OpenAIBody,
    Requirements,
    Spend,
    Timing,
)
from hocket.schemas.structs.steps import RequestedStep
from hocket.schemas.tracing.context import TraceContext
from hocket.schemas.tracing.spans import attempt_span_id, context_of_run
from hocket.workers.runtime.journal.journal import Journal
from hocket.workers.runtime.journal.waiting import DurableWaits
from hocket.workers.runtime.journal.waits import Suspend
from hocket.workers.runtime.models.attempt_calls import NOTHING_SPENT, AttemptCalls, with_journaled
from hocket.workers.runtime.models.calls import Calls
from hocket.workers.runtime.models.charges import Charged
from hocket.workers.runtime.models.openai_client import OpenAIPath, client_of
from hocket.workers.runtime.values import shown_values
from hocket.workers.runtime.values.large_values import LargeValues

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_TRACEPARENT = b"traceparent"
_ASKED_AGAIN = subjects.ASKED_AGAIN.encode()


class ModelCallFailed(HocketError):
    """The call of model `{model}` failed: {reason}"""

    code = "model_call_failed"

    def __init__(self, model: str, error: ErrorInfo) -> None:
        super().__init__(model=model, reason=error.message)
        self.error = error

    def info(self) -> ErrorInfo:
        """Return the gateway's own error, so that a graph can branch on its code and class."""
        return self.error


class Context(DurableWaits, Charged):
    """One attempt, as its handler sees it.

    `deadline_at_ms` (epoch ms) is when this attempt is stopped; `delivery` counts how often it was
    delivered to a worker. `head` holds the headers of its message; `may_be_repeated` says that another
    worker may have the same attempt.
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
        may_be_repeated: bool = False,
        new_journal: Callable[[], Journal] | None = None,
        values: LargeValues | None = None,
        suspend: Suspend | None = None,
        has_ended: Callable[[], bool] | None = None,
    ) -> None:
        super().__init__(step, new_journal, values, suspend, has_ended)
        self.input = step_input
        self.attempt_id = attempt_id
        self.delivery = delivery
        self.deadline_at_ms = deadline_at_ms
        self._head = head
        self._may_be_repeated = may_be_repeated
        self._calls = calls
        self._model_calls: AttemptCalls | None = None

    @property
    def tenant(self) -> str:
        """The tenant whose run this is."""
        return self._step.tenant

    @property
    def config(self) -> Mapping[str, Any]:
        """The node's `config`; for a built-in type, the node's own fields."""
        return self._step.config

    @cached_property
    def log(self) -> structlog.typing.FilteringBoundLogger:
        """A logger whose lines carry run, trace, step and attempt."""
        logger: structlog.typing.FilteringBoundLogger = structlog.get_logger()
        return logger.bind(**self.log_fields())

    def log_fields(self) -> dict[str, Any]:
        """Return the fields that every log line of this attempt carries."""
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
        of_run = context_of_run(step.run_id, header_of(head, _TRACEPARENT) if head else None)
        span_id = attempt_span_id(step.run_id, step.step, step.attempt)
        return TraceContext(of_run.trace_id, span_id, of_run.flags)

    @property
    def traceparent(self) -> str:
        """The W3C `traceparent` of this attempt: the parent of its model calls and other requests."""
        return self._trace.header

    @property
    def trace_id(self) -> str:
        """The W3C trace id of the run."""
        return self._trace.trace_id

    @property
    def attribution(self) -> Attribution:
        """The tenant, pipeline, run and step that this attempt's calls are attributed to."""
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
        tools: Sequence[Mapping[str, Any]] = (),
        tool_choice: str | Mapping[str, Any] | None = None,
        journal: bool = True,
    ) -> CallReply:
        """Call a model by its logical name; raise ModelCallFailed with the gateway's error.

        `system` and `prompt` are put before and after `messages`. `requires` restricts the backend:
        `min_quality`, `labels`, `residency`. `tools` and `tool_choice` have OpenAI's format. Tools that
        the model calls are in the reply's `tool_calls`; answer them in the `messages` of the next call,
        with an `assistant` message that has these `tool_calls` and, for each, a `tool` message with its
        `tool_call_id`.

        The cost is added to the attempt's spend even if the call fails. In user-written functions the
        answer is kept in the step's journal, and another attempt does not ask the same question again,
        unless `journal` is off.
        """
        models = self._to_models()
        request = models.request(
            model,
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
            requires=Requirements.model_validate(requires) if requires else NO_REQUIREMENTS,
            tools=tuple(map(dict, tools)),
            tool_choice=tool_choice if isinstance(tool_choice, str | None) else dict(tool_choice),
        )
        with self._working():
            reply = await models.reply(request, self._models_once if journal else None)
        if reply.error is not None:
            raise ModelCallFailed(request.model, reply.error)
        return reply

    def openai_client(self, **options: Any) -> "AsyncOpenAI":
        """Return a client of the package `openai`, for frameworks that need one. Its calls go through
        the platform and the journal, as those of `model` do. `options` are AsyncOpenAI's. Raises
        OpenAIMissing if the package is not installed."""

        async def reply(path: OpenAIPath, body: dict[str, Any]) -> CallReply:
            models = self._to_models()
            request = models.request(body["model"], openai=OpenAIBody(path=path, body=body))
            with self._working():
                return await models.reply(request, self._models_once)

        return client_of(reply, **options)

    @property
    def spent(self) -> Spend | None:
        """The total that model calls used and that was charged so far; None if nothing."""
        calls = None if self._model_calls is None else self._model_calls.spent
        return self._with_charges(with_journaled(calls, self._calls_inside))

    @property
    def spend(self) -> Spend:
        """The total that model calls used and that was charged so far."""
        return self.spent or NOTHING_SPENT

    @property
    def timing(self) -> Timing | None:
        """How long the attempt waited for models so far; None if it called none."""
        return None if self._model_calls is None else self._model_calls.timing

    def _to_models(self) -> AttemptCalls:
        """Return this attempt's model calls, created on first use."""
        if self._model_calls is None:
            may_be_made = self._may_be_repeated or bool(header_of(self._head, _ASKED_AGAIN))
            self._model_calls = AttemptCalls(
                self._calls,
                self._step,
                attempt_id=self.attempt_id,
                delivery=self.delivery,
                deadline_at_ms=self.deadline_at_ms,
                attribution=self.attribution,
                traceparent=self.traceparent,
                may_be_made=may_be_made,
                has_ended=self._has_ended,
            )
        return self._model_calls


def shown(context: Context, value: Any) -> AbstractAsyncContextManager[Any]:
    """Return a block in which a part of a context's input is there with its blobs, as far as they can be
    loaded. It waits for room, unless the input holds some already."""
    if context._values is None:
        return nullcontext(value)
    waits = context.input is context._step.input
    return shown_values.shown(context._values, context.tenant, value, waits=waits)
