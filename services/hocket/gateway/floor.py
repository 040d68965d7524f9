"""The floor: exact counts of who is served where, and the calls that wait for a place.

A call gets a place at once where routing finds one; else it waits in its pools' lines, and whoever
gives a place back hands it to the next in line that it suits, in the same turn of the event loop, so
that no newcomer slips in between. What else can make room (a rest that ends, a reload) looks through
the lines again. A waiting call ends with a place, with its deadline, or with an error that says why it
had to go. All of it runs on one event loop, so that no count is ever off.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from hocket.gateway.cancellation import Cancellation
from hocket.gateway.core.errors import BackendsBusy, DeadlinePassed
from hocket.gateway.core.queue import Room, Ticket
from hocket.gateway.core.routing import CallFacts, Decision, View, choose
from hocket.gateway.core.table import BackendSpec, RoutingTable
from hocket.schemas.errors import HocketError
from hocket.schemas.messages import Priority

BUSY_RETRY_MS = 1_000.0
"""What a caller is told to wait where no backend says how long it rests."""
MAX_LOOKED_AT = 64
"""Waiting calls that are offered a free place, before it is left free."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A call that wants a place: what routing knows of it, and how urgent it is."""

    facts: CallFacts
    priority: Priority
    deadline_at_ms: float
    expected_ms: float = 0.0
    least_ms: float = 0.0


class Place:
    """A place at a replica, held until it is given back."""

    def __init__(self, floor: "Floor", decision: Decision, *, fast: bool, queue_ms: float) -> None:
        assert decision.chosen is not None
        self.spec: BackendSpec = decision.chosen
        self.decision = decision
        self.fast = fast
        self.queue_ms = queue_ms
        self._floor: Floor | None = floor

    def give_back(self) -> None:
        """Let the next call have the place; giving back twice does nothing."""
        floor, self._floor = self._floor, None
        if floor is not None:
            floor._given_back(self)


@dataclass(eq=False, slots=True)
class _Waiter:
    wish: Wish
    ticket: Ticket
    place: "asyncio.Future[Place]"


class Floor:
    """Who is being served where, and who waits."""

    def __init__(self, table: RoutingTable, now_ms: Callable[[], float]) -> None:
        self._table = table
        self._now_ms = now_ms
        self._in_flight: Counter[str] = Counter()
        self._pool_in_flight: Counter[str] = Counter()
        self._pool_slow: Counter[str] = Counter()
        self._resting_until_ms: dict[str, float] = {}
        self._room = Room()
        self._waiters: dict[int, _Waiter] = {}
        self._arrivals = itertools.count()
        self._look_again: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """Calls that wait for a place."""
        return len(self._room)

    def replace(self, table: RoutingTable) -> None:
        """Go on with another routing table; those who wait are looked at again."""
        self._table = table
        self._offer_all()

    def rest(self, key: str, until_ms: float) -> None:
        """Ask a replica for nothing until then."""
        self._resting_until_ms[key] = until_ms

    async def place(self, wish: Wish, cancellation: Cancellation) -> Place | None:
        """Return a place for a call; None where every replica was tried already or does not suit.

        Raises DeadlinePassed, CallStopped, ModelUnknown, and BackendsBusy where waiting is in vain.
        """
        now_ms = self._now_ms()
        cancellation.check()
        if now_ms >= wish.deadline_at_ms:
            raise DeadlinePassed(late_ms=round(now_ms - wish.deadline_at_ms))
        decision = self._choose(wish, now_ms)
        if decision.chosen is not None:
            return self._taken(wish, decision, 0.0)
        if decision.hopeless:
            return None
        return await self._wait(self._entered(wish, decision, now_ms), cancellation)

    def _choose(self, wish: Wish, now_ms: float) -> Decision:
        view = View(
            now_ms,
            self._in_flight,
            self._resting_until_ms,
            self._pool_in_flight,
            self._pool_slow,
        )
        return choose(self._table, wish.facts, view)

    def _taken(self, wish: Wish, decision: Decision, queue_ms: float) -> Place:
        place = Place(self, decision, fast=wish.facts.fast, queue_ms=queue_ms)
        self._in_flight[place.spec.key] += 1
        self._pool_in_flight[place.spec.pool] += 1
        if not place.fast:
            self._pool_slow[place.spec.pool] += 1
        return place

    def _given_back(self, place: Place) -> None:
        _less(self._in_flight, place.spec.key)
        _less(self._pool_in_flight, place.spec.pool)
        if not place.fast:
            _less(self._pool_slow, place.spec.pool)
        self._offer(place.spec.pool, 1)

    def _entered(self, wish: Wish, decision: Decision, now_ms: float) -> _Waiter:
        """Put a call in line, if need be in somebody's stead; raise BackendsBusy where it may not."""
        if decision.all_rest and (decision.retry_at_ms or 0.0) >= wish.deadline_at_ms:
            raise self._busy(wish, decision.reason, decision.retry_at_ms)
        ticket = Ticket(
            next(self._arrivals),
            wish.priority,
            decision.pools,
            wish.deadline_at_ms,
            wish.expected_ms,
            now_ms,
            wish.facts.fast,
        )
        if all(self._full(pool) for pool in ticket.pools):
            shed = self._room.to_shed(ticket, min(ticket.pools))
            busy = self._busy(wish, f"{decision.reason}; and nobody else may wait", None)
            if shed is ticket:
                raise busy
            self._end(shed, busy)
        waiter = _Waiter(wish, ticket, asyncio.get_running_loop().create_future())
        self._room.enter(ticket)
        self._waiters[ticket.order] = waiter
        self._expect(decision.retry_at_ms)
        return waiter

    def _full(self, pool: str) -> bool:
        return self._room.waiting(pool) >= self._table.pools[pool].max_waiting

    async def _wait(self, waiter: _Waiter, cancellation: Cancellation) -> Place:
        left_ms = waiter.wish.deadline_at_ms - waiter.ticket.entered_at_ms
        timer = asyncio.get_running_loop().call_later(left_ms / 1000, self._late, waiter)
        place: Place | None = None
        try:
            place = await cancellation.guard(waiter.place)
            cancellation.check()
        except BaseException:
            if (
                waiter.place.done()
                and not waiter.place.cancelled()
                and not waiter.place.exception()
            ):
                waiter.place.result().give_back()
            raise
        finally:
            timer.cancel()
            self._room.leave(waiter.ticket)
            self._waiters.pop(waiter.ticket.order, None)
        return place

    def _late(self, waiter: _Waiter) -> None:
        late_ms = round(self._now_ms() - waiter.wish.deadline_at_ms)
        self._end(waiter.ticket, DeadlinePassed(late_ms=max(late_ms, 0)))

    def _end(self, ticket: Ticket, error: HocketError) -> None:
        """Send a waiting call away."""
        waiter = self._waiters.get(ticket.order)
        self._room.leave(ticket)
        if waiter is not None and not waiter.place.done():
            waiter.place.set_exception(error)

    def _offer_all(self) -> None:
        for pool in self._room.pools():
            self._offer(pool, MAX_LOOKED_AT)

    def _offer(self, pool: str, most: int) -> None:
        """Give up to `most` places of a pool to those who wait for them, the most urgent first."""
        spec = self._table.pools.get(pool)
        only_fast = spec is not None and self._pool_slow[pool] >= spec.limit - spec.reserved_fast
        for ticket in self._room.line(pool, MAX_LOOKED_AT, fast_only=only_fast):
            most -= self._offer_to(self._waiters[ticket.order])
            if most <= 0:
                return

    def _offer_to(self, waiter: _Waiter) -> bool:
        """Choose again for a waiting call; tell whether it has a place now."""
        now_ms = self._now_ms()
        try:
            decision = self._choose(waiter.wish, now_ms)
        except HocketError as error:  # its model left with a reload
            self._end(waiter.ticket, error)
            return False
        if decision.chosen is not None:
            self._room.leave(waiter.ticket)
            queue_ms = now_ms - waiter.ticket.entered_at_ms
            waiter.place.set_result(self._taken(waiter.wish, decision, queue_ms))
            return True
        if decision.hopeless:
            self._end(waiter.ticket, self._busy(waiter.wish, decision.reason, None))
        else:
            self._expect(decision.retry_at_ms)
        return False

    def _expect(self, at_ms: float | None) -> None:
        """Look at those who wait again at a time, or earlier."""
        if at_ms is None:
            return
        loop = asyncio.get_running_loop()
        at_s = loop.time() + max(at_ms - self._now_ms(), 0.0) / 1000
        if self._look_again is not None:
            if self._look_again.when() <= at_s and not self._look_again.cancelled():
                return
            self._look_again.cancel()
        self._look_again = loop.call_at(at_s, self._look)

    def _look(self) -> None:
        self._look_again = None
        self._offer_all()

    def _busy(self, wish: Wish, reason: str, retry_at_ms: float | None) -> BackendsBusy:
        return BackendsBusy(
            model=wish.facts.model,
            reason=reason,
            component="gateway",
            retry_at_ms=retry_at_ms or self._now_ms() + BUSY_RETRY_MS,
        )


def _less(counter: Counter[str], key: str) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]
