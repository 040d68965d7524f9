"""Replies and pieces of answers as NATS messages."""

import itertools

from hocket.gateway.backends.protocol import Chunk, Chunks
from hocket.gateway.core.errors import ReplyTooLarge, ReplyUnsendable
from hocket.gateway.core.protocols.value_size import least_written
from hocket.kit.nats.bus import Bus
from hocket.schemas.errors import HocketError
from hocket.schemas.messages import CallChunk, CallReply, CallRequest, encoded

MAX_REASON_CHARS = 300
_EMPTY = {
    name: CallReply.model_fields[name].default
    for name in ("text", "data", "embeddings", "tool_calls", "openai")
}
"""The fields of a reply that may be large."""


def encoded_reply(reply: CallReply, limit_bytes: int) -> bytes:
    """Return a reply as a message; one that is too large or not valid JSON is replaced by an error. One
    of which a quick look tells that is not even written, because that would hold up all other calls."""
    error: HocketError
    size = _least_bytes(reply, limit_bytes)
    if size <= limit_bytes:
        try:
            message = encoded(reply)
        except ValueError as failure:  # for example a lone surrogate
            error = ReplyUnsendable(reason=str(failure)[:MAX_REASON_CHARS])
            return _failed(reply, error)
        size = len(message)
        if size <= limit_bytes:
            return message
    return _failed(reply, ReplyTooLarge(size_bytes=size, limit_bytes=limit_bytes))


def _least_bytes(reply: CallReply, enough: int) -> int:
    """Return how many bytes a reply has at least as a message, as far as a quick look tells."""
    least = len("0.0,") * sum(map(len, reply.embeddings))
    fields = (reply.text, reply.openai, reply.data, reply.tool_calls)
    return least + least_written([one for one in fields if one], enough)


def _failed(reply: CallReply, error: HocketError) -> bytes:
    """Return the message with an error in place of a reply's content."""
    return encoded(reply.model_copy(update={**_EMPTY, "error": error.info()}))


def chunk_publisher(bus: Bus, request: CallRequest) -> Chunks | None:
    """Return a function that publishes the pieces of an answer to its caller; None if it wants none."""
    subject = request.chunks_to
    if subject is None:
        return None
    numbers = itertools.count()

    async def publish(chunk: Chunk) -> None:
        if chunk.text:
            piece = CallChunk(call_id=request.call_id, number=next(numbers), text=chunk.text)
            bus.publish_nowait(subject, piece.model_dump_json().encode())

    return publish
