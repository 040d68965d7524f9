"""Schedules the requests at an HTTP server: few are processed at once, those of quiet callers first.

An event loop that starts every request as it arrives is as slow for everybody as its busiest caller
makes it: a thousand connections with a request each come before any other in every iteration of the
loop. Here, a request holds a place while it computes, and there are few places. If none is free, the
request waits. Requests of a connection that sent many lately wait behind those of one that did not; the
same applies to addresses and to tenants. A request that only waits for something holds no place.
"""

import asyncio
from collections import Counter
from collections.abc import Hashable
from contextvars import ContextVar
from heapq import heappop, heappush

PLACES = 16
"""Requests that one server processes at once."""
HELD_S = 0.1
"""How long a request may hold a place that others wait for; one that takes longer is itself waiting for
something."""
WINDOW_S = 10.0
"""The time window in which requests are counted."""
CONNECTION_DELAY_S = 0.2
SHARED_DELAY_S = 0.001
"""How far a request is moved back for each other request in the window: CONNECTION_DELAY_S for one of
its connection, SHARED_DELAY_S for one of its address, and again for one of its tenant."""
MAX_DELAY_S = 4.0
"""The maximum of each of these three delays, so that nobody waits for ever behind newcomers."""

_present: ContextVar["Turn | None"] = ContextVar("turn", default=None)


class Turns:
    """The places of one server, used by one event loop."""

    def __init__(self, places: int = PLACES) -> None:
        self._free = places
        self._returned = 0
        self._waiting: list[tuple[float, int, Turn, asyncio.Future[None]]] = []
        self._held: dict[Turn, float] = {}
        self._number = 0
        self._used: Counter[Hashable] = Counter()
        self._window_ends_s = 0.0
        self._looking: asyncio.TimerHandle | None = None

    def turn(self, connection: Hashable, address: str, tenant: str) -> "Turn":
        """Return the turn of a request that has arrived; it has no place yet."""
        now_s = asyncio.get_running_loop().time()
        if now_s > self._window_ends_s:
            self._used.clear()
            self._window_ends_s = now_s + WINDOW_S
        delay_s = 0.0
        for kind, name, each_s in (
            (0, connection, CONNECTION_DELAY_S),
            (1, address, SHARED_DELAY_S),
            (2, tenant, SHARED_DELAY_S),
        ):
            delay_s += min(self._used[kind, name] * each_s, MAX_DELAY_S)
            self._used[kind, name] += 1
        self._number += 1
        return Turn(self, now_s + delay_s, self._number)

    async def take(self, turn: "Turn") -> None:
        """Wait for a place."""
        loop = asyncio.get_running_loop()
        if self._free > 0 and not self._waiting:
            self._free -= 1
            self._held[turn] = loop.time()
            return
        called: asyncio.Future[None] = loop.create_future()
        heappush(self._waiting, (turn.due_s, turn.number, turn, called))
        self._watch()
        try:
            await called
        except asyncio.CancelledError:
            if called.done() and not called.cancelled():
                self.give_back(turn)
            raise

    def give_back(self, turn: "Turn") -> None:
        """Release the place of a turn, if it has one, for the next request. That one starts in the
        loop's next iteration: otherwise requests that never wait would all be processed in this one."""
        if self._held.pop(turn, None) is None:
            return
        if not self._returned:
            asyncio.get_running_loop().call_soon(self._hand_out)
        self._returned += 1

    def _hand_out(self) -> None:
        self._free, self._returned = self._free + self._returned, 0
        now_s = asyncio.get_running_loop().time()
        while self._waiting and self._free > 0:
            _, _, after, called = heappop(self._waiting)
            if not called.done():
                self._free -= 1
                self._held[after] = now_s
                called.set_result(None)

    def _watch(self) -> None:
        if self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(HELD_S, self._look)

    def _look(self) -> None:
        """Take back the places of requests that have held them for HELD_S: they wait for something."""
        self._looking = None
        long_ago_s = asyncio.get_running_loop().time() - HELD_S
        for turn in [turn for turn, since_s in self._held.items() if since_s <= long_ago_s]:
            self.give_back(turn)
        if self._waiting:
            self._watch()


class Turn:
    """One request's turn: with a place, or without one."""

    __slots__ = ("_turns", "due_s", "number")

    def __init__(self, turns: Turns, due_s: float, number: int) -> None:
        self._turns = turns
        self.due_s = due_s
        self.number = number

    async def take(self) -> None:
        """Wait for a place."""
        _present.set(self)
        await self._turns.take(self)

    def give_back(self) -> None:
        """Release the place; a second call does nothing."""
        self._turns.give_back(self)


def give_way() -> None:
    """Release the place of the current request, because it is about to wait for a long time."""
    if (turn := _present.get()) is not None:
        turn.give_back()
