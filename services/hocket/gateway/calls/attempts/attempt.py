"""One attempt of a call at a replica: its budget reservation, slot, announcement, answer and usage
record.

A model may hedge: if the answer takes longer than usual for such calls, a second replica is also
asked (`hedged_request.py`), provided that one has a free slot at once and the budget allows it. The
slower request is stopped and recorded as speculation. Every request that reached a backend leaves
one usage record: the first under the call's id, retries with the suffix `:r1`, `:r2` and so on, the
second request of a hedge with `:h` appended, and all of them preceded by `:t1` and so on if an
earlier gateway was killed while making the call.
"""

import asyncio
from decimal import Decimal

from hocket.gateway.accounting.reservations import NOT_SPENT
from hocket.gateway.backends.protocol import BackendError
from hocket.gateway.calls.attempts.announcements import Announcements
from hocket.gateway.calls.attempts.hedged_request import UpstreamRequest
from hocket.gateway.calls.attempts.hedging import Hedging
from hocket.gateway.calls.attempts.placement import placed
from hocket.gateway.calls.attempts.records import AttemptRecords, log_finished
from hocket.gateway.calls.attempts.replica_requests import ReplicaRequests
from hocket.gateway.calls.attempts.trailing_requests import TrailingRequests
from hocket.gateway.calls.call import AttemptResult, Call
from hocket.gateway.calls.dependencies import CallDependencies
from hocket.gateway.core.calls.records import UsageKind, call_reply
from hocket.gateway.core.config.table import ModelSpec
from hocket.schemas.structs.usage import RecordedUsage


class Attempts:
    """Makes attempts using the current routing table."""

    def __init__(self, on: CallDependencies) -> None:
        self._on = on
        self._requests = ReplicaRequests(on)
        self._announcements = Announcements(on)
        self._records = AttemptRecords(on)
        self._hedging = Hedging(on, self._requests, self._announcements, self._records)
        self._trailing = TrailingRequests(on, self._announcements, self._records)

    async def make(self, call: Call, model: ModelSpec) -> AttemptResult | None:
        """Make an attempt within the budgets of the call; return None if every replica was tried."""
        kind, spending = call.kind, self._on.spending
        slot, reservation = await placed(call, model, self._on)
        cost_usd = NOT_SPENT
        try:
            if slot is None:
                return None
            first = UpstreamRequest(
                call.tail, call.turn, call.cancellation, call.relay, call.because, slot
            )
            first.is_bounded = reservation is not None and spending.is_strict
            await self._requests.prepare(call, first, slot)
            await self._announcements.announce(call, first, slot, reservation)
            lane, other, behind = await self._hedging.answered(call, model, kind, first)
            if behind is not None and other is not None:
                settles = other is first
                self._trailing.follow(call, other, behind, reservation if settles else None)
                reservation = None if settles else reservation
                other = None
            await self._announcements.stored(call, lane, other)
            accepted = _is_accepted(call, lane)
            records = self._recorded(call, lane, other, accepted=accepted)
            if reservation is not None:
                cost_usd = records[0 if lane is first else 1].cost_usd
            learning = (call, kind, lane, records[0].cost_usd)
            if reservation is not None:  # calls waiting for budget are served next
                self._records.learn(*learning)
            else:  # the answer must not wait for this
                asyncio.get_running_loop().call_soon(self._records.learn, *learning)
        finally:
            spending.settle(reservation, cost_usd)
        _add_up(call, slot.queue_ms, records)
        for one, record in zip((lane, other), records, strict=False):
            log_finished(one, record)
        await self._records.book(records)
        reply = call_reply(call.request, records[0], lane.completion, lane.error)
        return AttemptResult(reply, _may_move_on(call, lane), accepted, records[0].latency_ms)

    async def settle_trailing(self, drain_ms: float, flush_ms: float) -> None:
        """Wait up to `drain_ms` for hedged requests that lost but are still being read,
        then end them."""
        await self._trailing.settle(drain_ms, flush_ms)

    def _recorded(
        self, call: Call, lane: UpstreamRequest, other: UpstreamRequest | None, *, accepted: bool
    ) -> list[RecordedUsage]:
        """Return the record of the lane that counts, then that of the other lane."""
        records = [self._records.record(call, lane, "call" if accepted else "cascade")]
        if other is not None:
            usage: UsageKind = "speculation" if other.lost else "call"
            records.append(self._records.record(call, other, usage))
        return records


def _is_accepted(call: Call, lane: UpstreamRequest) -> bool:
    return lane.error is not None or call.accepts is None or call.accepts(lane.completion)


def _add_up(call: Call, queue_ms: float, records: list[RecordedUsage]) -> None:
    """Add an attempt to the totals of its call."""
    call.attempts += 1
    call.backend = records[0].backend
    call.queue_ms += queue_ms
    call.cost_usd += sum((record.cost_usd for record in records), Decimal(0))
    call.tokens += sum(record.input_tokens + record.output_tokens for record in records)


def _may_move_on(call: Call, lane: UpstreamRequest) -> bool:
    """Return whether another replica may be asked after an attempt."""
    move_on = isinstance(lane.error, BackendError) and lane.error.may_move_on
    return move_on and not call.began and not call.cancellation.asked
