"""An OpenAI client for frameworks inside a handler. Its requests go through the context, so that they
carry the run's identity, deadline and budget, and are kept in the step's journal.

It supports chat completions, completions and embeddings; other endpoints answer 404. A streamed answer
arrives in one piece, once the whole answer is there.
"""

from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from pydantic_core import from_json, to_json

from hocket.kit.process.clock import now_ms
from hocket.schemas.checks.plain_json import shown_text
from hocket.schemas.errors import ErrorClass, HocketError, InvalidInput
from hocket.schemas.messages import CallReply
from hocket.schemas.openai.answers import CHAT, EMBEDDINGS, ResponseOptions, usage, whole
from hocket.schemas.openai.failures import failure
from hocket.workers.runtime.journal.errors import JournalFault
from hocket.workers.runtime.models.openai_answers import checked

if TYPE_CHECKING:
    from openai import AsyncOpenAI

BASE_URL = "http://hocket.invalid/v1"
"""A placeholder: nothing is sent there."""
OpenAIPath = Literal["chat/completions", "completions", "embeddings"]
PATHS = frozenset({CHAT, EMBEDDINGS, "completions"})
Ask = Callable[[Any, dict[str, Any]], Awaitable[CallReply]]


class OpenAIMissing(HocketError):
    """The package `openai` is not installed. Install it next to this worker: `pip install openai`."""

    code = "openai_missing"
    error_class = ErrorClass.INVALID


class NoSuchEndpoint(HocketError):
    """`{path}` is not one of the endpoints that handlers have: chat completions, completions and
    embeddings. Set the framework to chat completions."""

    code = "not_found"
    error_class = ErrorClass.INVALID


def client_of(ask: Ask, **options: Any) -> "AsyncOpenAI":
    """Return a client whose requests are answered by `ask`; `options` are those of AsyncOpenAI."""
    if find_spec("openai") is None:
        raise OpenAIMissing
    from openai import AsyncOpenAI

    http: Any
    if find_spec("openai._httpx2") is not None:
        import httpx2 as http
    else:
        import httpx as http  # type: ignore[no-redef,unused-ignore]

    class Transport(http.AsyncBaseTransport):  # type: ignore[misc]
        async def handle_async_request(self, request: Any) -> Any:
            status, headers, body = await _answered(request.url.path, await request.aread(), ask)
            return http.Response(status, headers=headers, content=body)

    defaults = {"api_key": "hocket", "base_url": BASE_URL, "max_retries": 0}
    http_client = http.AsyncClient(transport=Transport())
    return AsyncOpenAI(**{**defaults, **options}, http_client=http_client)


async def _answered(path: str, content: bytes, ask: Ask) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body of the answer to a request."""
    path = path.removeprefix("/v1/").strip("/")
    try:
        if path not in PATHS:
            raise NoSuchEndpoint(path=shown_text(path))
        body = _read(content)
        stream = body.pop("stream", False) is True
        options = body.pop("stream_options", None) or {}
        reply = checked(path, await ask(path, body))
    except JournalFault:
        raise  # the attempt cannot continue
    except HocketError as error:
        failed = failure(error.info(), now_ms())
    else:
        if reply.error is None:
            asked = ResponseOptions(
                path,
                body["model"],
                reply.call_id,
                0,  # so that it is the same in each attempt
                wants_usage=options.get("include_usage") is True,
                packed=body.get("encoding_format") == "base64",
            )
            answer = whole(asked, reply)
            if path == CHAT:
                _give_ids(answer, reply.call_id)
            if stream and path != EMBEDDINGS:
                events = _events(asked, answer, reply)
                return 200, {"content-type": "text/event-stream"}, events
            return 200, _JSON, to_json(answer, inf_nan_mode="null")
        failed = failure(reply.error, now_ms())
    return failed.status, {**_JSON, **failed.headers}, to_json(failed.body)


_JSON = {"content-type": "application/json"}


def _read(content: bytes) -> dict[str, Any]:
    body = from_json(content)
    if not isinstance(body, dict) or not isinstance(body.get("model"), str):
        raise InvalidInput(field="model", reason="it is not text", cure="Name a model.")
    return body


def _give_ids(answer: dict[str, Any], call_id: str) -> None:
    """Give the tool calls of an answer ids that are the same in each attempt: if the model's server left
    them out, frameworks would make up their own."""
    for number, choice in enumerate(answer["choices"]):
        for index, call in enumerate(choice["message"].get("tool_calls") or ()):
            if not call.get("id"):
                call["id"] = f"{call_id}_{number}_{index}"


def _events(asked: ResponseOptions, answer: dict[str, Any], reply: CallReply) -> bytes:
    """Return an answer as an event stream with one piece per choice."""
    kind = "chat.completion.chunk" if asked.path == CHAT else "text_completion"
    shared = {name: answer.get(name) for name in ("id", "created", "model")} | {"object": kind}
    events = []
    for choice in answer["choices"]:
        piece = {k: v for k, v in choice.items() if k not in ("message", "finish_reason")}
        if asked.path == CHAT:
            piece["delta"] = _delta(choice["message"])
        events.append({**shared, "choices": [piece | {"finish_reason": None}]})
        empty: dict[str, Any] = {"delta": {}} if asked.path == CHAT else {"text": ""}
        last = {"index": choice.get("index", 0), **empty}
        last["finish_reason"] = choice.get("finish_reason")
        events.append({**shared, "choices": [last]})
    if asked.wants_usage:
        events.append({**shared, "choices": [], "usage": answer.get("usage") or usage(reply)})
    lines = [b"data: " + to_json(event, inf_nan_mode="null") + b"\n\n" for event in events]
    return b"".join([*lines, b"data: [DONE]\n\n"])


def _delta(message: dict[str, Any]) -> dict[str, Any]:
    calls = message.get("tool_calls")
    if not calls:
        return message
    numbered = [{"index": index, **call} for index, call in enumerate(calls)]
    return {**message, "tool_calls": numbered}
