"""The chunks of one call on their way from its backend to its door.

Once a chunk with text has gone out nobody else may be asked: the caller has seen it. What was sent until
a call was stopped is what it is booked with, where its backend cannot say better.
"""

from hocket.gateway.backends.protocol import Chunk, Chunks
from hocket.gateway.calls.cancellation import Cancellation
from hocket.schemas.messages import Completion


class Relay:
    """Hands chunks on to `taker` until `stopped` is asked to, and remembers that it did."""

    def __init__(self, taker: Chunks, stopped: Cancellation) -> None:
        self._taker = taker
        self._stopped = stopped
        self._output_tokens = 0
        self.began = False

    async def __call__(self, chunk: Chunk) -> None:
        self._output_tokens = max(self._output_tokens, chunk.output_tokens)
        if self._stopped.asked:
            return  # nobody listens; it is read for what it uses
        if chunk.text or chunk.openai is not None:
            self.began = True
        await self._taker(chunk)

    @property
    def spent(self) -> Completion:
        """What the backend has made so far, as far as chunks tell."""
        return Completion(output_tokens=self._output_tokens)
