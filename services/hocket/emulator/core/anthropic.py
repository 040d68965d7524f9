"""Anthropic's Messages API: parses request bodies into work for the engine, and renders its
answers.

After checking what the real API is strict about, a body is read as the equivalent chat completion
(`requests.py`). A prompt is cached up to its last `cache_control`, as long as the engine keeps it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hocket.emulator.core import requests, tokens
from hocket.emulator.core.profile import EngineProfile
from hocket.emulator.core.requests import Generation, RequestInvalid

_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def messages(body: Mapping[str, Any], profile: EngineProfile) -> Generation:
    """Return what a message asks for, or raise RequestInvalid or ModelNotServed."""
    limit = body.get("max_tokens")
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise _wrong("max_tokens", "it is required, a whole number above 0")
    turns = body.get("messages")
    if not isinstance(turns, list) or not turns:
        raise _wrong("messages", "at least one message is required")
    chat: dict[str, Any] = {
        "model": body.get("model"),
        "max_tokens": limit,
        "stream": body.get("stream") is True,
        "stream_options": {"include_usage": True},
        "emulator": body.get("emulator", {}),
    }
    tools = body.get("tools") or []
    if not isinstance(tools, list):
        raise _wrong("tools", "it is not a list")
    if tools:
        chat["tools"] = [_tool(tool, f"tools.{at}") for at, tool in enumerate(tools)]
        chat["tool_choice"] = _tool_choice(body.get("tool_choice"))
    said, marks = _said(body.get("system"), turns)
    made = requests.chat({**chat, "messages": said}, profile)
    if marks:
        marked = requests.chat({**chat, "messages": said[: marks[-1] + 1]}, profile).prompt_tokens
    else:
        marked = tokens.count(json.dumps(chat.get("tools"))) if any(map(_is_marked, tools)) else 0
    return replace(made, marked_tokens=min(marked, made.prompt_tokens))


def _said(system: Any, turns: Sequence[Any]) -> tuple[list[dict[str, Any]], list[int]]:
    """Return the messages of a chat completion, and the positions of those with a cache mark."""
    said: list[dict[str, Any]] = []
    marks: list[int] = []
    if system:
        said.append({"role": "system", "content": _texts(_blocks(system, "system"), "system")})
        marks += [0] if any(map(_is_marked, _blocks(system, "system"))) else []
    called: set[str] = set()
    for at, turn in enumerate(turns):
        where = f"messages.{at}"
        role = turn.get("role") if isinstance(turn, dict) else None
        if role not in ("user", "assistant"):
            raise _wrong(f"{where}.role", "it is neither `user` nor `assistant`")
        blocks = _blocks(turn.get("content"), where)
        called = _check_calls(role, blocks, called, where)
        said += _turn(role, blocks, where)
        marks += [len(said) - 1] if any(map(_is_marked, blocks)) else []
    if called:
        raise _wrong("messages", "the last `tool_use` has no `tool_result`")
    return said, marks


def _check_calls(role: str, blocks: list[dict[str, Any]], called: set[str], where: str) -> set[str]:
    """Return the tool calls of a turn; raise RequestInvalid
    unless it answers those of the turn before."""
    answered = {str(one.get("tool_use_id")) for one in blocks if one["type"] == "tool_result"}
    if answered != called:
        raise _wrong(where, "its `tool_result` blocks are not those of the `tool_use` before")
    found = {str(one.get("id")) for one in blocks if one["type"] == "tool_use"}
    if role == "user" and found:
        raise _wrong(where, "a user's message contains no `tool_use`")
    return found


def _turn(role: str, blocks: list[dict[str, Any]], where: str) -> Iterator[dict[str, Any]]:
    """Yield the messages of one turn, tool results first."""
    for block in blocks:
        if block["type"] == "tool_result":
            content = _texts(_blocks(block.get("content") or "-", where), where)
            yield {"role": "tool", "tool_call_id": block["tool_use_id"], "content": content}
    calls = [block for block in blocks if block["type"] == "tool_use"]
    rest = [block for block in blocks if block["type"] not in ("tool_result", "tool_use")]
    if rest or calls:
        message: dict[str, Any] = {"role": role, "content": _texts(rest, where)}
        if calls:
            message["tool_calls"] = [
                {"function": {"name": one.get("name"), "arguments": json.dumps(one.get("input"))}}
                for one in calls
            ]
        yield message


def _blocks(content: Any, where: str) -> list[dict[str, Any]]:
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if not isinstance(content, list) or not content:
        raise _wrong(f"{where}.content", "it is neither text nor a list of blocks")
    for block in content:
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise _wrong(f"{where}.content", "a block has no `type`")
        if block["type"] == "text" and not block.get("text"):
            raise _wrong(f"{where}.content", "text content blocks must be non-empty")
    return content


def _texts(blocks: Sequence[Mapping[str, Any]], where: str) -> str:
    """Return the text of blocks; any other block is rendered as JSON."""
    found = (one["text"] if one["type"] == "text" else json.dumps(one) for one in blocks)
    try:
        return "".join(found)
    except TypeError as error:
        raise _wrong(f"{where}.content", "a block of type `text` contains no text") from error


def _tool(tool: Any, where: str) -> dict[str, Any]:
    if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
        raise _wrong(where, "it has no `name`")
    schema = tool.get("input_schema")
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise _wrong(f"{where}.input_schema", "it is not a schema of type `object`")
    return {"type": "function", "function": {"name": tool["name"], "parameters": schema}}


def _tool_choice(choice: Any) -> Any:
    if choice is None:
        return "auto"
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind == "tool":
        return {"type": "function", "function": {"name": choice.get("name")}}
    if kind not in _CHOICES:
        raise _wrong("tool_choice.type", "it is not `auto`, `any`, `none` or `tool`")
    return _CHOICES[kind]


def _is_marked(block: Mapping[str, Any]) -> bool:
    return isinstance(block.get("cache_control"), dict)


def _wrong(field: str, reason: str) -> RequestInvalid:
    return RequestInvalid(field=field, reason=reason)


@dataclass(frozen=True, slots=True)
class MessageAnswer:
    """The fields common to every body of one answer."""

    request_id: str
    model: str
    end: bytes = b""

    def whole(self, made: Generation, cached_tokens: int) -> dict[str, Any]:
        """Return the body of a message."""
        block = self._block(made, made.text)
        return {
            **self._head(),
            "content": [block],
            "stop_reason": _STOP_REASONS[made.finish_reason],
            "usage": self._usage(made, cached_tokens, made.output_tokens),
        }

    def first(self, made: Generation, cached_tokens: int) -> Iterator[dict[str, Any]]:
        """Yield the events that open a stream."""
        usage = self._usage(made, cached_tokens, 1)
        message = {**self._head(), "content": [], "stop_reason": None, "usage": usage}
        yield {"type": "message_start", "message": message}
        block = self._block(made, "")
        yield {"type": "content_block_start", "index": 0, "content_block": block}
        yield {"type": "ping"}

    def next(self, made: Generation, text: str) -> dict[str, Any]:
        """Return an event with more text."""
        delta = {"type": "text_delta", "text": text}
        if made.tool is not None:
            delta = {"type": "input_json_delta", "partial_json": text}
        return {"type": "content_block_delta", "index": 0, "delta": delta}

    def last(self, made: Generation, cached_tokens: int) -> Iterator[dict[str, Any]]:
        """Yield the events that end a stream."""
        yield {"type": "content_block_stop", "index": 0}
        delta = {"stop_reason": _STOP_REASONS[made.finish_reason], "stop_sequence": None}
        usage = self._usage(made, cached_tokens, made.output_tokens)
        yield {"type": "message_delta", "delta": delta, "usage": usage}
        yield {"type": "message_stop"}

    def event(self, event: Mapping[str, Any]) -> bytes:
        """Return an encoded event."""
        data = json.dumps(event, separators=(",", ":"))
        return f"event: {event['type']}\ndata: {data}\n\n".encode()

    def _head(self) -> dict[str, Any]:
        head = {"id": f"msg_{self.request_id}", "type": "message", "role": "assistant"}
        return {**head, "model": self.model, "stop_sequence": None}

    def _block(self, made: Generation, text: str) -> dict[str, Any]:
        if made.tool is None:
            return {"type": "text", "text": text}
        return {
            "type": "tool_use",
            "id": f"toolu_{self.request_id}",
            "name": made.tool,
            "input": _object(text),
        }

    def _usage(self, made: Generation, cached_tokens: int, output_tokens: int) -> dict[str, Any]:
        read = min(cached_tokens, made.marked_tokens)
        written = made.marked_tokens - read
        return {
            "input_tokens": made.prompt_tokens - read - written,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": written,
            "output_tokens": output_tokens,
        }


def _object(text: str) -> dict[str, Any]:
    """Return the arguments of a call; empty if they were cut off."""
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
