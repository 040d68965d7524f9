"""Renders the gateway's replies in the format of OpenAI's API, whole or as the chunks of a stream.

Replies of backends that speak the API are passed on unchanged except for the model's name, which is
the one requested; other replies are built here.
"""

from collections.abc import Iterator
from typing import Any, Protocol

from pydantic_core import to_json

from hocket.gateway.backends.protocol import Chunk
from hocket.gateway.core.protocols.json_size import LARGE_BYTES
from hocket.gateway.core.protocols.single_chunk import chunk_of
from hocket.schemas.messages import CallReply
from hocket.schemas.openai.answers import (
    CHAT,
    ResponseOptions,
    finish_reason,
    head,
    usage,
    whole,
)

DONE = b"data: [DONE]\n\n"
MANY_NUMBERS = 100_000
"""An answer with so many numbers of embeddings takes long to be written."""


def takes_long(reply: CallReply) -> bool:
    """Return whether writing an answer would hold up the event loop, as far as its own fields tell."""
    return len(reply.text) > LARGE_BYTES or sum(map(len, reply.embeddings)) >= MANY_NUMBERS


class Answers(Protocol):
    """Renders the answer to one request in the format of its endpoint.

    Either `whole`, or as the events of a stream: `chunk` for each chunk of the backend, then `end`
    with the reply, or `failed`.
    """

    def whole(self, reply: CallReply) -> dict[str, Any]: ...
    def chunk(self, chunk: Chunk) -> bytes: ...
    def end(self, reply: CallReply) -> bytes: ...
    def failed(self, told: dict[str, Any]) -> bytes: ...


class CompletionAnswers:
    """The answer to a request of chat completions, completions or embeddings."""

    def __init__(self, asked: ResponseOptions) -> None:
        self._asked = asked
        self._kind = "chat.completion.chunk" if asked.path == CHAT else "text_completion"
        self._begun = self._as_it_came = self._usage_sent = False
        self._ends_metered = False
        """Whether the latest chunk with content held the usage, as several providers send it."""

    def whole(self, reply: CallReply) -> dict[str, Any]:
        """Return the body of an answer."""
        return whole(self._asked, reply)

    def failed(self, told: dict[str, Any]) -> bytes:
        """Return the event that ends a stream with an error."""
        return _encoded(told)

    def chunk(self, chunk: Chunk) -> bytes:
        """Return the events for a chunk; none if the client did not ask for its content."""
        if chunk.openai is not None:
            if chunk.text:  # usage that was sent before is not that of the answer
                self._usage_sent = False
            return self._passed_on(chunk.openai, is_usage=chunk.is_usage)
        events = [] if self._begun else [self._first()]
        self._begun = True
        if chunk.text:
            events.append(self._event(self._text(chunk.text)))
        return b"".join(events)

    def end(self, reply: CallReply) -> bytes:
        """Return the last events."""
        events: list[bytes] = []
        if not self._begun:  # the chunks went to an earlier caller, or there were none
            event = None if reply.openai is None else chunk_of(reply.openai)
            events.append(self.chunk(Chunk(reply.text, openai=event)))
        if not self._as_it_came:
            events += self._closing(reply)
        if self._asked.wants_usage and not (self._usage_sent or self._ends_metered):
            body = {**head(self._asked, self._kind), "choices": [], "usage": usage(reply)}
            events.append(_encoded(body))
        return b"".join([*events, DONE])

    def _passed_on(self, chunk: dict[str, Any], *, is_usage: bool) -> bytes:
        self._begun = self._as_it_came = True
        if self._asked.wants_usage:
            self._usage_sent |= is_usage
            if chunk.get("choices"):
                self._ends_metered = bool(chunk.get("usage"))
        elif is_usage:
            return b""
        else:
            chunk.pop("usage", None)
        chunk["model"] = self._asked.model
        return _encoded(chunk)

    def _first(self) -> bytes:
        if self._asked.path != CHAT:
            return b""
        return self._event({"delta": {"role": "assistant", "content": ""}})

    def _text(self, text: str) -> dict[str, Any]:
        return {"delta": {"content": text}} if self._asked.path == CHAT else {"text": text}

    def _closing(self, reply: CallReply) -> Iterator[bytes]:
        for index, call in enumerate(reply.tool_calls):
            yield self._event({"delta": {"tool_calls": [{"index": index, **call}]}})
        empty: dict[str, Any] = {"delta": {}} if self._asked.path == CHAT else {"text": ""}
        yield self._event(empty, finish_reason(reply))

    def _event(self, choice: dict[str, Any], reason: str | None = None) -> bytes:
        choices = [{"index": 0, **choice, "logprobs": None, "finish_reason": reason}]
        return _encoded({**head(self._asked, self._kind), "choices": choices})


def _encoded(event: dict[str, Any]) -> bytes:
    return b"data: " + to_json(event, inf_nan_mode="null") + b"\n\n"
