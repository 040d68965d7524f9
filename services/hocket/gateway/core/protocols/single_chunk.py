"""A whole reply of OpenAI's API as the one chunk of a stream, for endpoints that stream nothing; and
what chunks say that a reply put together from them does not.

Every choice is kept, with its reasoning, its refusal and its tool calls.
"""

from collections.abc import Mapping
from typing import Any

CHUNK = "chat.completion.chunk"


def chunk_of(reply: Mapping[str, Any]) -> dict[str, Any]:
    """Return the chunk, without usage, for a reply that was read as a completion."""
    chunk = {name: value for name, value in reply.items() if name != "usage"}
    if chunk.get("object") == "chat.completion":
        chunk["object"] = CHUNK
    choices = [choice for choice in reply["choices"] if isinstance(choice, dict)]
    return chunk | {"choices": [_piece(number, choice) for number, choice in enumerate(choices)]}


def _piece(number: int, choice: Mapping[str, Any]) -> dict[str, Any]:
    piece = dict(choice)
    if piece.get("index") is None:
        piece["index"] = number
    message = piece.pop("message", None)
    return piece | {"delta": _delta(message)} if isinstance(message, dict) else piece


def _delta(message: Mapping[str, Any]) -> dict[str, Any]:
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return dict(message)
    numbered = [{**call, "index": at} for at, call in enumerate(calls) if isinstance(call, dict)]
    return {**message, "tool_calls": numbered}


_PLAIN = frozenset({"role", "content", "tool_calls"})
"""The fields of a delta that a reply has, too, which is put together from a stream."""


def says_more(chunk: Mapping[str, Any]) -> bool:
    """Tell whether a chunk of a stream says what a reply does not that is put together from its text and
    tool calls: reasoning, a refusal, probabilities, or other choices than the first."""
    choices = chunk.get("choices")
    return any(
        isinstance(choice, dict) and _has_more(choice)
        for choice in (choices if isinstance(choices, list) else ())
    )


def _has_more(choice: Mapping[str, Any]) -> bool:
    delta = choice.get("delta")
    fields = delta if isinstance(delta, dict) else {}
    is_text = isinstance(fields.get("content"), str | None)
    more = any(value for name, value in fields.items() if name not in _PLAIN)
    return bool(choice.get("index") or choice.get("logprobs") or more or not is_text)
