"""Holds back the chunks of a stream until the first of them that holds some of the answer.

A stream often begins with a role, or with something about the prompt. Once its caller has seen a
chunk, no other backend may be asked; so these wait until the model has written something. Until
then a backend that fails, or stays silent, can still be replaced by another one.
"""

from hocket.gateway.backends.protocol import Chunk, Chunks, LargeEvent
from hocket.gateway.core.protocols.json_size import held_bytes
from hocket.gateway.core.protocols.single_chunk import chunk_of
from hocket.schemas.messages import Completion

MAX_HELD_BYTES = 64 * 1024
"""The most memory that the chunks of one stream take while they wait; beyond it they are sent."""


class FirstChunks:
    """Sends the chunks of one stream to `taker`, in order."""

    def __init__(self, taker: Chunks) -> None:
        self._taker = taker
        self._held: list[Chunk] = []
        self._held_bytes = 0
        self._began = False

    async def send(self, chunk: Chunk, *, spoke: bool) -> None:
        """Send a chunk, after those that wait for it, or let it wait. `spoke` tells whether any of the
        answer has arrived."""
        if not self._began and not spoke and chunk.openai is not None:
            self._held.append(chunk)
            is_large = isinstance(chunk.openai, LargeEvent)  # which takes long to be measured
            self._held_bytes += MAX_HELD_BYTES + 1 if is_large else held_bytes(chunk.openai)
            if self._held_bytes <= MAX_HELD_BYTES:
                return
            chunk = self._held.pop()
        self._began = True
        held, self._held = self._held, []
        for one in held:
            await self._taker(one)
        await self._taker(chunk)


def at_once(made: Completion, *, is_long: bool) -> Chunk:
    """Return the one chunk of a stream for a whole reply; `is_long` if it takes long to be written."""
    event = None if made.openai is None else chunk_of(made.openai)
    if event is not None and is_long:
        event = LargeEvent(event)
    return Chunk(made.text, openai=event, output_tokens=made.output_tokens)
