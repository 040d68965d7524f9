"""Turns of the event loop: a coordinator that computes for long without one gives no sign of life, and
the others take it for dead."""

import asyncio
from collections import deque

from hocket.kit.process.clock import monotonic_ms

TURN_MS = 10.0
"""How long all partitions together may compute; a single event may take longer."""
RESTS = 4
"""How many turns everything else has then: a sign of life needs some until it is sent."""


class Turns:
    """Shared by all partitions of a coordinator: each awaits `take` before it computes,
    and measures it. When TURN_MS are used up, everything else has its turn first, and then one
    partition after the other, in order, until they are used up again: several may have an event that
    takes long."""

    def __init__(self) -> None:
        self.are_used_up = False
        """Whether `take` would wait."""
        self._worked_ms = 0.0
        self._rests = 0
        self._waiting = deque[asyncio.Future[None]]()

    def begin(self) -> float:
        """Return when something begins to be computed, for `worked`."""
        return monotonic_ms()

    def worked(self, begun_ms: float) -> float:
        """Note that something was computed since `begin` gave this; return what it would give now."""
        now_ms = monotonic_ms()
        self._worked_ms += now_ms - begun_ms
        self.are_used_up = self._worked_ms >= TURN_MS
        return now_ms

    async def take(self) -> None:
        """Wait until something may be computed. Nothing that is half done may be left meanwhile."""
        is_first = False
        while self.are_used_up:
            await self._next_turn(is_first=is_first)
            is_first = True

    async def _next_turn(self, *, is_first: bool) -> None:
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        if not self._waiting:
            self._give_later(loop)
        if is_first:
            self._waiting.appendleft(turn)
        else:
            self._waiting.append(turn)
        await turn

    def _give_later(self, loop: asyncio.AbstractEventLoop) -> None:
        self._rests = RESTS
        loop.call_soon(self._give)

    def _give(self) -> None:
        loop = asyncio.get_running_loop()
        self._rests -= 1
        if self._rests > 0:
            loop.call_soon(self._give)
            return
        self._worked_ms = 0.0
        self.are_used_up = False
        self._wake_next()

    def _wake_next(self) -> None:
        """Wake the partitions that wait, one after the other, until their time is used up."""
        loop = asyncio.get_running_loop()
        if self._waiting and self.are_used_up:
            self._give_later(loop)
            return
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # otherwise it was cancelled
                turn.set_result(None)
                break
        if self._waiting:
            loop.call_soon(self._wake_next)  # after the one that was woken has computed
