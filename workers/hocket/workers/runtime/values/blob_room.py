"""Room for what blobs become in the inputs of steps that run: as many bytes as a worker may hold at
once, of which one tenant has half at most. A step that finds none waits in its slot until others have
ended; first come, first served, of those whose tenant may have more.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass

MAX_HELD_BYTES = 512 * 1024 * 1024
"""For all steps of a worker process."""
TENANT_SHARE = 0.5
"""Of that, what one tenant's steps may have; a step that needs more gets all of it."""


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    tenant: str
    size_bytes: int
    turn: asyncio.Future[None]


class BlobRoom:
    """Hands out bytes, and takes them back."""

    def __init__(self, limit_bytes: int = MAX_HELD_BYTES) -> None:
        self.free_bytes = limit_bytes
        self._share_bytes = int(limit_bytes * TENANT_SHARE)
        self._held_bytes = Counter[str]()
        self._waiting: list[_Waiting] = []

    async def take(self, tenant: str, size_bytes: int) -> int:
        """Wait for room, and return how much was taken."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asked = _Waiting(tenant, min(size_bytes, self._share_bytes), turn)
        self._waiting.append(asked)
        self._serve()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back(tenant, asked.size_bytes)
            else:
                self._waiting.remove(asked)
                self._serve()
            raise
        return asked.size_bytes

    def give_back(self, tenant: str, size_bytes: int) -> None:
        """Let the next steps have what one had."""
        if size_bytes:
            self.free_bytes += size_bytes
            self._held_bytes[tenant] -= size_bytes
            if not self._held_bytes[tenant]:
                del self._held_bytes[tenant]
            self._serve()

    def _serve(self) -> None:
        """Give room to those that wait, in their order; one that does not fit into what is free keeps it
        for itself, one whose tenant has its share does not."""
        for asked in list(self._waiting):
            if asked.turn.done():  # it was cancelled while it waited
                continue
            if self._held_bytes[asked.tenant] + asked.size_bytes > self._share_bytes:
                continue
            if asked.size_bytes > self.free_bytes:
                return
            self.free_bytes -= asked.size_bytes
            self._held_bytes[asked.tenant] += asked.size_bytes
            self._waiting.remove(asked)
            asked.turn.set_result(None)
