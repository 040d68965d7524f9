"""What a chat completion said, as a response of OpenAI's Responses API: its items, its state, its usage.

The order of items is what the model did: it thought, it wrote, it called functions.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hocket.gateway.core.protocols.responses.thinking import sealed
from hocket.schemas.messages import CallReply

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """What stands in every form of one response: its id, the request, and when it began."""

    call_id: str
    request: Mapping[str, Any]
    created_s: int

    @property
    def tail(self) -> str:
        """Return the part that all ids of the response have in common."""
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
    """Return a response in a state; what the request left out has the API's defaults."""
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


def whole(head: ResponseHead, reply: CallReply) -> dict[str, Any]:
    """Return the response to a call that was made."""
    return ended(head, list(items(head, reply)), reply)


def ended(
    head: ResponseHead, output: Sequence[Mapping[str, Any]], reply: CallReply
) -> dict[str, Any]:
    """Return the response whose items are known, complete or not as its call ended."""
    incomplete = _INCOMPLETE.get(reply.finish_reason)
    status = "completed" if incomplete is None else "incomplete"
    return response(head, status, output, usage(reply), incomplete=incomplete)


def items(head: ResponseHead, reply: CallReply) -> Iterator[dict[str, Any]]:
    """Yield the items of a reply."""
    message = _message(reply.openai)
    thought, blocks = said_of_thinking(message)
    if thought or blocks:
        yield reasoning_item(head, thought, blocks)
    refusal = message.get("refusal")
    if reply.text or refusal or not reply.tool_calls:
        refused = refusal if isinstance(refusal, str) and refusal else None
        yield message_item(head, reply.text, refused)
    for number, call in enumerate(reply.tool_calls):
        yield call_item(head, number, *called(call))


def said_of_thinking(message: Mapping[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    """Return what a message, or a piece of one, says of thoughts: their text, and signed blocks."""
    text = message.get("reasoning_content") or message.get("reasoning")
    blocks = message.get("thinking_blocks")
    known = [one for one in blocks if isinstance(one, dict)] if isinstance(blocks, list) else []
    return text if isinstance(text, str) else "", known


def called(call: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return id, name and arguments of a call, or of a piece of one."""
    function = call.get("function")
    found = function if isinstance(function, dict) else {}
    return _text(call.get("id")), _text(found.get("name")), _text(found.get("arguments"))


def reasoning_item(
    head: ResponseHead, text: str, blocks: list[dict[str, Any]], status: str = "completed"
) -> dict[str, Any]:
    """Return what was thought, as an item."""
    content = [{"type": "reasoning_text", "text": text}] if text else []
    item = {"id": f"rs_{head.tail}", "type": "reasoning", "summary": [], "status": status}
    return item | {"content": content} | ({"encrypted_content": sealed(blocks)} if blocks else {})


def message_item(
    head: ResponseHead, text: str | None, refusal: str | None = None, status: str = "completed"
) -> dict[str, Any]:
    """Return what was written, as an item; without content where both are None."""
    content = [] if text is None and refusal is None else [part(text or "", refusal)]
    return {
        "id": f"msg_{head.tail}",
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": content,
    }


def part(text: str, refusal: str | None = None) -> dict[str, Any]:
    """Return the content of a message."""
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
    """Return a call of a function, as an item; one without an id gets one."""
    return {
        "id": f"fc_{head.tail}_{number}",
        "type": "function_call",
        "status": status,
        "call_id": call_id or f"call_{head.tail}_{number}",
        "name": name,
        "arguments": arguments,
    }


def usage(reply: CallReply) -> dict[str, Any]:
    """Return what a call used."""
    metered = (reply.openai or {}).get("usage")
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


def _message(reply: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the message of a whole chat completion; an empty one where there is none."""
    choices = (reply or {}).get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    return message if isinstance(message, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
