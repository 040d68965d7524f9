"""Hedged requests that lost the race and are read on until their backend has reported usage. The
reply does not tell what they cost: their run is charged for it."""

import asyncio

import structlog

from hocket.gateway.accounting.reservations import NOT_SPENT
from hocket.gateway.calls.attempts.announcements import Announcements
from hocket.gateway.calls.attempts.hedged_request import UpstreamRequest
from hocket.gateway.calls.attempts.records import AttemptRecords, log_finished
from hocket.gateway.calls.call import Call
from hocket.gateway.calls.cancellation import Cancellation
from hocket.gateway.calls.dependencies import CallDependencies
from hocket.gateway.core.budgets.budget import Reservation

log = structlog.get_logger()


class TrailingRequests:
    """Records the usage of requests that are read on after their call was answered."""

    def __init__(
        self, on: CallDependencies, announcements: Announcements, records: AttemptRecords
    ) -> None:
        self._on = on
        self._announcements = announcements
        self._records = records
        self._bookings: dict[asyncio.Task[None], Cancellation] = {}

    def follow(
        self,
        call: Call,
        lane: UpstreamRequest,
        asking: "asyncio.Task[None]",
        reservation: Reservation | None,
    ) -> None:
        """Record the usage of a losing request once it has been read, and settle its reservation."""
        booking = asyncio.create_task(
            self._book(call, lane, asking, reservation), name="trailing request"
        )
        self._bookings[booking] = lane.cancellation
        booking.add_done_callback(self._booked)

    async def settle(self, drain_ms: float, flush_ms: float) -> None:
        """Read on for at most `drain_ms`, then end what is left and allow `flush_ms`
        for recording it."""
        if self._bookings:
            await asyncio.wait(set(self._bookings), timeout=drain_ms / 1000)
        for cancellation in self._bookings.values():
            cancellation.hurry()
        if self._bookings:
            await asyncio.wait(set(self._bookings), timeout=flush_ms / 1000)

    async def _book(
        self,
        call: Call,
        lane: UpstreamRequest,
        asking: "asyncio.Task[None]",
        reservation: Reservation | None,
    ) -> None:
        cost_usd, count = NOT_SPENT, call.count_later
        try:
            await asking
            await self._announcements.stored(call, lane)
            record = self._records.record(call, lane, "speculation")
            cost_usd = record.cost_usd
            if count is not None:
                count(record.input_tokens + record.output_tokens)
        finally:
            self._on.spending.settle(reservation, cost_usd)
        log_finished(lane, record)
        await self._records.book([record])
        if self._on.charge is not None:
            await self._on.charge(record.call_id, record.attribution, record.cost_usd)

    def _booked(self, booking: "asyncio.Task[None]") -> None:
        del self._bookings[booking]
        if not booking.cancelled() and (error := booking.exception()) is not None:
            log.error("trailing_request_not_booked", reason=repr(error))
