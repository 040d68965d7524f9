"""When the committer writes next, and whether partitions may go on deciding.

Three signals, each stronger than the one before: there is something to write (offsets alone wait
for IDLE_OFFSET_MS), there is state to write (GATHER_MS), somebody is waiting for it (at once). When
MAX_PENDING events or MAX_PENDING_BYTES are decided but not written, partitions wait for capacity.
"""

import asyncio

MAX_PENDING = 20_000
"""The limit for events that are decided but not yet written."""
MAX_PENDING_BYTES = 256 * 1024 * 1024
"""The limit for the size of those events, and of what runs grew by."""
GATHER_MS = 10.0
IDLE_OFFSET_MS = 1_000.0


class CommitSchedule:
    """The schedule of one committer; its tenures give the signals, and count what they decide."""

    def __init__(self) -> None:
        self.events = 0
        """The number of events decided but not written."""
        self._bytes = 0
        self._some = asyncio.Event()
        self._dirty = asyncio.Event()
        self._urgent = asyncio.Event()
        self._capacity = asyncio.Event()
        self._capacity.set()

    def notify(self) -> None:
        """Signal that there is something to write."""
        self._some.set()

    def mark_dirty(self) -> None:
        """Signal that there is more to write than offsets."""
        self._dirty.set()

    def request_flush(self) -> None:
        """Signal that somebody is waiting for the next commit."""
        self._dirty.set()
        self._urgent.set()

    def grew(self, events: int, size_bytes: int) -> None:
        """Count what was decided; if it is too much, there is no capacity left."""
        self.events += events
        self._bytes += size_bytes
        if self.events >= MAX_PENDING or self._bytes >= MAX_PENDING_BYTES:
            self._capacity.clear()
            self.request_flush()

    def shrank(self, events: int, size_bytes: int) -> None:
        """Count what was written or dropped."""
        self.events -= events
        self._bytes -= size_bytes
        if self.events < MAX_PENDING and self._bytes < MAX_PENDING_BYTES:
            self._capacity.set()

    async def wait_for_capacity(self) -> None:
        """Wait while too much is decided but not written."""
        if not self._capacity.is_set():
            await self._capacity.wait()

    async def wait_for_batch(self) -> None:
        """Wait until a batch should be written, and begin to listen for the next one."""
        await self._some.wait()
        await _within(IDLE_OFFSET_MS, self._dirty)
        await _within(GATHER_MS, self._urgent)
        for signal in (self._some, self._dirty, self._urgent):
            signal.clear()


async def _within(bound_ms: float, event: asyncio.Event) -> None:
    """Wait for an event, or until the bound has passed."""
    if event.is_set():
        return
    try:
        async with asyncio.timeout(bound_ms / 1000):
            await event.wait()
    except TimeoutError:
        return
