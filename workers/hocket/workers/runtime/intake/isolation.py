"""Restricts a worker to one step: nothing else is started until that step has been tried alone.
Afterwards the worker is open to other steps for as long as it was closed; a restarted worker is open for
OPEN_S first."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from hocket.workers.runtime.execution.attempt import Attempt

if TYPE_CHECKING:
    from hocket.kit.nats.protocol import RawMessage

OPEN_S = 5.0


class Slots(Protocol):
    """What this module needs from the pool of a node type."""

    @property
    def is_busy(self) -> bool: ...

    @property
    def has_waiting(self) -> bool: ...

    def begin(self, attempt: Attempt) -> None: ...

    def schedule(self) -> None: ...

    async def bury(self, msg: "RawMessage", attempt: Attempt, deaths: int) -> None: ...


class Isolation:
    """Whether a worker's pools may start steps; `changed` is called whenever that changes."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self.is_closed = False
        """Whether only the step on probation may be started."""
        self._changed = changed
        self._pools: list[Slots] = []
        self._turned = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._closed_at_s = 0.0
        self._open_until_s = self._loop.time() + OPEN_S
        self._tried_at_s = self._loop.time()

    def join(self, pool: Slots) -> None:
        """Add a pool, whose steps then count as running beside others."""
        self._pools.append(pool)

    @property
    def is_busy(self) -> bool:
        """Whether any pool runs something."""
        return any(pool.is_busy for pool in self._pools)

    @property
    def is_quiet(self) -> bool:
        """Whether no pool runs anything, nor has anything to run."""
        return not any(pool.has_waiting or pool.is_busy for pool in self._pools)

    def left_s(self, since_last_s: float) -> float:
        """Return for how many seconds other steps may still start first; they may for at least
        `since_last_s` after the last step on probation was tried."""
        until_s = self._open_until_s
        if since_last_s:
            until_s = max(until_s, self._tried_at_s + since_last_s)
        return until_s - self._loop.time()

    def close(self) -> None:
        """Keep other steps from starting."""
        self.is_closed = True
        self._closed_at_s = self._loop.time()
        self._changed()

    def open(self) -> None:
        """Let other steps start; the next step on probation waits for as long as they could not."""
        if self.is_closed:
            self.is_closed = False
            self._tried_at_s = now_s = self._loop.time()
            self._open_until_s = 2 * now_s - self._closed_at_s
            self._changed()
            for pool in self._pools:
                pool.schedule()

    def turned(self) -> None:
        """Check again what `until` waits for, because something ended."""
        self._turned.set()

    async def until(self, condition: Callable[[], bool], within_s: float | None) -> bool:
        """Wait until a condition holds; tell whether it did within `within_s` seconds."""
        try:
            async with asyncio.timeout(within_s):
                while not condition():
                    self._turned.clear()
                    await self._turned.wait()
        except TimeoutError:
            return False
        return True
