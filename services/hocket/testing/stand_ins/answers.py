"""The models of a play: the test sets their answers, and each call is recorded."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from hocket.gateway.core.errors import BudgetExceeded
from hocket.kit.process.clock import now_ms
from hocket.schemas.checks.bounded import WrittenMoney
from hocket.schemas.errors import ErrorClass, ErrorInfo, InvalidInput
from hocket.schemas.messages import CallReply, CallRequest, Completion, encoded
from hocket.testing.errors import NotPlayable, ScriptExhausted
from hocket.testing.faults import PASSING, check_time, check_whole, class_of
from hocket.testing.recording import RecordedCall
from hocket.testing.stand_ins.recorded import RecordedAnswers
from hocket.testing.trace import PlayedCall
from hocket.workers.runtime.models.amounts import MONEY

T = TypeVar("T", CallRequest, CallReply)
_USD: TypeAdapter[Decimal] = TypeAdapter(WrittenMoney)


@dataclass(frozen=True, slots=True)
class Answer:
    """A model's answer: text, or JSON as `data`. It takes `takes_ms` on the play's clock. Raises
    InvalidInput for a cost, tokens or a time that no call can have."""

    text: str = ""
    data: Any = None
    cost_usd: Decimal | str | float = Decimal(0)
    input_tokens: int = 0
    output_tokens: int = 0
    takes_ms: float = 0.0
    tool_calls: Sequence[dict[str, Any]] = ()
    embeddings: Sequence[Sequence[float]] = ()
    finish_reason: str = ""
    """Why the answer ended: `length` for one that was cut off at its token limit. By default it is
    complete: `tool_calls` if there are any, otherwise `stop`."""

    def __post_init__(self) -> None:
        _usd(self.cost_usd)
        check_time("takes_ms", self.takes_ms)
        check_whole("input_tokens", self.input_tokens, least=0)
        check_whole("output_tokens", self.output_tokens, least=0)


@dataclass(frozen=True, slots=True)
class ModelFails:
    """A call that fails, with an error of the gateway. Raises InvalidInput for an unknown class of
    errors, or for a cost or a time that no call can have."""

    error_class: ErrorClass | str = ErrorClass.UNAVAILABLE
    code: str = "model_failed"
    message: str = "The test made the call fail."
    cost_usd: Decimal | str | float = Decimal(0)
    takes_ms: float = 0.0

    def __post_init__(self) -> None:
        class_of(self.error_class)
        _usd(self.cost_usd)
        check_time("takes_ms", self.takes_ms)


def _read_back(message: T) -> T:
    """Return a message as its reader gets it: what one changes in it, no other sees."""
    return type(message).model_validate_json(encoded(message))


def _usd(amount: Decimal | str | float) -> Decimal:
    """Return an amount of US dollars. Raises InvalidInput."""
    try:
        return _USD.validate_python(amount)
    except ValidationError:
        raise InvalidInput(
            field="cost_usd", reason=f"it is {amount!r}", cure='Give dollars, such as "0.002".'
        ) from None


Reply = str | dict[str, Any] | list[Any] | Answer | ModelFails | Completion
"""A text, JSON data, one of the above, or the Completion of a model in the gateway's process."""
Answering = Callable[[CallRequest], Reply | Awaitable[Reply]]


@dataclass(slots=True)
class Script:
    """The answers of one model, in the order of its calls, or a function that answers all calls."""

    answers: list[Reply] = field(default_factory=list)
    function: Answering | None = None


class PlayedModels:
    """Answers the model calls of one play. `told` is called with each call, `broken` with a fault of the
    test."""

    def __init__(
        self,
        scripts: dict[str, Script],
        recorded: RecordedAnswers | None,
        told: Callable[[PlayedCall], None],
        broken: Callable[[Exception], None],
    ) -> None:
        self._scripts = scripts
        self._recorded = recorded
        self._asked: dict[str, int] = {}
        self._spent_usd: dict[str, Decimal] = {}
        self._told = told
        self._broken = broken

    async def make(
        self,
        request: CallRequest,
        headers: dict[str, str] | None = None,  # noqa: ARG002 - of the protocol
    ) -> CallReply:
        """Answer a call. An error in making its answer is one of the test."""
        request = _read_back(request)
        try:
            return await self._answered(request)
        except Exception as error:
            self._broken(error)
            await asyncio.Event().wait()  # the play ends
            raise

    async def _answered(self, request: CallRequest) -> CallReply:
        reply = await self._next(request)
        begun_ms = now_ms()
        with localcontext(MONEY):  # not in the handler's
            refusal = self._refusal(request, _usd(reply.cost_usd))
        if refusal is not None:
            made = CallReply(call_id=request.call_id, model=request.model, error=refusal)
        else:
            if reply.takes_ms:
                await asyncio.sleep(reply.takes_ms / 1000)
            made = _sendable(request, reply, took_ms=now_ms() - begun_ms)
        self._told(_told_of(request, _read_back(made), begun_ms))
        return _read_back(made)

    def _refusal(self, request: CallRequest, cost_usd: Decimal) -> ErrorInfo | None:
        """Reserve the cost of a call, or return the error if its run, or the one at the top of its tree,
        cannot pay for it.

        What the run had left when the step was dispatched counts, too: its tools may have charged for
        something. No more can be left at the top, as in the gateway (`accounting/spending.py`)."""
        run_id, root = request.attribution.run_id or "", request.root_budget
        limits_usd = {run_id: request.budget_usd}
        if root is not None:
            limits_usd[root.run_id] = root.budget_usd
        for name, limit_usd in limits_usd.items():
            spent_usd = self._spent_usd.get(name, Decimal(0))
            if limit_usd is not None and request.budget_left_usd is not None:
                spent_usd = max(spent_usd, limit_usd - request.budget_left_usd)
            if limit_usd is not None and spent_usd + cost_usd > limit_usd:
                return BudgetExceeded(
                    level="run",
                    name=name,
                    budget_left_usd=str(max(limit_usd - spent_usd, Decimal(0))),
                    limit_usd=limit_usd,
                    expected_usd=cost_usd,
                ).info()
            self._spent_usd[name] = spent_usd
        for name in limits_usd:
            self._spent_usd[name] = self._spent_usd.get(name, Decimal(0)) + cost_usd
        return None

    async def _next(self, request: CallRequest) -> Answer | ModelFails:
        step = request.attribution.step or "(a handler)"
        script = self._scripts.get(request.model)
        if script is None:
            if self._recorded is not None:
                return _as_recorded(self._recorded.take(request))
            raise NotPlayable(
                step=step,
                reason=f"it asks the model `{request.model}`, for which the test has no answers",
                cure=f"Set them: `play.model({request.model!r}, ...)`.",
            )
        if script.function is not None:
            made = script.function(request)
            return _reply(await made if inspect.isawaitable(made) else made)
        number = self._asked.get(request.model, 0)
        self._asked[request.model] = number + 1
        if number >= len(script.answers):
            raise ScriptExhausted(step=step, model=request.model, answers=len(script.answers))
        return _reply(script.answers[number])


def _as_recorded(call: RecordedCall) -> Answer | ModelFails:
    answer = call.answer
    if answer.error is not None:
        return ModelFails(
            answer.error.error_class,
            answer.error.code,
            "The call failed like this when it was recorded.",
            cost_usd=call.cost_usd,
            takes_ms=call.takes_ms,
        )
    return Answer(
        answer.text,
        answer.data,
        cost_usd=call.cost_usd,
        input_tokens=call.input_tokens,
        output_tokens=call.output_tokens,
        takes_ms=call.takes_ms,
        tool_calls=answer.tool_calls,
        finish_reason=answer.finish_reason,
    )


def _reply(given: Reply) -> Answer | ModelFails:
    if isinstance(given, Completion):
        fields = given.model_dump(include=_OF_A_COMPLETION)
        return Answer(**fields)
    if isinstance(given, Answer | ModelFails):
        return given
    return Answer(text=given) if isinstance(given, str) else Answer(data=given)


_OF_A_COMPLETION = {
    "text",
    "data",
    "input_tokens",
    "output_tokens",
    "tool_calls",
    "embeddings",
    "finish_reason",
}


_SENT = ("text", "data", "tool_calls", "finish_reason")
"""The fields of an answer that may hold what is not JSON, such as half a character."""


def _sendable(request: CallRequest, reply: Answer | ModelFails, *, took_ms: float) -> CallReply:
    """Return the reply to a call. Raises InvalidInput for an answer that no gateway can send."""
    for name in _SENT:
        try:
            to_json(getattr(reply, name, None))
        except PydanticSerializationError as error:
            raise InvalidInput(
                field=name,
                reason=f"model `{request.model}` cannot give it, as it is not JSON: {error}",
                cure="Give text of whole characters, and data that JSON has.",
            ) from None
    return _made(request, reply, took_ms=took_ms)


def _made(request: CallRequest, reply: Answer | ModelFails, *, took_ms: float) -> CallReply:
    shared = {
        "call_id": request.call_id,
        "model": request.model,
        "backend": "play",
        "latency_ms": took_ms,
        "cost_usd": _usd(reply.cost_usd),
    }
    if isinstance(reply, ModelFails):
        error_class = ErrorClass(reply.error_class)
        error = ErrorInfo(
            code=reply.code,
            message=reply.message,
            error_class=error_class,
            retryable=error_class in PASSING,
            component="play",
        )
        return CallReply(**shared, error=error)
    text = reply.text
    if reply.data is not None and not text:
        text = to_json(reply.data).decode()
    return CallReply(
        **shared,
        text=text,
        data=reply.data,
        embeddings=tuple(tuple(vector) for vector in reply.embeddings),
        tool_calls=tuple(reply.tool_calls),
        input_tokens=reply.input_tokens,
        output_tokens=reply.output_tokens,
        finish_reason=reply.finish_reason or ("tool_calls" if reply.tool_calls else "stop"),
    )


def _told_of(request: CallRequest, reply: CallReply, begun_ms: float) -> PlayedCall:
    who = request.attribution
    prompt = _prompt(request)
    return PlayedCall(
        step=who.step or "",
        attempt=who.attempt or 0,
        model=request.model,
        prompt=prompt,
        request=request,
        reply=reply,
        at_ms=begun_ms,
    )


def _prompt(request: CallRequest) -> str:
    """Return the text of the last message, whatever the form of the call."""
    if request.messages:
        return request.messages[-1].content
    messages = request.openai.body.get("messages") if request.openai is not None else None
    last = messages[-1] if isinstance(messages, list) and messages else {}
    content = last.get("content") if isinstance(last, dict) else None
    return content if isinstance(content, str) else ""
