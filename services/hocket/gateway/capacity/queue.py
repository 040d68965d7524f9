"""The calls that wait for a slot; each wait ends with a slot, at the deadline, or with an error
that gives the reason.

A released slot is offered to the next suitable call in line within the same turn of the event loop,
so no newcomer can slip in. When something else changes where calls can go (a rest ends, a breaker
opens, a reload), all waiting calls are looked at again.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from hocket.gateway.calls.cancellation import Cancellation
from hocket.gateway.capacity.placement import Placement
from hocket.gateway.capacity.rejections import overdue, queue_full, rejection
from hocket.gateway.capacity.reserve import FAST_AND_INTERACTIVE, Reserve
from hocket.gateway.capacity.retry_timer import RetryTimer
from hocket.gateway.capacity.slot import PlacementRequest, Slot
from hocket.gateway.core.config.table import RoutingTable
from hocket.gateway.core.routing.queue import Ticket, WaitQueue
from hocket.gateway.core.routing.replica_choice import Decision
from hocket.schemas.errors import HocketError

MAX_OFFERED = 64
"""How many waiting calls are offered a free slot before it is left free."""


@dataclass(eq=False, slots=True)
class _Waiting:
    request: PlacementRequest
    ticket: Ticket
    slot: "asyncio.Future[Slot]"


class CallQueue:
    """Queues calls, and offers them slots."""

    def __init__(
        self,
        table: RoutingTable,
        reserve: Reserve,
        placement: Placement,
        now_ms: Callable[[], float],
    ) -> None:
        self._table = table
        self._reserve = reserve
        self._placement = placement
        self._now_ms = now_ms
        self.lines = WaitQueue()
        """The waiting calls, for inspection."""
        self._calls: dict[int, _Waiting] = {}
        self._arrivals = itertools.count()
        self._timer = RetryTimer(now_ms, self._retry)

    def __len__(self) -> int:
        return len(self.lines)

    def replace(self, table: RoutingTable) -> None:
        """Use another routing table."""
        self._table = table

    async def wait(
        self,
        request: PlacementRequest,
        decision: Decision,
        expected_ms: float,
        cancellation: Cancellation,
        *,
        entered: Callable[[], None],
    ) -> Slot:
        """Wait until a call has a slot; `entered` is called once it is in line.

        Raises DeadlinePassed, CallStopped, and the reason if it may not wait.
        """
        waiting = self._enter(request, decision, expected_ms)
        entered()
        self._timer.schedule(decision.retry_at_ms)
        now_ms = waiting.ticket.entered_at_ms
        self._timer.schedule(self._reserve.ends_at_ms(waiting.ticket.pools, now_ms))
        left_ms = request.deadline_at_ms - now_ms
        timer = asyncio.get_running_loop().call_later(left_ms / 1000, self._on_deadline, waiting)
        try:
            slot = await cancellation.guard(waiting.slot)
            cancellation.check()
        except BaseException:
            if _has_slot(waiting):
                waiting.slot.result().release()
            raise
        finally:
            timer.cancel()
            self.lines.leave(waiting.ticket)
            self._calls.pop(waiting.ticket.order, None)
        return slot

    def offer_all(self) -> None:
        """Look at all waiting calls again."""
        for pool in self.lines.pools():
            self.offer(pool, MAX_OFFERED)

    def offer(self, pool: str, most: int, *, replica_reserved: bool = False) -> None:
        """Give up to `most` slots of a pool to calls waiting for them, the most urgent first.

        `replica_reserved` means that the slots are at a replica with only reserved slots left.
        """
        if not len(self.lines):
            return
        for ticket in self._next(pool, replica_reserved):
            most -= self._offer_to(self._calls[ticket.order])
            if most <= 0:
                return

    def expect_reserve_end(self, pools: Iterable[str], now_ms: float) -> None:
        """Look at the calls waiting for these pools again
        when one of the pools stops reserving slots."""
        waited_for = [pool for pool in pools if self.lines.waiting(pool)]
        self._timer.schedule(self._reserve.ends_at_ms(waited_for, now_ms))

    def _enter(self, request: PlacementRequest, decision: Decision, expected_ms: float) -> _Waiting:
        """Put a call in line, dropping a less important one if the line is full;
        raise if it may not wait."""
        now_ms = self._now_ms()
        error = rejection(self._table, request, decision, now_ms)
        if error is not None:
            raise error
        useful_ms = request.useful_until_ms
        ticket = Ticket(
            next(self._arrivals),
            request.priority,
            decision.pools,
            request.deadline_at_ms if useful_ms is None else useful_ms,
            expected_ms,
            now_ms,
            request.facts.fast,
            request.facts.tenant,
        )
        pools = self._table.pools
        if all(self.lines.waiting(pool) >= pools[pool].max_waiting for pool in ticket.pools):
            full = queue_full(self._table, request, decision, now_ms)
            shed = self.lines.to_shed(ticket, min(ticket.pools))
            if shed is ticket:
                raise full
            self._end(shed, full)
        waiting = _Waiting(request, ticket, asyncio.get_running_loop().create_future())
        self.lines.enter(ticket)
        self._calls[ticket.order] = waiting
        return waiting

    def _next(self, pool: str, replica_reserved: bool) -> list[Ticket]:
        """Return the calls that may take a slot of a pool as it is now."""
        now_ms = self._now_ms()
        classes = self._reserve.admitted(pool, now_ms, replica_reserved=replica_reserved)
        line = self.lines.line(pool, MAX_OFFERED, classes)
        if classes is FAST_AND_INTERACTIVE:
            due = self.lines.due(pool, now_ms, MAX_OFFERED)
            return sorted([*line, *due])[:MAX_OFFERED]
        return line

    def _offer_to(self, waiting: _Waiting) -> bool:
        """Choose a replica for a waiting call again; return whether it has a slot now."""
        if waiting.slot.done():
            # it was stopped in this turn of the loop and has not noticed yet
            self.lines.leave(waiting.ticket)
            return False
        now_ms = self._now_ms()
        if waiting.ticket.due_ms <= now_ms and not waiting.request.facts.urgent:
            facts = replace(waiting.request.facts, urgent=True)
            waiting.request = replace(waiting.request, facts=facts)
        try:
            decision = self._placement.choose(waiting.request, now_ms)
        except HocketError as error:  # a reload removed its model
            self._end(waiting.ticket, error)
            return False
        if decision.chosen is not None:
            self.lines.leave(waiting.ticket)
            queue_ms = now_ms - waiting.ticket.entered_at_ms
            slot = self._placement.take(waiting.request, decision, now_ms, queue_ms)
            waiting.slot.set_result(slot)
            return True
        rejected = rejection(self._table, waiting.request, decision, now_ms)
        if rejected is not None:
            self._end(waiting.ticket, rejected)
        else:
            self._move(waiting, decision)
        return False

    def _move(self, waiting: _Waiting, decision: Decision) -> None:
        """Move a waiting call to the pools that can serve it now."""
        if decision.pools != waiting.ticket.pools:
            self.lines.leave(waiting.ticket)
            waiting.ticket = replace(waiting.ticket, pools=decision.pools)
            self.lines.enter(waiting.ticket)
        self._timer.schedule(decision.retry_at_ms)

    def _on_deadline(self, waiting: _Waiting) -> None:
        now_ms = self._now_ms()
        late_ms = max(round(now_ms - waiting.request.deadline_at_ms), 0)
        try:
            decision = self._placement.choice(waiting.request, now_ms)
        except HocketError as error:  # a reload removed its model
            self._end(waiting.ticket, error)
        else:
            self._end(waiting.ticket, overdue(waiting.request, decision, late_ms))

    def _end(self, ticket: Ticket, error: HocketError) -> None:
        """End the wait of a call with an error."""
        waiting = self._calls.get(ticket.order)
        self.lines.leave(ticket)
        if waiting is not None and not waiting.slot.done():
            waiting.slot.set_exception(error)

    def _retry(self) -> None:
        self.offer_all()
        self._timer.schedule(self._reserve.ends_at_ms(self.lines.pools(), self._now_ms()))


def _has_slot(waiting: _Waiting) -> bool:
    slot = waiting.slot
    return slot.done() and not slot.cancelled() and slot.exception() is None
