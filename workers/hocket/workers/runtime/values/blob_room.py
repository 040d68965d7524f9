"""Limits the memory that loaded blobs take in the inputs of running steps.

A worker may hold a fixed number of bytes at once, and one tenant at most half of them. A step that finds
no room waits in its slot until others have ended. Room is given first come, first served, among the
tenants that are below their share. A step that already holds room does not wait for more, because steps
that wait for each other's would never end: it takes it beyond the limit.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass

MAX_HELD_BYTES = 512 * 1024 * 1024
"""The limit for all steps of a worker process."""
TENANT_SHARE = 0.5
"""The part of it that one tenant's steps may hold; a step that needs more gets the whole share."""


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    tenant: str
    size_bytes: int
    turn: asyncio.Future[None]


class BlobRoom:
    """Hands out bytes of room, and takes them back."""

    def __init__(self, limit_bytes: int = MAX_HELD_BYTES) -> None:
        self.free_bytes = limit_bytes
        self._share_bytes = int(limit_bytes * TENANT_SHARE)
        self._held_bytes = Counter[str]()
        self._waiting: list[_Waiting] = []

    async def take(self, tenant: str, size_bytes: int, *, waits: bool = True) -> int:
        """Wait for room, unless told not to, and return how many bytes were taken: at most the tenant's
        share."""
        if not waits:
            return self._taken(tenant, min(size_bytes, self._share_bytes))
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
        """Return the room that a step held, and serve those that wait."""
        if size_bytes:
            self.free_bytes += size_bytes
            self._held_bytes[tenant] -= size_bytes
            if not self._held_bytes[tenant]:
                del self._held_bytes[tenant]
            self._serve()

    def _serve(self) -> None:
        """Give room to waiting steps in order. One that does not fit blocks those behind it, unless it
        only waits because its tenant's share is used up."""
        for asked in list(self._waiting):
            if asked.turn.done():  # cancelled while it waited
                continue
            if self._held_bytes[asked.tenant] + asked.size_bytes > self._share_bytes:
                continue
            if asked.size_bytes > self.free_bytes:
                return
            self._taken(asked.tenant, asked.size_bytes)
            self._waiting.remove(asked)
            asked.turn.set_result(None)

    def _taken(self, tenant: str, size_bytes: int) -> int:
        self.free_bytes -= size_bytes
        self._held_bytes[tenant] += size_bytes
        return size_bytes
