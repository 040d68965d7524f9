"""Renders the gateway's replies in the format of the Responses API, whole or as server-sent events."""

from collections.abc import Iterable
from typing import Any

from pydantic_core import to_json

from hocket.gateway.backends.protocol import Chunk
from hocket.gateway.core.protocols.responses.answer import ResponseHead, whole
from hocket.gateway.core.protocols.responses.stream import Event, ResponseStream
from hocket.schemas.messages import CallReply


class ResponseAnswers:
    """The answer to one request of the Responses API."""

    def __init__(self, head: ResponseHead) -> None:
        self._head = head
        self._stream = ResponseStream(head)

    def whole(self, reply: CallReply) -> dict[str, Any]:
        """Return the body of an answer."""
        return whole(self._head, reply)

    def chunk(self, chunk: Chunk) -> bytes:
        """Return the events for a chunk."""
        return _encoded(self._stream.piece(chunk.text, chunk.openai))

    def end(self, reply: CallReply) -> bytes:
        """Return the last events."""
        return _encoded(self._stream.end(reply))

    def failed(self, told: dict[str, Any]) -> bytes:
        """Return the events that end a stream with an error, given the body of an error answer."""
        return _encoded(self._stream.failed(told["error"]))


def _encoded(events: Iterable[Event]) -> bytes:
    return b"".join(
        b"event: %b\ndata: %b\n\n" % (event["type"].encode(), to_json(event, inf_nan_mode="null"))
        for event in events
    )
