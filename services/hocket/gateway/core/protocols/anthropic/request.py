"""Converts a chat completion of OpenAI's API to a request of Anthropic's Messages API. Pure.

System and developer messages become `system`, tool results become `tool_result` blocks of the
user's turn, and a requested JSON schema becomes a tool that must be called (`AnswerTool`).
`cache_control` is forwarded from wherever it occurs. A field without a counterpart raises
NotTranslatable if it would change the answer; fields that only tune it (`seed`, `logit_bias` ...)
are dropped.
"""

import json
import re
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from hocket.gateway.core.calls.body_fields import CACHE_CONTROL, lives_longer
from hocket.gateway.core.calls.request_content import (
    WORST_OUTPUT_TOKENS,
    most_tokens,
    thinking_tokens,
)
from hocket.schemas.checks.plain_json import parse_json
from hocket.schemas.errors import InvalidInput

DEFAULT_MAX_TOKENS = WORST_OUTPUT_TOKENS
"""The limit on the answer, without its thinking, if the call sets none; Anthropic requires one."""
ANSWER_TOOL = "answer"
_WRAPPED = "value"
_DEFINITIONS = ("$defs", "definitions")
_TO_ROOT = re.compile(rf"#(?:$|/(?!(?:{'|'.join(map(re.escape, _DEFINITIONS))})(?:/|$)))")
"""A reference within a schema to anything but one of its definitions."""
_NAMED_SCHEMAS = frozenset({*_DEFINITIONS, "dependentSchemas", "patternProperties", "properties"})
"""Fields of a schema that hold schemas by name."""
_VALUES = frozenset({"const", "default", "enum", "examples"})
"""Fields of a schema that hold values."""
_TOOL_ID = re.compile(r"[^a-zA-Z0-9_-]")
_PDF = "application/pdf"
_DATA_URL = re.compile(
    r"data:([a-z]+/[a-z0-9.+-]{1,127})(?:;charset=[a-z0-9-]{1,40})?;base64,",
    re.ASCII | re.IGNORECASE,
)
_UNTRANSLATABLE = {
    "n": "it returns only one answer",
    "logprobs": "it returns no probabilities",
    "top_logprobs": "it returns no probabilities",
    "audio": "it produces no sound",
    "functions": "write them as `tools`",
    "function_call": "write it as `tool_choice`",
}
_LEGACY_ONLY = {
    "best_of": "it returns only one answer",
    "echo": "it does not repeat the prompt",
    "suffix": "it does not insert text",
}
_THOUGHT = {
    "thinking": ("type", "thinking", "signature"),
    "redacted_thinking": ("type", "data"),
}
"""The thinking blocks and their fields. Other fields are not forwarded: a provider's tool, or a
longer cache lifetime, would cost more than is booked."""
_EFFORTS = {
    "none": None,
    "minimal": "low",
    **{effort: effort for effort in ("low", "medium", "high", "xhigh", "max")},
}
"""The efforts of both APIs. Anthropic's has no word for `none`: without `thinking`, its models do not
think."""
_UNSET_EFFORTS = (None, "", "auto", "default", "disable")
"""What callers and LiteLLM write for the model's own effort, or for none. OpenAI has no such words."""
_OUTPUT = "output_config"


class NotTranslatable(Exception):
    """A field of a call that the Messages API has nothing for."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(field, reason)
        self.field = field
        self.reason = reason


@dataclass(frozen=True, slots=True)
class AnswerTool:
    """The tool that a model calls to answer in a schema.

    `wrapped` means that the answer is not an object and is held in a field of one.
    """

    name: str
    wrapped: bool


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request body, and the tool that carries its answer, if any."""

    body: dict[str, Any]
    answer_tool: AnswerTool | None


def outgoing(body: Mapping[str, Any], pass_fields: frozenset[str], *, stream: bool) -> Outgoing:
    """Return the Messages request for the body of a chat completion; raise NotTranslatable."""
    _check(body)
    marks = _CacheMarks(CACHE_CONTROL in pass_fields)
    system, messages = _messages(body.get("messages") or (), marks)
    made: dict[str, Any] = {
        "model": body["model"],
        "max_tokens": most_tokens(body) or thinking_tokens(body) + DEFAULT_MAX_TOKENS,
        "messages": messages,
    }
    if system:
        made["system"] = system
    made |= {name: body[name] for name in _AS_THEY_ARE if body.get(name) is not None}
    made |= _renamed(body) | _output(body, passes=_OUTPUT in pass_fields)
    tools, answer_tool = _tools(body, marks, thinks=_thinks(made.get("thinking")))
    made |= tools
    for name in pass_fields - _TRANSLATED:
        if name in body:
            made.setdefault(name, body[name])
    if stream:
        made["stream"] = True
    return Outgoing(made, answer_tool)


def as_chat(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of a legacy completion as that of a chat completion; raise NotTranslatable."""
    for name, reason in _LEGACY_ONLY.items():
        if body.get(name) not in (None, False, "") and (name, body[name]) != ("best_of", 1):
            raise NotTranslatable(name, reason)
    prompt = body.get("prompt")
    prompts = prompt if isinstance(prompt, list) else [prompt]
    if len(prompts) != 1 or not isinstance(prompts[0], str):
        raise NotTranslatable("prompt", "it takes one text, and no token ids")
    kept = {name: value for name, value in body.items() if name not in ("prompt", *_LEGACY_ONLY)}
    return kept | {"messages": [{"role": "user", "content": prompts[0]}]}


def _thinks(thinking: Any) -> bool:
    """Return whether a call enables thinking."""
    return isinstance(thinking, dict) and thinking.get("type") != "disabled"


_ANSWER_BY = "Give your answer by calling this tool."
_AS_THEY_ARE = ("temperature", "top_p", "top_k", "thinking")
_TRANSLATED = frozenset(
    """
    max_completion_tokens messages metadata model parallel_tool_calls reasoning_effort response_format
    safety_identifier stop stream stream_options tool_choice tools user
    """.split()
)
"""Fields of a chat completion that the request holds under other names."""


def _check(body: Mapping[str, Any]) -> None:
    for name, reason in _UNTRANSLATABLE.items():
        if body.get(name) not in (None, False, 0, "none", [], {}) and (name, body[name]) != (
            "n",
            1,
        ):
            raise NotTranslatable(name, reason)
    modalities = body.get("modalities")
    if isinstance(modalities, list) and modalities not in ([], ["text"]):
        raise NotTranslatable("modalities", "it answers in text only")


def _renamed(body: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    stop = body.get("stop")
    if stop:
        made["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    user = body.get("safety_identifier") or body.get("user")
    if isinstance(user, str):
        made["metadata"] = {"user_id": user}
    return made


def _output(body: Mapping[str, Any], *, passes: bool) -> dict[str, Any]:
    """Return the field for the effort. If the backend takes its own (`passes`), an effort that is not
    known goes there as it is, unless the call has that field itself."""
    wanted = body.get("reasoning_effort")
    if wanted in _UNSET_EFFORTS:
        return {}
    if isinstance(wanted, str) and wanted in _EFFORTS:
        effort = _EFFORTS[wanted]
    elif not passes:
        raise NotTranslatable("reasoning_effort", f"it is not one of {', '.join(_EFFORTS)}")
    else:
        effort = None if _OUTPUT in body else wanted
    return {} if effort is None else {_OUTPUT: {"effort": effort}}


# ---- messages -------------------------------------------------------------------------------


class _CacheMarks:
    """The `cache_control` of blocks.

    A longer lifetime than the default costs more, so it is forwarded only if the backend allows it.
    """

    def __init__(self, any_life: bool) -> None:
        self._any_life = any_life

    def of(self, holder: Mapping[str, Any], where: str) -> dict[str, Any]:
        """Return the cache mark of a block as a field, empty if there is none."""
        mark = holder.get(CACHE_CONTROL)
        if not isinstance(mark, dict):
            return {}
        if lives_longer(mark) and not self._any_life:
            reason = f"it costs more; name `{CACHE_CONTROL}` in the backend's `pass_fields`"
            raise NotTranslatable(f"{where}.{CACHE_CONTROL}.ttl", reason)
        return {CACHE_CONTROL: mark}


def _messages(
    messages: Sequence[Mapping[str, Any]], marks: _CacheMarks
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the system blocks and the turns; adjacent messages of one role become one turn."""
    system: list[dict[str, Any]] = []
    turns: list[dict[str, Any]] = []
    for at, message in enumerate(messages):
        where, role = f"messages[{at}]", message.get("role")
        if role in ("system", "developer"):
            system += _blocks(message, where, marks)
            continue
        if role == "function":
            raise NotTranslatable(f"{where}.role", "write it as a message of a `tool`")
        if role == "tool":
            turn, blocks = "user", [_tool_result(message, where, marks)]
        elif role == "assistant":
            turn, blocks = "assistant", list(_assistant(message, where, marks))
        else:
            turn, blocks = "user", _blocks(message, where, marks)
        if not blocks:
            continue  # the API refuses empty turns
        if turns and turns[-1]["role"] == turn:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": turn, "content": blocks})
    return system, turns


def _assistant(
    message: Mapping[str, Any], where: str, marks: _CacheMarks
) -> Iterator[dict[str, Any]]:
    thought = message.get("thinking_blocks")
    for block in thought if isinstance(thought, list) else ():
        fields = _THOUGHT.get(str(block.get("type")), ()) if isinstance(block, dict) else ()
        if fields:
            yield {name: block[name] for name in fields if name in block}
    yield from _said(message, where, marks)
    for call in message.get("tool_calls") or ():
        function = call.get("function")
        if not isinstance(function, dict):
            raise NotTranslatable(f"{where}.tool_calls", "only functions can be called")
        yield {
            "type": "tool_use",
            "id": _tool_id(call.get("id")),
            "name": str(function.get("name", "")),
            "input": _arguments(function.get("arguments")),
        } | marks.of(call, where)


def _said(message: Mapping[str, Any], where: str, marks: _CacheMarks) -> list[dict[str, Any]]:
    """Return the blocks of what an assistant said: an answer, a refusal in its place, or both. Some
    callers write the refusal in both places."""
    blocks = _blocks(message, where, marks)
    refusal = message.get("refusal")
    if isinstance(refusal, str) and all(block.get("text") != refusal for block in blocks):
        refused = {"content": refusal} if blocks else {**message, "content": refusal}
        blocks += _blocks(refused, where, marks)
    return blocks


def _arguments(text: Any) -> dict[str, Any]:
    """Return the arguments of a tool call as an object; anything else is wrapped in one."""
    if not text:
        return {}
    try:
        value = parse_json(text) if isinstance(text, str) else text
    except InvalidInput:  # not JSON, or not safe to forward
        value = text
    return value if isinstance(value, dict) else {"arguments": value}


def _tool_result(message: Mapping[str, Any], where: str, marks: _CacheMarks) -> dict[str, Any]:
    result: dict[str, Any] = {
        "type": "tool_result",
        "tool_use_id": _tool_id(message.get("tool_call_id")),
    }
    content = message.get("content")
    if isinstance(content, str):
        return result | {"content": content} | marks.of(message, where)
    return (
        result | {"content": _blocks({"content": content}, where, marks)} | marks.of(message, where)
    )


def _tool_id(value: Any) -> str:
    """Return an id with characters that Anthropic does not allow replaced."""
    return _TOOL_ID.sub("_", str(value or ""))


def _blocks(message: Mapping[str, Any], where: str, marks: _CacheMarks) -> list[dict[str, Any]]:
    """Return the blocks of a message. The API refuses text of nothing but white space, as models write
    before they call a tool."""
    content = message.get("content")
    if isinstance(content, str):
        text = {"type": "text", "text": content} | marks.of(message, where)
        return [text] if content.strip() else []
    if not isinstance(content, list):
        return []
    blocks = [
        _part(part, f"{where}.content[{at}]") | marks.of(part, f"{where}.content[{at}]")
        for at, part in enumerate(content)
        if isinstance(part, dict) and not _is_blank(part.get("text"))
    ]
    if blocks:
        blocks[-1] |= marks.of(message, where)
    return blocks


def _is_blank(text: Any) -> bool:
    return isinstance(text, str) and not text.strip()


def _part(part: Mapping[str, Any], where: str) -> dict[str, Any]:
    kind = part.get("type")
    if kind == "text" or (kind == "refusal" and isinstance(part.get("refusal"), str)):
        return {"type": "text", "text": str(part.get("text", part.get("refusal")))}
    if kind == "image_url":
        given = part.get("image_url")
        url = given.get("url") if isinstance(given, dict) else given
        return {"type": "image", "source": _source(url, where)}
    if kind == "file":
        file = part.get("file")
        data = file.get("file_data") if isinstance(file, dict) else None
        return {"type": "document", "source": _document(_source(data, where), where)}
    raise NotTranslatable(where, f"a part of type `{str(kind)[:40]}` has no counterpart")


def _source(url: Any, where: str) -> dict[str, Any]:
    if not isinstance(url, str):
        raise NotTranslatable(where, "it holds neither a URL nor the content of a file")
    data = _DATA_URL.match(url)
    if data is None:
        return {"type": "url", "url": url}
    return {"type": "base64", "media_type": data[1].lower(), "data": url[data.end() :]}


def _document(source: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the source of a file for a document: the API takes base64 only of a PDF, and text as it
    is."""
    kind = source.get("media_type", _PDF)
    if kind == _PDF:
        return source
    if not kind.startswith("text/"):
        raise NotTranslatable(where, f"a file of type `{kind[:40]}` has no counterpart")
    try:
        text = b64decode(source["data"], validate=True).decode()
    except ValueError as error:
        raise NotTranslatable(where, "the text of the file is not UTF-8 in base64") from error
    return {"type": "text", "media_type": "text/plain", "data": text}


# ---- tools and schemas ----------------------------------------------------------------------


def _tools(
    body: Mapping[str, Any], marks: _CacheMarks, *, thinks: bool
) -> tuple[dict[str, Any], AnswerTool | None]:
    """Return the fields about tools, and the answer tool, if there is one."""
    tools = [_tool(tool, f"tools[{at}]", marks) for at, tool in enumerate(_given_tools(body))]
    choice = _tool_choice(body.get("tool_choice")) if tools else None
    names = {tool["name"] for tool in tools}
    demands_tool = choice is not None and choice["type"] in ("tool", "any")  # and no answer now
    answer = None if demands_tool else _answer_tool(body.get("response_format"), names)
    if answer is not None:
        tool, schema = answer
        tools.append({"name": tool.name, "description": _ANSWER_BY, "input_schema": schema})
        alone = len(tools) == 1 or choice == {"type": "none"}
        choice = _answer_choice(tool, alone=alone, thinks=thinks)
    one_at_a_time = body.get("parallel_tool_calls") is False
    fields = _tool_fields(tools, choice, one_at_a_time) or _fields_of_called(body)
    return fields, None if answer is None else answer[0]


def _given_tools(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    given = body.get("tools") or []
    if not isinstance(given, list) or not all(isinstance(tool, dict) for tool in given):
        raise NotTranslatable("tools", "it is not a list of tools")  # of a legacy completion
    return given


def _fields_of_called(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the functions that earlier turns called, as tools: the API refuses a conversation with
    calls, but without tools."""
    turns = (turn for turn in body.get("messages") or () if turn.get("role") == "assistant")
    calls = (call for turn in turns for call in turn.get("tool_calls") or ())
    names = dict.fromkeys(str(call["function"].get("name", "")) for call in calls)
    tools = [{"name": name, "input_schema": _object(None)} for name in names]
    return _tool_fields(tools, {"type": "none"}, one_at_a_time=False)


def _tool_fields(
    tools: list[dict[str, Any]], choice: dict[str, Any] | None, one_at_a_time: bool
) -> dict[str, Any]:
    if not tools:
        return {}
    if one_at_a_time and choice != {"type": "none"}:
        choice = {**(choice or {"type": "auto"}), "disable_parallel_tool_use": True}
    return {"tools": tools} | ({} if choice is None else {"tool_choice": choice})


def _tool(tool: Mapping[str, Any], where: str, marks: _CacheMarks) -> dict[str, Any]:
    function = tool.get("function")
    if tool.get("type", "function") != "function" or not isinstance(function, dict):
        raise NotTranslatable(f"{where}.type", "only functions can be tools")
    parameters = function.get("parameters")
    made = {"name": str(function.get("name", "")), "input_schema": _object(parameters)}
    if isinstance(function.get("description"), str):
        made["description"] = function["description"]
    return made | (marks.of(tool, where) or marks.of(function, where))


def _object(schema: Any) -> dict[str, Any]:
    if not isinstance(schema, dict):
        return {"type": "object", "properties": {}}
    return schema if schema.get("type") == "object" else {**schema, "type": "object"}


def _tool_choice(choice: Any) -> dict[str, Any] | None:
    if isinstance(choice, dict):
        function = choice.get("function")
        if not isinstance(function, dict):
            raise NotTranslatable("tool_choice", "only a function can be chosen")
        return {"type": "tool", "name": str(function.get("name", ""))}
    named = {"auto": "auto", "required": "any", "none": "none"}.get(str(choice))
    return None if named is None else {"type": named}


def _answer_tool(wanted: Any, taken: set[str]) -> tuple[AnswerTool, dict[str, Any]] | None:
    """Return the tool for a requested response format, and its schema;
    None if plain text is requested."""
    if not isinstance(wanted, dict) or wanted.get("type") not in ("json_schema", "json_object"):
        return None
    form = wanted.get("json_schema")
    schema = form.get("schema") if isinstance(form, dict) else None
    name = ANSWER_TOOL
    while name in taken:
        name += "_"
    if not isinstance(schema, dict):
        return AnswerTool(name, wrapped=False), {"type": "object", "properties": {}}
    if schema.get("type") == "object" or ("type" not in schema and "properties" in schema):
        return AnswerTool(name, wrapped=False), _object(schema)
    schema = _moved(schema)
    inner = {key: value for key, value in schema.items() if key not in _DEFINITIONS}
    outer = {key: value for key, value in schema.items() if key in _DEFINITIONS}
    wrapper = {"type": "object", "properties": {_WRAPPED: inner}, "required": [_WRAPPED]}
    return AnswerTool(name, wrapped=True), wrapper | outer


def _moved(schema: Any) -> Any:
    """Return a schema whose references to its root, and to parts of it that are no definitions, name
    the place that it has in the wrapper."""
    if isinstance(schema, list):
        return [_moved(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    moved = {key: _moved_field(key, one) for key, one in schema.items()}
    to = schema.get("$ref")
    if isinstance(to, str) and _TO_ROOT.match(unquote(to)):
        moved["$ref"] = f"#/properties/{_WRAPPED}{to[1:]}"
    return moved


def _moved_field(key: str, value: Any) -> Any:
    if key in _VALUES:
        return value
    if key in _NAMED_SCHEMAS and isinstance(value, dict):
        return {name: _moved(schema) for name, schema in value.items()}
    return _moved(value)


def _answer_choice(tool: AnswerTool, *, alone: bool, thinks: bool) -> dict[str, Any]:
    """Return the tool choice that makes a model answer through the tool; with thinking enabled, a
    call cannot be forced."""
    if thinks:
        return {"type": "auto"}
    return {"type": "tool", "name": tool.name} if alone else {"type": "any"}


def answer_text(tool: AnswerTool, arguments: Any) -> str:
    """Return the answer in the arguments of the answer tool, as JSON; empty if the wrapper has none,
    because it was cut off before."""
    if tool.wrapped and isinstance(arguments, dict):
        if _WRAPPED not in arguments:
            return ""
        arguments = arguments[_WRAPPED]
    return json.dumps(arguments, ensure_ascii=False)
