"""Replies and pieces of answers as NATS messages."""

import itertools

from hocket.gateway.backends.protocol import Chunk, Chunks
from hocket.gateway.core.errors import ReplyTooLarge, ReplyUnsendable
from hocket.kit.nats.bus import Bus
from hocket.schemas.errors import HocketError
from hocket.schemas.messages import CallChunk, CallReply, CallRequest

MAX_REASON_CHARS = 300


def encoded_reply(reply: CallReply, limit_bytes: int) -> bytes:
    """Return a reply as a message; one that is too large or not valid JSON is replaced by an error."""
    error: HocketError
    try:
        encoded = reply.model_dump_json().encode()
    except ValueError as failure:  # for example a lone surrogate
        error = ReplyUnsendable(reason=str(failure)[:MAX_REASON_CHARS])
    else:
        if len(encoded) <= limit_bytes:
            return encoded
        error = ReplyTooLarge(size_bytes=len(encoded), limit_bytes=limit_bytes)
    bare = reply.model_copy(
        update={
            "text": "",
            "data": None,
            "embeddings": (),
            "tool_calls": (),
            "openai": None,
            "error": error.info(),
        }
    )
    return bare.model_dump_json().encode()


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
