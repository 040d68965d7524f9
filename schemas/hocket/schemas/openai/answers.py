"""The bodies of answers. The answer of a backend that speaks OpenAI's API is passed on unchanged, except
for the model's name, which is the requested one; the answers of other backends are written here."""

import base64
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hocket.schemas.messages import CallReply

CHAT = "chat/completions"
EMBEDDINGS = "embeddings"


@dataclass(frozen=True, slots=True)
class ResponseOptions:
    """What an answer depends on: the endpoint, the requested model name, and the options in the body."""

    path: str
    model: str
    call_id: str
    created_s: int
    wants_usage: bool = False
    packed: bool = False


def whole(asked: ResponseOptions, reply: CallReply) -> dict[str, Any]:
    """Return the body of an answer."""
    if reply.openai is not None:
        return {**reply.openai, "model": asked.model}
    if asked.path == EMBEDDINGS:
        return _embeddings(asked, reply)
    choice: dict[str, Any] = {"index": 0, "finish_reason": finish_reason(reply), "logprobs": None}
    if asked.path == CHAT:
        message: dict[str, Any] = {"role": "assistant", "content": reply.text, "refusal": None}
        if reply.tool_calls:
            message |= {"content": reply.text or None, "tool_calls": list(reply.tool_calls)}
        choice["message"] = message
    else:
        choice["text"] = reply.text
    kind = "chat.completion" if asked.path == CHAT else "text_completion"
    return {**head(asked, kind), "choices": [choice], "usage": usage(reply)}


def head(asked: ResponseOptions, kind: str) -> dict[str, Any]:
    """Return the fields that answers and chunks begin with."""
    return {
        "id": asked.call_id,
        "object": kind,
        "created": asked.created_s,
        "model": asked.model,
    }


def _embeddings(asked: ResponseOptions, reply: CallReply) -> dict[str, Any]:
    data = [
        {"object": "embedding", "index": index, "embedding": _vector(vector, asked.packed)}
        for index, vector in enumerate(reply.embeddings)
    ]
    usage = {"prompt_tokens": reply.input_tokens, "total_tokens": reply.input_tokens}
    return {"object": "list", "data": data, "model": asked.model, "usage": usage}


def _vector(vector: Sequence[float], packed: bool) -> str | Sequence[float]:
    """Return a vector, if `packed` as base64 of little-endian 32-bit floats."""
    if not packed:
        return vector
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


def finish_reason(reply: CallReply) -> str:
    """Return why an answer ended."""
    return reply.finish_reason or ("tool_calls" if reply.tool_calls else "stop")


def usage(reply: CallReply) -> dict[str, Any]:
    """Return the tokens of an answer."""
    return {
        "prompt_tokens": reply.input_tokens,
        "completion_tokens": reply.output_tokens,
        "total_tokens": reply.input_tokens + reply.output_tokens,
        "prompt_tokens_details": {
            "cached_tokens": reply.cached_tokens,
            "cache_write_tokens": reply.cache_write_tokens,
        },
    }
