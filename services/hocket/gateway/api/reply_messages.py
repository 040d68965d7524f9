"""Replies and pieces of answers as NATS messages."""

import itertools

from hocket.gateway.backends.protocol import Chunk, Chunks
from hocket.gateway.core.errors import ReplyTooLarge, ReplyUnsendable
from hocket.gateway.core.protocols.value_size import estimated, held_if_short, least_written
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
    that is surely too large is not even written, because that would hold up all other calls."""
    error: HocketError
    size = _size_if_too_large(reply, limit_bytes)
    if size == 0:
        try:
            message = encoded(reply)
        except ValueError as failure:  # for example a lone surrogate
            error = ReplyUnsendable(reason=str(failure)[:MAX_REASON_CHARS])
            return _failed(reply, error)
        size = len(message)
        if size <= limit_bytes:
            return message
    return _failed(reply, ReplyTooLarge(size_bytes=size, limit_bytes=limit_bytes))


def _size_if_too_large(reply: CallReply, limit_bytes: int) -> int:
    """Return roughly how many bytes a reply has, if it is surely larger than the limit; otherwise 0."""
    fields = (reply.text, reply.openai, reply.data, reply.embeddings, reply.tool_calls)
    content = [one for one in fields if one]
    if held_if_short(content):
        return 0
    about = estimated(content).written
    return about if about > limit_bytes and least_written(content, limit_bytes) > limit_bytes else 0


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
