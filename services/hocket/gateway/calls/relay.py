"""Relays the chunks of one call from its backend to its caller.

Once a chunk of the answer has been sent, no other backend may be asked, because the caller has seen
it; backends hold back what comes before it, such as a role.
If a call is stopped and its backend cannot report usage, what was relayed up to then is recorded.
How long the backend had to wait for the caller is measured, because that is not the backend's time.
"""

import asyncio

from hocket.gateway.backends.protocol import Chunk, Chunks
from hocket.gateway.calls.cancellation import Cancellation
from hocket.schemas.messages import Completion


class Relay:
    """Passes chunks to `taker` until `stopped` is set, and remembers whether any were sent."""

    def __init__(self, taker: Chunks, stopped: Cancellation) -> None:
        self._taker = taker
        self._stopped = stopped
        self._output_tokens = 0
        self._held_up_s = 0.0
        self._taking_since_s: float | None = None
        self.began = False

    async def __call__(self, chunk: Chunk) -> None:
        self._output_tokens = max(self._output_tokens, chunk.output_tokens)
        if self._stopped.asked:
            return  # nobody is listening; the reply is read only for its usage
        if chunk.text or chunk.openai is not None:
            self.began = True
        self._taking_since_s = asyncio.get_running_loop().time()
        try:
            await self._taker(chunk)
        finally:
            self._held_up_s, self._taking_since_s = self.held_up_ms() / 1000, None

    def held_up_ms(self) -> float:
        """Return how long the backend has waited for the caller to take its chunks."""
        since_s = self._taking_since_s
        taking_s = 0.0 if since_s is None else asyncio.get_running_loop().time() - since_s
        return (self._held_up_s + taking_s) * 1000

    @property
    def spent(self) -> Completion:
        """What the backend has produced so far, according to its chunks."""
        return Completion(output_tokens=self._output_tokens)
