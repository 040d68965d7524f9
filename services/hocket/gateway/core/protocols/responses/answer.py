"""Converts a chat completion to a response of OpenAI's Responses API: its items, status and usage.

Items are in the order of the model's work: reasoning, then text, then function calls.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hocket.gateway.core.calls.request_content import REASONING_CONTENT
from hocket.gateway.core.protocols.openai_api import arguments_text, call_index
from hocket.gateway.core.protocols.responses.thinking import sealed
from hocket.schemas.messages import CallReply

EXTRA_CONTENT = "extra_content"
REASONING_FIELD = "reasoning_field"
"""The field of a reasoning item that tells that its backend calls reasoning `reasoning_content`, and so
takes it back: several backends that use another name refuse turns with that."""
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """The fields common to every form of one response: its id, the request, and when it started."""

    call_id: str
    request: Mapping[str, Any]
    created_s: int

    @property
    def tail(self) -> str:
        """The part that all ids of the response share."""
        return "".join(one if one.isalnum() else "_" for one in self.call_id)


def response(
    head: ResponseHead,
    status: str,
    output: Sequence[Mapping[str, Any]] = (),
    usage: Mapping[str, Any] | None = None,
    *,
    incomplete: str | None = None,
    error: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a response with a status; fields that the request left out get the API's defaults."""
    asked = head.request
    reasoning = asked.get("reasoning") or {}
    return {
        "id": f"resp_{head.tail}",
        "object": "response",
        "created_at": head.created_s,
        "status": status,
        "background": False,
        "error": error,
        "incomplete_details": None if incomplete is None else {"reason": incomplete},
        "instructions": asked.get("instructions"),
        "max_output_tokens": asked.get("max_output_tokens"),
        "max_tool_calls": asked.get("max_tool_calls"),
        "metadata": asked.get("metadata") or {},
        "model": asked["model"],
        "output": list(output),
        "parallel_tool_calls": asked.get("parallel_tool_calls") is not False,
        "previous_response_id": None,
        "reasoning": {"effort": reasoning.get("effort"), "summary": None},
        "store": False,
        "temperature": asked.get("temperature"),
        "text": asked.get("text") or {"format": {"type": "text"}},
        "tool_choice": asked.get("tool_choice") or "auto",
        "tools": asked.get("tools") or [],
        "top_p": asked.get("top_p"),
        "truncation": "disabled",
        "usage": usage,
        "user": asked.get("user"),
    }


class Thought(NamedTuple):
    """The thinking in a message or a delta: its text, signed blocks, and what its item has besides."""

    text: str
    blocks: list[dict[str, Any]]
    added: dict[str, Any]


def whole(head: ResponseHead, reply: CallReply) -> dict[str, Any]:
    """Return the complete response to a call."""
    made, reason = list(items(head, reply)), reason_of(reply)
    if incomplete_of(reason) is not None:
        made[-1]["status"] = "incomplete"  # where it was cut off
    return ended(head, made, reply, reason)


def ended(
    head: ResponseHead,
    output: Sequence[Mapping[str, Any]],
    reply: CallReply,
    reason: Any,
    metered: Any = None,
) -> dict[str, Any]:
    """Return the response for known items, complete or incomplete depending on the `reason` for which
    its backend ended it; `metered` is the usage that its stream reported."""
    incomplete = incomplete_of(reason)
    status = "completed" if incomplete is None else "incomplete"
    return response(head, status, output, usage(reply, metered), incomplete=incomplete)


def reason_of(reply: CallReply) -> Any:
    """Return why its backend ended an answer. A reply that holds a refusal says that it was filtered,
    whatever its backend says."""
    choice = _choice(reply.openai)
    return choice.get("finish_reason") if choice else reply.finish_reason


def incomplete_of(reason: Any) -> str | None:
    """Return why an answer is incomplete that its backend ended for a reason; None if it is complete."""
    return _INCOMPLETE.get(reason) if isinstance(reason, str) else None


def items(head: ResponseHead, reply: CallReply) -> Iterator[dict[str, Any]]:
    """Yield the items of a reply."""
    message = _message(reply.openai)
    thought, blocks, added = said_of_thinking(message)
    if thought or blocks:
        yield reasoning_item(head, thought, blocks) | added
    refusal = message.get("refusal")
    if reply.text or refusal or not (reply.tool_calls or thought or blocks):
        refused = refusal if isinstance(refusal, str) and refusal else None
        yield message_item(head, reply.text, refused)
    for number, call in enumerate(reply.tool_calls):
        yield call_item(head, number, *called(call)) | added_to(call)


def said_of_thinking(message: Mapping[str, Any]) -> Thought:
    """Return the thinking in a message or a delta."""
    name = REASONING_CONTENT if message.get(REASONING_CONTENT) else "reasoning"
    text = message.get(name)
    blocks = message.get("thinking_blocks")
    known = [one for one in blocks if isinstance(one, dict)] if isinstance(blocks, list) else []
    if not isinstance(text, str) or not text:
        return Thought("", known, {})
    return Thought(text, known, {REASONING_FIELD: name} if name == REASONING_CONTENT else {})


def called(call: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return id, name and arguments of a function call or a delta of one."""
    function = call.get("function")
    found = function if isinstance(function, dict) else {}
    try:
        arguments = arguments_text(found.get("arguments"))
    except TypeError:
        arguments = ""
    return _text(call.get("id")), _text(found.get("name")), arguments


def index_of(call: Mapping[str, Any]) -> int:
    """Return the index of a function call in a delta; 0 if it makes no sense."""
    try:
        return call_index(call)
    except (TypeError, ValueError, OverflowError):
        return 0


def added_to(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return what its provider adds to a function call, or to an item with one, and must get back:
    Gemini's signatures."""
    added = call.get(EXTRA_CONTENT)
    return {EXTRA_CONTENT: added} if isinstance(added, dict) else {}


def reasoning_item(
    head: ResponseHead, text: str, blocks: list[dict[str, Any]], status: str = "completed"
) -> dict[str, Any]:
    """Return a reasoning item."""
    content = [{"type": "reasoning_text", "text": text}] if text else []
    item = {"id": f"rs_{head.tail}", "type": "reasoning", "summary": [], "status": status}
    return item | {"content": content} | ({"encrypted_content": sealed(blocks)} if blocks else {})


def message_item(
    head: ResponseHead, text: str | None, refusal: str | None = None, status: str = "completed"
) -> dict[str, Any]:
    """Return a message item; without content if text and refusal are both None."""
    content = [] if text is None and refusal is None else [part(text or "", refusal)]
    return {
        "id": f"msg_{head.tail}",
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": content,
    }


def part(text: str, refusal: str | None = None) -> dict[str, Any]:
    """Return a content part of a message."""
    if refusal is not None:
        return {"type": "refusal", "refusal": refusal}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def call_item(
    head: ResponseHead,
    number: int,
    call_id: str,
    name: str,
    arguments: str,
    status: str = "completed",
) -> dict[str, Any]:
    """Return a function call item; a call without an id gets one."""
    return {
        "id": f"fc_{head.tail}_{number}",
        "type": "function_call",
        "status": status,
        "call_id": call_id or f"call_{head.tail}_{number}",
        "name": name,
        "arguments": arguments,
    }


def usage(reply: CallReply, metered: Any = None) -> dict[str, Any]:
    """Return the usage of a call; `metered` is what its stream reported."""
    metered = metered or (reply.openai or {}).get("usage")
    details = metered.get("completion_tokens_details") if isinstance(metered, dict) else None
    thought = details.get("reasoning_tokens") if isinstance(details, dict) else None
    return {
        "input_tokens": reply.input_tokens,
        "input_tokens_details": {
            "cached_tokens": reply.cached_tokens,
            "cache_write_tokens": reply.cache_write_tokens,
        },
        "output_tokens": reply.output_tokens,
        "output_tokens_details": {"reasoning_tokens": thought if type(thought) is int else 0},
        "total_tokens": reply.input_tokens + reply.output_tokens,
    }


def _choice(reply: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the first choice of a chat completion, empty if there is none."""
    choices = (reply or {}).get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else {}


def _message(reply: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the message of a chat completion, empty if there is none."""
    message = _choice(reply).get("message")
    return message if isinstance(message, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
