"""Room for what blobs become in the inputs of steps that run: as many bytes as a worker may hold at
once. A step that finds none waits in its slot until others have ended; first come, first served.
"""

import asyncio
from collections import deque

MAX_HELD_BYTES = 512 * 1024 * 1024
"""For all steps of a worker process; one that needs more than all of it gets all of it."""


class BlobRoom:
    """Hands out bytes, and takes them back."""

    def __init__(self, limit_bytes: int = MAX_HELD_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self.free_bytes = limit_bytes
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, size_bytes: int) -> int:
        """Wait for room, and return how much was taken."""
        size_bytes = min(size_bytes, self._limit_bytes)
        if not self._waiting and size_bytes <= self.free_bytes:
            self.free_bytes -= size_bytes
            return size_bytes
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size_bytes, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back(size_bytes)
            else:
                self._next()
            raise
        return size_bytes

    def give_back(self, size_bytes: int) -> None:
        """Let the next steps have what one had."""
        self.free_bytes += size_bytes
        self._next()

    def _next(self) -> None:
        while self._waiting:
            size_bytes, turn = self._waiting[0]
            if turn.done():  # it was cancelled while it waited
                self._waiting.popleft()
            elif size_bytes <= self.free_bytes:
                self._waiting.popleft()
                self.free_bytes -= size_bytes
                turn.set_result(None)
            else:
                return
