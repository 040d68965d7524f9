"""OpenAI response bodies and stream chunks."""

import base64
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from hocket.emulator.core.requests import Embedding, Generation


class Speech(Protocol):
    """The answer to one request in the format of the API in use: whole, or as the events of a
    stream, followed by `end`."""

    @property
    def end(self) -> bytes: ...
    def whole(self, made: Generation, cached_tokens: int) -> dict[str, Any]: ...
    def first(self, made: Generation, cached_tokens: int) -> Iterator[dict[str, Any]]: ...
    def next(self, made: Generation, text: str) -> dict[str, Any]: ...
    def last(self, made: Generation, cached_tokens: int) -> Iterator[dict[str, Any]]: ...
    def event(self, event: Mapping[str, Any]) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Answer:
    """The fields common to every body of one answer of OpenAI's API."""

    request_id: str
    model: str
    created_s: int
    chat: bool
    end: bytes = b"data: [DONE]\n\n"

    def whole(self, made: Generation, cached_tokens: int) -> dict[str, Any]:
        """Return the body of a completion."""
        choice: dict[str, Any] = {"finish_reason": made.finish_reason, "logprobs": None}
        if not self.chat:
            choice["text"] = made.text
        elif made.tool is None:
            choice["message"] = {"role": "assistant", "content": made.text, "refusal": None}
        else:
            call = self._tool_call(made.tool, made.text)
            choice["message"] = {"role": "assistant", "content": None, "tool_calls": [call]}
        kind = "chat.completion" if self.chat else "text_completion"
        choices = [{"index": index, **choice} for index in range(made.choices)]
        usage = _usage(made.prompt_tokens, made.made_tokens, cached_tokens)
        return {**self._head(kind), "choices": choices, "usage": usage}

    def first(self, made: Generation, _cached_tokens: int) -> Iterator[dict[str, Any]]:
        """Yield the chunk that opens a stream."""
        if not self.chat:
            yield self._chunk({"text": ""}, None)
        elif made.tool is None:
            yield self._chunk({"delta": {"role": "assistant", "content": ""}}, None)
        else:
            call = {"index": 0, **self._tool_call(made.tool, "")}
            yield self._chunk({"delta": {"role": "assistant", "tool_calls": [call]}}, None)

    def next(self, made: Generation, text: str) -> dict[str, Any]:
        """Return a chunk with more text."""
        if not self.chat:
            return self._chunk({"text": text}, None)
        if made.tool is None:
            return self._chunk({"delta": {"content": text}}, None)
        call = {"index": 0, "function": {"arguments": text}}
        return self._chunk({"delta": {"tool_calls": [call]}}, None)

    def last(self, made: Generation, cached_tokens: int) -> Iterator[dict[str, Any]]:
        """Yield the chunk with the finish reason, and usage if it was requested."""
        empty: dict[str, Any] = {"delta": {}} if self.chat else {"text": ""}
        yield self._chunk(empty, made.finish_reason)
        if made.usage_in_stream:
            usage = _usage(made.prompt_tokens, made.output_tokens, cached_tokens)
            yield {**self._head(self._stream_kind), "choices": [], "usage": usage}

    def event(self, event: Mapping[str, Any]) -> bytes:
        """Return an encoded event."""
        return b"data: " + json.dumps(event, separators=(",", ":")).encode() + b"\n\n"

    @property
    def _stream_kind(self) -> str:
        return "chat.completion.chunk" if self.chat else "text_completion"

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.request_id,
            "object": kind,
            "created": self.created_s,
            "model": self.model,
        }

    def _chunk(self, choice: dict[str, Any], reason: str | None) -> dict[str, Any]:
        choices = [{"index": 0, **choice, "logprobs": None, "finish_reason": reason}]
        return {**self._head(self._stream_kind), "choices": choices}

    def _tool_call(self, name: str, arguments: str) -> dict[str, Any]:
        function = {"name": name, "arguments": arguments}
        return {"id": f"call_{self.request_id}", "type": "function", "function": function}


def embeddings(made: Embedding, model: str) -> dict[str, Any]:
    """Return the body of an embeddings answer."""
    data = [
        {"object": "embedding", "index": index, "embedding": _encoded(vector, made.base64)}
        for index, vector in enumerate(made.vectors)
    ]
    usage = {"prompt_tokens": made.prompt_tokens, "total_tokens": made.prompt_tokens}
    return {"object": "list", "data": data, "model": model, "usage": usage}


def _encoded(vector: Sequence[float], as_base64: bool) -> str | Sequence[float]:
    """Return a vector as numbers, or as base64 of little-endian 32-bit floats, as OpenAI sends them."""
    if not as_base64:
        return vector
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


def _usage(prompt: int, made: int, cached: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": made,
        "total_tokens": prompt + made,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
