"""OpenAI's API as the gateway speaks it: calls as request bodies, replies and chunks as completions.

A call received in OpenAI's format (`request.openai`) is forwarded unchanged except for the model's
name, signed thinking and the limit of a response (Responses API); any other is built from its
messages. `plain` converts the other way, for backends that do not speak the API.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from pydantic_core import to_json

from hocket.gateway.core.calls.prompt import chat_messages
from hocket.gateway.core.calls.request_content import (
    MAX_CHOICES,
    REASONING_CONTENT,
    RESPONSE_LIMIT,
    THINKING_BLOCKS,
    choices,
    most_tokens,
    returned_choices,
    written_tokens,
)
from hocket.gateway.core.protocols.json_size import answer_value, field_at_end
from hocket.gateway.core.protocols.vectors import NO_VECTOR, are_vectors
from hocket.schemas.messages import CallRequest, ChatMessage, Completion

CHAT, COMPLETIONS, EMBEDDINGS = "chat/completions", "completions", "embeddings"
OPENAI_HOST = "api.openai.com"
_AZURE_HOSTS = (".openai.azure.com", ".cognitiveservices.azure.com", ".services.ai.azure.com")
_AZURE_PATH = "/openai/"
"""The beginning of the paths of OpenAI's models; the same hosts have other APIs beside it."""
_AZURE_RENAMED = "2024-09-01"
"""The version of Azure's API since which it takes `max_completion_tokens`; older ones refuse it."""
_STRICT_HOSTS = frozenset({"api.cerebras.ai", "api.groq.com", "api.mistral.ai"})
"""Hosts that refuse a message with `reasoning_content`."""
LimitField = Literal["max_tokens", "max_completion_tokens"]
"""The field in which a server takes the most tokens of an answer."""
BYTES_PER_TOKEN = 4
MAX_CALL_TOKENS = 100_000_000
"""More tokens than any model handles in one call; a larger count is not believed."""
REFUSED = "content_filter"
"""The end of an answer that the model refused to give."""
IDS_AT_ONCE = 10_000
"""How many token ids are made text at a time."""
MAX_TOOL_CALLS = 1_024
"""The most tool calls in one answer, and pieces of them in one chunk of a stream."""
TOO_MANY_CALLS = f"it has more than {MAX_TOOL_CALLS} `tool_calls`"
_CALL_FIELDS = frozenset({"index", "id", "type", "function"})
"""The fields of a tool call in a stream that are put together; others, such as Gemini's signatures
(`extra_content`), are kept as they are, because the next turn must send them back."""
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})


class ReplyUnreadable(Exception):
    """A reply that is no completion; `spent` is what was metered all the same."""

    def __init__(self, reason: str, spent: Completion | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.spent = spent


@dataclass(frozen=True, slots=True)
class Piece:
    """What one chunk of a stream adds; `is_usage` if it holds nothing but usage."""

    text: str
    is_usage: bool = False


# ---- going out ------------------------------------------------------------------------------


def path_of(request: CallRequest) -> str:
    """Return the endpoint of a call, below `/v1/`."""
    if request.openai is not None:
        return request.openai.path
    return EMBEDDINGS if request.embed else CHAT


def limit_field(base_url: str, api_version: str = "") -> LimitField:
    """Return the field in which a server takes the most tokens of an answer, as far as its URL and the
    version of its API (empty if it has none) tell.

    OpenAI's newer models refuse `max_tokens`, and its older ones take its new name as well, also at
    Azure; most other servers know only the old one.
    """
    url = urlsplit(base_url)
    host = url.hostname or ""
    is_openai = host == OPENAI_HOST or host.endswith(f".{OPENAI_HOST}")
    if host.endswith(_AZURE_HOSTS) and url.path.startswith(_AZURE_PATH):
        is_openai = not api_version or api_version >= _AZURE_RENAMED
    return "max_completion_tokens" if is_openai else "max_tokens"


def withheld_fields(base_url: str, passed: Set[str]) -> frozenset[str]:
    """Return the fields of messages that a server does not get, because it refuses those that it does
    not know: as far as its URL tells, and unless they are `passed`."""
    is_strict = urlsplit(base_url).hostname in _STRICT_HOSTS
    names = {THINKING_BLOCKS, REASONING_CONTENT} if is_strict else {THINKING_BLOCKS}
    return frozenset(names - passed)


def outgoing(
    request: CallRequest,
    model: str,
    *,
    stream: bool,
    usage_in_stream: bool = True,
    limit_field: LimitField = "max_tokens",
    withheld: Set[str] = frozenset(),
) -> dict[str, Any]:
    """Return the request body that sends a call to `model`; its messages lack the fields that are
    `withheld`. `limit_field` gets the limit of an answer if the caller, who may speak
    another API than that of the backend, has chosen no name for it."""
    if request.openai is not None:
        body = _as_it_came(request, model, limit_field, withheld)
    else:
        body = _written(request, model, limit_field)
    if not stream:
        body.pop("stream", None)
        body.pop("stream_options", None)
        return body
    body["stream"] = True
    if not usage_in_stream:
        body.pop("stream_options", None)  # refused there; the caller's usage comes from here
    else:
        options = body.get("stream_options")
        given = options if isinstance(options, dict) else {}
        body["stream_options"] = {**given, "include_usage": True}
    return body


def _as_it_came(
    request: CallRequest, model: str, limit_field: LimitField, withheld: Set[str]
) -> dict[str, Any]:
    assert request.openai is not None
    body = {**request.openai.body, "model": model}
    if RESPONSE_LIMIT in body:
        limit = most_tokens(body)
        del body[RESPONSE_LIMIT]
        if limit is not None:
            body.setdefault(limit_field, limit)
    messages = body.get("messages")
    if isinstance(messages, list) and withheld:
        body["messages"] = [_without(message, withheld) for message in messages]
    return body


def _without(message: Any, withheld: Set[str]) -> Any:
    if not isinstance(message, dict) or withheld.isdisjoint(message):
        return message
    return {name: value for name, value in message.items() if name not in withheld}


def _written(request: CallRequest, model: str, limit_field: LimitField) -> dict[str, Any]:
    if request.embed:
        return {"model": model, "input": list(request.embed), "encoding_format": "float"}
    body: dict[str, Any] = {
        "model": model,
        "messages": chat_messages(request.messages, request.documents),
    }
    if request.max_tokens is not None:
        body[limit_field] = request.max_tokens
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.tools:
        body["tools"] = list(request.tools)
    if request.tool_choice is not None:
        body["tool_choice"] = request.tool_choice
    if request.response_schema is not None:
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": "reply", "schema": request.response_schema},
        }
    return body


# ---- coming back ----------------------------------------------------------------------------


def completion(request: CallRequest, reply: dict[str, Any]) -> Completion:
    """Return a reply as a completion, or raise ReplyUnreadable."""
    path = path_of(request)
    used = usage(reply.get("usage"), writes=path != EMBEDDINGS)
    if path == EMBEDDINGS:
        made = _embedded(request, reply, used)
    else:
        made = _chosen(reply, used, chat=path == CHAT)
        if used.estimated and not used.output_tokens:
            written = _written_in(reply, chat=path == CHAT) // BYTES_PER_TOKEN
            made["output_tokens"] = min(written, written_tokens(request, MAX_CALL_TOKENS))
    if request.openai is not None:
        made["openai"] = reply
    elif request.response_schema is not None:
        made["data"] = answer_value(made["text"])
    return used.model_copy(update=made)


def reported_error(body: Mapping[str, Any]) -> Any:
    """Return the error that a reply, or an event of a stream, reports although its status is 200; None
    if it reports none.

    It stands there instead of an answer, or an answer that was broken off ends with it.
    """
    choices = body.get("choices")
    if not choices and "data" not in body:
        return body.get("error")
    first = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(first, dict) or first.get("finish_reason") != "error":
        return None
    return first.get("error") or body.get("error") or "it gives no reason"


def usage(found: Any, *, writes: bool = True) -> Completion:
    """Return the token counts of a reply's `usage`, or raise ReplyUnreadable.

    They are marked as still to be estimated if `usage` is missing, or lacks the input count or (if
    the model `writes`) the output count. Tokens that only the total holds are output.
    """
    if found is None:
        return Completion(estimated=True)
    if not isinstance(found, dict):
        raise ReplyUnreadable("`usage` is not an object")
    details = found.get("prompt_tokens_details")
    details = details if isinstance(details, dict) else {}
    unlisted = _unlisted(found) if writes else 0
    return Completion(
        input_tokens=_count(found, "prompt_tokens"),
        output_tokens=_count(found, "completion_tokens") + unlisted,
        cached_tokens=_count(details, "cached_tokens")
        or _count(found, "cached_tokens"),  # Moonshot
        cache_write_tokens=_count(details, "cache_write_tokens")
        or _count(found, "cache_creation_input_tokens"),  # of a LiteLLM proxy
        estimated=found.get("prompt_tokens") is None
        or (writes and found.get("completion_tokens") is None and not unlisted),
    )


def usage_at_end(request: CallRequest, content: bytes) -> Completion:
    """Return the token counts in a reply that is too large to be read, at whose end they usually
    stand; marked as still to be estimated if they are not there."""
    try:
        return usage(field_at_end(content, "usage"), writes=path_of(request) != EMBEDDINGS)
    except ReplyUnreadable:
        return Completion(estimated=True)


def _unlisted(found: Mapping[str, Any]) -> int:
    """Return the tokens that only `total_tokens` holds.

    xAI and Gemini leave a model's reasoning out of `completion_tokens`, but charge for it as output.
    """
    total = whole_number(found.get("total_tokens"))
    if type(total) is not int or total > MAX_CALL_TOKENS or found.get("prompt_tokens") is None:
        return 0
    return max(total - _count(found, "prompt_tokens") - _count(found, "completion_tokens"), 0)


def _chosen(reply: Mapping[str, Any], used: Completion, *, chat: bool) -> dict[str, Any]:
    try:
        choice = reply["choices"][0]
        message = choice["message"] if chat else choice
        text = _said(message.get("content" if chat else "text"))
        calls = message.get("tool_calls") or ()
        reason = choice.get("finish_reason") or ""
        if refusal := _refused(message):
            text, reason = text or refusal, REFUSED
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        where = "choices[0].message" if chat else "choices[0]"
        raise ReplyUnreadable(f"it has no `{where}`", used) from error
    if not isinstance(text, str) or not isinstance(reason, str):
        raise ReplyUnreadable("the content is not text", used)
    if not _are_objects(calls):
        raise ReplyUnreadable("`tool_calls` is not a list of objects", used)
    return {"text": text, "tool_calls": tuple(calls), "finish_reason": reason}


def _said(content: Any) -> Any:
    """Return the content of a message as text if it comes in parts: Mistral's reasoning models send
    their thinking and their text like this."""
    return content_text(content) if isinstance(content, list) else content or ""


def _refused(message: Mapping[str, Any]) -> str:
    """Return the words with which a model that must answer by a schema refuses to."""
    refusal = message.get("refusal")
    return refusal if isinstance(refusal, str) else ""


def _meters_each_choice(request: CallRequest) -> bool:
    """Tell whether a call wants usage with every chunk, where it is that of the chunk's choice."""
    options = None if request.openai is None else request.openai.body.get("stream_options")
    continuous = isinstance(options, dict) and bool(options.get("continuous_usage_stats"))
    return continuous and choices(request) > 1


def _written_in(reply: Mapping[str, Any], *, chat: bool) -> int:
    """Return the bytes that a model wrote, in all choices of a reply."""
    parts = [part for part in reply["choices"] if isinstance(part, dict)]
    messages = [part.get("message") for part in parts] if chat else parts
    return sum(_written_bytes(one) for one in messages if isinstance(one, dict))


def _written_bytes(message: Mapping[str, Any]) -> int:
    """Return the bytes that a model wrote in a message or a part of one: text (in parts, if the model
    thinks in it), reasoning (which some engines send under both names), a refusal and tool calls."""
    sizes = {
        name: len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        for name in ("content", "text", "refusal", "reasoning", "reasoning_content")
        if isinstance(text := message.get(name), str)
    }
    reasoning = max(sizes.pop("reasoning", 0), sizes.pop("reasoning_content", 0))
    content = message.get("content")
    parts = content if isinstance(content, list) else None
    structured = (message.get("tool_calls"), message.get("function_call"), parts)
    return (
        sum(sizes.values())
        + reasoning
        + sum(len(to_json(one, inf_nan_mode="null")) for one in structured if one)
    )


def _are_objects(values: Any) -> bool:
    return isinstance(values, list | tuple) and all(isinstance(one, dict) for one in values)


def _embedded(request: CallRequest, reply: Mapping[str, Any], used: Completion) -> dict[str, Any]:
    try:
        if request.openai is not None:  # unchanged: numbers, or base64
            assert isinstance(reply["data"], list)
            return {"finish_reason": "stop"}
        items = sorted(reply["data"], key=lambda item: int(item["index"]))
        vectors = tuple(tuple(map(_number, item["embedding"])) for item in items)
    except (KeyError, TypeError, ValueError, OverflowError, AssertionError) as error:
        raise ReplyUnreadable("it has no `data` with embeddings", used) from error
    if not are_vectors(vectors):
        raise ReplyUnreadable(NO_VECTOR, used)
    if len(vectors) != len(request.embed):
        reason = f"{len(vectors)} embeddings for {len(request.embed)} texts"
        raise ReplyUnreadable(reason, used)
    return {"embeddings": vectors, "finish_reason": "stop"}


def whole_number(value: Any) -> Any:
    """Return 5 for 5.0, as which some servers write their counts; other values as they are."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def begins_another(known_id: str, call_id: Any, name: Any) -> bool:
    """Tell whether a delta begins another tool call although its index is that of a known one.

    Gemini and Ollama send parallel calls under one index. A delta with another id but without a name
    goes on with the known call: some engines invent an id for each delta.
    """
    return bool(known_id and call_id and name) and call_id != known_id


def _choice_usage(parts: Sequence[Any]) -> dict[str, Any] | None:
    """Return the usage that stands in a choice instead of its chunk, as in Moonshot's streams."""
    found = parts[0].get("usage") if parts else None
    return found if isinstance(found, dict) else None


def _adds(delta: Mapping[str, Any], written: int) -> bool:
    """Tell whether a delta adds anything to an answer, be it of a kind that is unknown here; a role
    does not."""
    return written > 0 or any(value for name, value in delta.items() if name != "role")


def call_index(delta: Mapping[str, Any]) -> int:
    """Return the index of a tool call in a delta, which some servers leave out or send as text; raise
    TypeError or ValueError."""
    return int(delta.get("index") or 0)


def arguments_text(arguments: Any) -> str:
    """Return a piece of a tool call's arguments; some servers send them whole, as an object. Raise
    TypeError for anything else."""
    if isinstance(arguments, dict):
        return to_json(arguments, inf_nan_mode="null").decode()
    text = arguments or ""
    if not isinstance(text, str):
        raise TypeError("arguments are text")
    return text


_CallKey = tuple[int, int]
"""A tool call of a stream: its index, and its number among those of the stream."""


class Assembly:
    """Assembles the chunks of a stream into a completion."""

    def __init__(self, request: CallRequest) -> None:
        self._request = request
        self._chat = path_of(request) == CHAT
        self._texts: list[str] = []
        self._calls: dict[_CallKey, dict[str, Any]] = {}
        self._arguments: dict[_CallKey, list[str]] = {}
        self._last: dict[int, _CallKey] = {}
        """The latest call at each index."""
        self._reason = ""
        self._is_refused = False
        self._used: Completion | None = None
        self._is_total = not _meters_each_choice(request)
        """Whether usage that was reported is that of the whole answer."""
        self._is_alone = choices(request) == 1
        """Whether a choice is the whole answer."""
        self._expected = returned_choices(request)
        self._most_choices = max(MAX_CHOICES, self._expected)
        """The most choices in one chunk."""
        self._called_at_once = 0
        """The deltas of tool calls in the chunk that is being added."""
        self._finished: set[int] = set()
        """The choices whose finish reason has arrived."""
        self._is_closed = False
        """Whether the stream has said that it is at its end, and nothing was written since."""
        self._open: set[int] = set()
        """The choices that have begun and not ended, as far as usage does not cover them."""
        self._pieces = self._bytes = 0
        self._metered_bytes = 0
        """What was written when usage was reported, which does not count what comes later."""
        self.spoke = False
        """Whether any of the answer has arrived: something written, or a finish reason."""
        self._most_tokens = written_tokens(request, MAX_CALL_TOKENS)

    @property
    def began(self) -> bool:
        """Whether anything was written or metered."""
        return self._pieces > 0 or self._used is not None

    @property
    def settled(self) -> bool:
        """Whether the answer is whole and metered, so that nothing of it is still to come."""
        if self._used is None or self._used.estimated or self._bytes > self._metered_bytes:
            return False
        return self.ended and self._is_total and not self._open

    @property
    def ended(self) -> bool:
        """Whether the answer is whole.

        Its finish reason has arrived; and as many choices as were asked for are finished and no other
        has begun, or the stream has said that it is at its end, as engines that return fewer do.
        """
        if self._is_closed:
            return bool(self._reason)
        all_finished = len(self._finished) >= self._expected and self._open <= self._finished
        return bool(self._reason) and all_finished

    def close(self) -> None:
        """Note that the stream has said that it is at its end."""
        self._is_closed = True

    @property
    def spent(self) -> Completion:
        """The usage of the stream so far.

        At the end of all choices that is what was metered, unless more was written since (on the way,
        engines may meter each choice by itself); before, an estimate from the text, up to the limit
        of the call (at least one token per chunk with content), together with anything metered on
        the way.
        """
        written = min(self._bytes // BYTES_PER_TOKEN, self._most_tokens)
        seen_tokens = max(self._pieces, written)
        if self._used is None:
            return Completion(output_tokens=seen_tokens, estimated=True)
        if self.settled:
            return self._used
        told = max(self._used.output_tokens, seen_tokens)
        return self._used.model_copy(update={"output_tokens": told, "estimated": True})

    def add(self, chunk: Mapping[str, Any]) -> Piece:
        """Add the next chunk and return its piece, or raise ReplyUnreadable."""
        try:
            parts = chunk.get("choices") or ()
            if len(parts) > self._most_choices:
                reason = f"a chunk has more than {self._most_choices} `choices`"
                raise ReplyUnreadable(reason, self.spent)
            is_metered = self._meter(chunk, parts)
            if not parts:
                if chunk.get("usage") is not None:
                    self._open.clear()
                    self._is_total = True
                    self.close()
                return Piece("", is_usage=chunk.get("usage") is not None)
            self._called_at_once = 0
            text = "".join(self._taken(choice) for choice in parts)
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
            raise ReplyUnreadable("a chunk has no `choices`", self.spent) from error
        if is_metered:
            self._metered_bytes = self._bytes
        return Piece(text)

    def completion(self) -> Completion:
        """Return the whole completion."""
        text = "".join(self._texts)
        data = None
        if self._request.response_schema is not None:
            data = answer_value(text)
        return self.spent.model_copy(
            update={
                "text": text,
                "data": data,
                "tool_calls": tuple(self._called(key) for key in sorted(self._calls)),
                "finish_reason": REFUSED if self._is_refused else self._reason,
            }
        )

    def _meter(self, chunk: Mapping[str, Any], parts: Sequence[Any]) -> bool:
        """Note the usage in a chunk; return whether it tells any."""
        metered = chunk.get("usage")
        if metered is None and self._is_alone:
            metered = _choice_usage(parts)
        if metered is None:
            return False
        used = usage(metered)
        if self._used is not None and used.estimated:
            return False  # `{}` tells less than one before
        self._used, self._metered_bytes = used, self._bytes
        return True

    def _taken(self, choice: Mapping[str, Any]) -> str:
        """Add a choice of a chunk; return its text if it is the first choice."""
        delta = choice.get("delta") or {} if self._chat else choice
        refusal = _refused(delta)
        text = _said(delta.get("content" if self._chat else "text")) or refusal
        calls = delta.get("tool_calls") or ()
        if not isinstance(text, str):
            raise ReplyUnreadable("the content is not text", self.spent)
        written = _written_bytes(delta)
        self._pieces += bool(written)
        self._bytes += written
        self.spoke = self.spoke or _adds(delta if self._chat else {}, written)
        index = choice.get("index") or 0
        self._follow(index, is_finished=bool(choice.get("finish_reason")), is_written=bool(written))
        if index != 0:
            return ""
        self._is_refused = self._is_refused or bool(refusal)
        self._take_first(choice, text, calls)
        return text

    def _follow(self, index: int, *, is_finished: bool, is_written: bool) -> None:
        """Note which of the answers are under way, and which have ended."""
        if is_finished:
            self.spoke = True
            self._open.discard(index)
            self._finished.add(index)
        elif is_written:
            self._open.add(index)
            self._is_closed = False

    def _take_first(self, choice: Mapping[str, Any], text: str, calls: Any) -> None:
        self._called_at_once += len(calls)
        if self._called_at_once > MAX_TOOL_CALLS:
            raise ReplyUnreadable(TOO_MANY_CALLS, self.spent)
        for call in calls:
            self._merge(call)
        if text:
            self._texts.append(text)
        reason = choice.get("finish_reason")
        if not isinstance(reason, str | None):
            raise ReplyUnreadable("`finish_reason` is not text", self.spent)
        self._reason = reason or self._reason

    def _merge(self, delta: Mapping[str, Any]) -> None:
        function = delta.get("function") or {}
        key = self._key_of(call_index(delta), delta.get("id"), function.get("name"))
        if key not in self._calls and len(self._calls) >= MAX_TOOL_CALLS:
            raise ReplyUnreadable(TOO_MANY_CALLS, self.spent)
        known = self._calls.setdefault(
            key, {"id": "", "type": "function", "function": {"name": ""}}
        )
        known |= {name: value for name, value in delta.items() if name not in _CALL_FIELDS}
        if delta.get("id"):
            known["id"] = delta["id"]
        known["function"]["name"] = function.get("name") or known["function"]["name"]
        arguments = arguments_text(function.get("arguments"))
        self._arguments.setdefault(key, []).append(arguments)

    def _key_of(self, index: int, call_id: Any, name: Any) -> _CallKey:
        """Return the key of the tool call that a delta belongs to."""
        key = self._last.get(index)
        if key is None or begins_another(self._calls[key]["id"], call_id, name):
            key = self._last[index] = (index, len(self._calls))
        return key

    def _called(self, key: _CallKey) -> dict[str, Any]:
        """Return a complete tool call.

        Its argument pieces are joined only once, because appending each of very many would take
        quadratic time.
        """
        call = self._calls[key]
        function = {**call["function"], "arguments": "".join(self._arguments[key])}
        return {**call, "function": function}


# ---- for those who do not speak it ----------------------------------------------------------


def plain(request: CallRequest) -> CallRequest:
    """Return a call received in OpenAI's format as plain messages, texts and parameters."""
    if request.openai is None:
        return request
    body = request.openai.body
    update: dict[str, Any] = {"openai": None}
    if request.openai.path == EMBEDDINGS:
        update["embed"] = tuple(_texts_of(body.get("input")))
    elif request.openai.path == COMPLETIONS:
        prompts = _texts_of(body.get("prompt"))
        update["messages"] = (ChatMessage(role="user", content="\n".join(prompts)),)
    else:
        update["messages"] = tuple(map(_message, body.get("messages") or ()))
        update["tools"] = tuple(body.get("tools") or ())
        update["tool_choice"] = body.get("tool_choice")
        update["response_schema"] = _wanted_schema(body.get("response_format"))
    update["max_tokens"] = most_tokens(body)
    temperature = body.get("temperature")
    update["temperature"] = temperature if isinstance(temperature, int | float) else None
    return request.model_copy(update=update)


def has_several_prompts(request: CallRequest) -> bool:
    """Return whether a legacy completion has several prompts, each of which wants an answer."""
    if request.openai is None or request.openai.path != COMPLETIONS:
        return False
    return len(_texts_of(request.openai.body.get("prompt"))) > 1


def content_text(content: Any) -> str:
    """Return the text of a message's content: a string itself, or the text of its parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "".join(
        part["text"]
        for part in content
        if isinstance(part, dict) and isinstance(part.get("text"), str)
    )


def _message(message: Mapping[str, Any]) -> ChatMessage:
    role = message.get("role")
    return ChatMessage(
        role=cast(Any, role if role in _ROLES else "user"),
        content=content_text(message.get("content")),
        tool_calls=tuple(message.get("tool_calls") or ()),
        tool_call_id=message.get("tool_call_id"),
    )


def _texts_of(value: Any) -> Sequence[str]:
    """Return the texts of an input that is one text or several; token ids are rendered as numbers."""
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list):
        return ()
    if value and all(isinstance(item, int) for item in value):
        return (_spelled(value),)
    return tuple(
        item if isinstance(item, str) else _spelled(item)
        for item in value
        if isinstance(item, str | list)
    )


def _spelled(ids: list[Any]) -> str:
    """Return token ids as text; a part at a time, so that a thread lets others run."""
    parts = (ids[at : at + IDS_AT_ONCE] for at in range(0, len(ids), IDS_AT_ONCE))
    return " ".join(" ".join(map(str, part)) for part in parts)


def _wanted_schema(response_format: Any) -> dict[str, Any] | None:
    if not isinstance(response_format, dict):
        return None
    if response_format.get("type") == "json_object":
        return {"type": "object"}
    wanted = response_format.get("json_schema")
    schema = wanted.get("schema") if isinstance(wanted, dict) else None
    return schema if isinstance(schema, dict) else None


def _count(found: Mapping[str, Any], name: str) -> int:
    value = whole_number(found.get(name))
    if value is None:
        return 0
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_CALL_TOKENS:
        return value
    raise ReplyUnreadable(f"`usage.{name}` is not a count of tokens")


def _number(value: Any) -> float:
    if not isinstance(value, int | float):
        raise ValueError("an embedding holds numbers")
    return float(value)
