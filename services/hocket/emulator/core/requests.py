"""Parses OpenAI request bodies into what the engine has to do and say.

In addition to OpenAI's fields a body may have `emulator`: `prompt_tokens`, `hash_ids` (the prompt's
blocks, as in traces) and `output_tokens`, which override what the messages and `max_tokens` imply.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hocket.emulator.core import replies, tokens
from hocket.emulator.core.profile import EngineProfile
from hocket.schemas.errors import ErrorClass, HocketError

MAX_TEXTS = 2_048
MAX_TOOLS = 1_024
MAX_CHOICES = 128


class RequestInvalid(HocketError):
    """`{field}` is not valid: {reason}."""

    code = "invalid_request"
    error_class = ErrorClass.INVALID


class ModelNotServed(HocketError):
    """The model `{model}` does not exist; this engine serves `{served}`."""

    code = "model_not_found"
    error_class = ErrorClass.INVALID


@dataclass(frozen=True, slots=True)
class Generation:
    """A chat or legacy completion: one sequence, and the text that it will generate."""

    prompt_tokens: int
    chain: tuple[str, ...]
    text: str
    output_tokens: int
    finish_reason: str
    stream: bool = False
    usage_in_stream: bool = False
    tool: str | None = None
    """The tool that is called, if any; `text` then holds its arguments."""
    marked_tokens: int = 0
    """How much of the prompt, from its start, was marked for caching (Anthropic's API)."""
    choices: int = 1
    """How many times the text is generated."""

    @property
    def made_tokens(self) -> int:
        """The tokens of all choices."""
        return self.output_tokens * self.choices


@dataclass(frozen=True, slots=True)
class Embedding:
    """Texts to turn into vectors; their prompts count together."""

    prompt_tokens: int
    vectors: tuple[tuple[float, ...], ...]
    base64: bool


def chat(body: Mapping[str, Any], profile: EngineProfile) -> Generation:
    """Return what a chat completion asks for, or raise RequestInvalid or ModelNotServed."""
    _check(body, profile)
    messages = _list(body, "messages", minimum=1)
    tools = _list(body, "tools", minimum=0) if body.get("tools") is not None else []
    if len(tools) > MAX_TOOLS:
        raise _wrong("tools", f"more than {MAX_TOOLS}")
    texts = [_rendered(message, f"messages[{at}]") for at, message in enumerate(messages)]
    prompt = "".join([json.dumps(tools) if tools else "", *texts])
    called = _called_tool(body, profile, tools, messages)
    text = called[1] if called is not None else _reply(body, profile, prompt, messages)
    generation = _generation(body, profile, prompt, text)
    if called is None:
        return generation
    cut = generation.finish_reason == "length"
    return replace(generation, tool=called[0], finish_reason="length" if cut else "tool_calls")


def completion(body: Mapping[str, Any], profile: EngineProfile) -> Generation:
    """Return what a legacy completion asks for, or raise RequestInvalid or ModelNotServed."""
    _check(body, profile)
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and not isinstance(prompt[0], int):
        prompt = prompt[0]
    if isinstance(prompt, str):
        said = prompt if profile.reply == "echo" else ""
        text = said or replies.words(prompt, _wanted(body, profile))
        return _generation(body, profile, prompt, text)
    if not _is_ids(prompt):
        raise _wrong("prompt", "it is neither a text nor a list of token ids")
    assert isinstance(prompt, list)
    text = replies.words(repr(prompt), _wanted(body, profile))
    generation = _generation(body, profile, "", text)
    chain = tokens.chain_of_ids(prompt, profile.block_tokens)
    return _sized(replace(generation, prompt_tokens=len(prompt), chain=tuple(chain)), body, profile)


def embedding(body: Mapping[str, Any], profile: EngineProfile) -> Embedding:
    """Return what an embeddings request asks for, or raise RequestInvalid or ModelNotServed."""
    _check(body, profile)
    texts = _inputs(body)
    form = body.get("encoding_format", "float")
    if form not in ("float", "base64"):
        raise _wrong("encoding_format", "it is not `float` or `base64`")
    dimensions = body.get("dimensions", profile.embedding_dimensions)
    if not _is_count(dimensions, 1) or dimensions > 8_192:
        raise _wrong("dimensions", "it is not a whole number from 1 to 8192")
    vectors = (replies.vector(_joined(text), dimensions) for text in texts)
    counts = (tokens.count(text) if isinstance(text, str) else len(text) for text in texts)
    return Embedding(sum(counts), tuple(map(tuple, vectors)), form == "base64")


def _inputs(body: Mapping[str, Any]) -> list[Any]:
    """Return the texts, or lists of token ids, to embed."""
    inputs = body.get("input")
    texts = [inputs] if isinstance(inputs, str) or _is_ids(inputs) else inputs
    if not isinstance(texts, list) or not 1 <= len(texts) <= MAX_TEXTS:
        raise _wrong("input", f"it is neither a text nor a list of 1 to {MAX_TEXTS}")
    if not all(isinstance(text, str) or _is_ids(text) for text in texts):
        raise _wrong("input", "not every item is a text or a list of token ids")
    return texts


def _joined(text: Any) -> str:
    return text if isinstance(text, str) else " ".join(map(str, text))


def _check(body: Mapping[str, Any], profile: EngineProfile) -> None:
    model = body.get("model")
    if not isinstance(model, str):
        raise _wrong("model", "it is not text")
    if model != profile.model:
        raise ModelNotServed(model=model, served=profile.model)
    choices = _choices(body)
    if not _is_count(choices, 1) or choices > MAX_CHOICES:
        raise _wrong("n", f"it is not a whole number from 1 to {MAX_CHOICES}")
    if choices > 1 and body.get("stream"):
        raise _wrong("n", "a stream of this engine has only one choice")


def _choices(body: Mapping[str, Any]) -> Any:
    return 1 if body.get("n") is None else body["n"]


def _rendered(message: Any, where: str) -> str:
    """Return a message roughly as a chat template would render it, for counting and hashing."""
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise _wrong(where, "it is not a message with a `role`")
    calls = message.get("tool_calls")
    return f"<{message['role']}>{_content(message, where)}{json.dumps(calls) if calls else ''}\n"


def _content(message: Mapping[str, Any], where: str) -> str:
    content = message.get("content")
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        return "".join(
            part["text"] if isinstance(part.get("text"), str) else json.dumps(part)
            for part in content
        )
    raise _wrong(f"{where}.content", "it is neither text nor a list of parts")


def _called_tool(
    body: Mapping[str, Any],
    profile: EngineProfile,
    tools: Sequence[Any],
    messages: Sequence[Any],
) -> tuple[str, str] | None:
    """Return name and arguments of the tool to call, or None.

    A tool is called if the request demands one, or if it allows one and fewer than `tool_turns`
    turns have called tools yet.
    """
    choice = body.get("tool_choice", "auto")
    if not tools or choice == "none":
        return None
    if isinstance(choice, dict):
        function = choice.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        called = replies.tool_arguments(tools, name) if isinstance(name, str) else None
        if called is None:
            raise _wrong("tool_choice", "it names no tool of the request")
        return called
    turns = _tool_turns(messages)
    if choice == "required" or turns < profile.tool_turns:
        return replies.tool_arguments(tools[turns % len(tools) :], None)
    return None


def _tool_turns(messages: Sequence[Any]) -> int:
    """Return how many consecutive turns have called tools, if the last message is a tool's."""
    if messages[-1]["role"] != "tool":
        return 0
    turns = 0
    for message in reversed(messages):
        if message["role"] not in ("tool", "assistant"):
            break
        turns += bool(message.get("tool_calls"))
    return max(turns, 1)


def _reply(
    body: Mapping[str, Any], profile: EngineProfile, prompt: str, messages: Sequence[Any]
) -> str:
    wanted = body.get("response_format")
    if isinstance(wanted, dict):
        if wanted.get("type") == "json_object":
            return "{}"
        schema = wanted.get("json_schema")
        if isinstance(schema, dict):
            return replies.json_of(schema.get("schema", {}))
    if profile.reply == "echo":
        said = [m for m in messages if m["role"] == "user"]
        if said and (text := _content(said[-1], "messages")):
            return text
    return replies.words(prompt, _wanted(body, profile))


def _generation(
    body: Mapping[str, Any], profile: EngineProfile, prompt: str, text: str
) -> Generation:
    limit = _limit(body)
    made = tokens.count(text)
    if limit is not None and limit < made:
        text, made, reason = text[: limit * tokens.CHARS_PER_TOKEN], limit, "length"
    else:
        reason = "stop"
    options = body.get("stream_options")
    generation = Generation(
        prompt_tokens=max(tokens.count(prompt), 1),
        chain=tuple(tokens.chain_of_text(prompt, profile.block_tokens)),
        text=text,
        output_tokens=made,
        finish_reason=reason,
        stream=body.get("stream") is True,
        usage_in_stream=isinstance(options, dict) and options.get("include_usage") is True,
        choices=_choices(body),
    )
    return _sized(generation, body, profile)


def _sized(generation: Generation, body: Mapping[str, Any], profile: EngineProfile) -> Generation:
    """Return a generation with the sizes given in `emulator`; raise if it does not fit the model."""
    given = body.get("emulator", {})
    if not isinstance(given, dict):
        raise _wrong("emulator", "it is not an object")
    for name in ("prompt_tokens", "output_tokens"):
        if name in given and not _is_count(given[name], 1):
            raise _wrong(f"emulator.{name}", "it is not a whole number above 0")
    hash_ids = given.get("hash_ids")
    if hash_ids is not None:
        if not isinstance(hash_ids, list):
            raise _wrong("emulator.hash_ids", "it is not a list")
        generation = replace(generation, chain=tuple(map(str, hash_ids)))
    generation = replace(
        generation,
        prompt_tokens=given.get("prompt_tokens", generation.prompt_tokens),
        output_tokens=given.get("output_tokens", generation.output_tokens),
    )
    total = generation.prompt_tokens + generation.output_tokens
    if total > profile.max_model_tokens:
        raise _wrong(
            "messages",
            f"prompt and reply have {total} tokens, the model's context {profile.max_model_tokens}",
        )
    if "output_tokens" in given:  # only now, because a text of any length would take any memory
        generation = replace(generation, text=replies.words("", generation.output_tokens))
    return generation


def _wanted(body: Mapping[str, Any], profile: EngineProfile) -> int:
    limit = _limit(body)
    # one token more than allowed if it would be cut, so that the reply ends with `length`
    return profile.output_tokens if limit is None else min(profile.output_tokens, max(limit, 1) + 1)


def _limit(body: Mapping[str, Any]) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        limit = body.get(name)
        if limit is None:
            continue
        if not _is_count(limit, 1):
            raise _wrong(name, "it is not a whole number above 0")
        return int(limit)
    return None


def _list(body: Mapping[str, Any], name: str, *, minimum: int) -> list[Any]:
    value = body.get(name)
    if not isinstance(value, list) or len(value) < minimum:
        raise _wrong(name, f"it is not a list with at least {minimum} item(s)")
    return value


def _is_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(_is_count(item, 0) for item in value)


def _is_count(value: Any, minimum: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= minimum


def _wrong(field: str, reason: str) -> RequestInvalid:
    return RequestInvalid(field=field, reason=reason)
