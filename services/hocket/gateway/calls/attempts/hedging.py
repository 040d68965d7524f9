"""Answers an attempt with one request, or with the faster of two if the model hedges.

If the answer takes longer than usual for such calls, a second replica is also asked
(`hedged_request.py`), provided that one has a free slot at once and the budget allows it.
"""

import asyncio

import structlog

from hocket.gateway.accounting.reservations import NOT_SPENT
from hocket.gateway.calls.attempts import upstream
from hocket.gateway.calls.attempts.announcements import Announcements
from hocket.gateway.calls.attempts.hedged_request import HedgedRequest, UpstreamRequest
from hocket.gateway.calls.attempts.placement import reserved_request
from hocket.gateway.calls.attempts.placement_request import placement_request
from hocket.gateway.calls.attempts.records import AttemptRecords
from hocket.gateway.calls.attempts.replica_requests import ReplicaRequests
from hocket.gateway.calls.call import Call
from hocket.gateway.calls.cancellation import Cancellation
from hocket.gateway.calls.dependencies import CallDependencies
from hocket.gateway.core.calls.hedging import HedgeTokens
from hocket.gateway.core.config.table import ModelSpec
from hocket.gateway.core.routing.history import Kind
from hocket.schemas.errors import HocketError

log = structlog.get_logger()

Answered = tuple[UpstreamRequest, UpstreamRequest | None, "asyncio.Task[None] | None"]
"""The lane whose answer counts, the other lane if it was asked,
and the other's task if that is still running."""


class Hedging:
    """Asks one replica, or two if the first is slow."""

    def __init__(
        self,
        on: CallDependencies,
        requests: ReplicaRequests,
        announcements: Announcements,
        records: AttemptRecords,
    ) -> None:
        self._on = on
        self._requests = requests
        self._announcements = announcements
        self._records = records
        self._tokens: dict[str, HedgeTokens] = {}

    async def answered(
        self, call: Call, model: ModelSpec, kind: Kind, first: UpstreamRequest
    ) -> Answered:
        """Ask the replica of the first lane, and another one if that takes too long."""
        assert first.slot is not None
        spec, left_ms = first.slot.spec, call.request.deadline_at_ms - self._on.now_ms()
        delay_ms = self._delay_ms(call, model, kind, first)
        hedges = delay_ms is not None and not call.cancellation.asked
        reads_on = any(one.reads_on for one in (model.backends if hedges else (spec,)))
        with upstream.timed_out_at_deadline(call.cancellation, spec, left_ms, reads_on=reads_on):
            if delay_ms is not None and hedges:
                return await self._hedged(call, model, kind, first, delay_ms)
            await self._requests.ask(call, first)
            return first, None, None

    async def _hedged(
        self, call: Call, model: ModelSpec, kind: Kind, first: UpstreamRequest, delay_ms: float
    ) -> Answered:
        first.cancellation = Cancellation()
        because = f"hedge: no answer from {call.model} within {delay_ms:.0f} ms"
        second = UpstreamRequest(first.tail + ":h", first.turn, because=because)
        hedged = HedgedRequest(first, second, call.cancellation, call.relay)

        async def ask(lane: UpstreamRequest) -> None:
            await self._requests.ask(call, lane)

        async def join(lane: UpstreamRequest) -> None:
            await self._join(call, model, kind, lane)

        racing = asyncio.ensure_future(hedged.run(ask, join, delay_ms))
        reads_on = any(spec.reads_on for spec in model.backends)
        try:
            lane, other = await call.cancellation.guard(
                racing,
                reads_on_ms=upstream.READ_ON_MS if reads_on else 0.0,
                followers=(first.cancellation, second.cancellation),
            )
        except HocketError:
            if not racing.cancelled():
                raise
            first.cancellation = call.cancellation  # stopped before it began: nobody is asked
            await ask(first)
            return first, None, None
        if other is not None and self._on.metrics is not None:
            self._on.metrics.hedges.labels(call.model, "won" if lane is second else "lost").inc()
        return lane, other, hedged.behind

    def _delay_ms(
        self, call: Call, model: ModelSpec, kind: Kind, first: UpstreamRequest
    ) -> float | None:
        """Return how long to wait before asking a second replica;
        None if no second one is to be asked."""
        rule = model.hedge
        assert first.slot is not None
        if rule is None or first.slot.spec.kind == "function" or len(model.backends) < 2:
            return None
        tokens = self._tokens.get(call.model)
        if tokens is None or tokens.rule != rule:
            tokens = self._tokens[call.model] = HedgeTokens(rule)
        tokens.earn()
        durations = self._on.scheduler.durations
        return rule.delay_ms(durations, kind) if rule.suits(call.request) else None

    async def _join(self, call: Call, model: ModelSpec, kind: Kind, lane: UpstreamRequest) -> None:
        """Also ask another replica of the model, if one has a free slot and the budget allows it."""
        if not self._tokens[call.model].take():
            return
        spending = self._on.spending
        reservation, cost_usd = None, NOT_SPENT
        try:
            prices = (spec.prices for spec in model.backends)
            request = reserved_request(call.request, model.backends)
            reservation = await spending.reserve(request, kind, prices, lane.cancellation)
            lane.is_bounded = reservation is not None and spending.is_strict
            lane.cancellation.check()
            slot = self._on.scheduler.place_now(
                placement_request(call, kind, self._on.scheduler),
                frozenset(spec.key for spec in model.backends),
            )
            if slot is None:
                return
            lane.placed = True
            await self._requests.prepare(call, lane, slot)
            await self._announcements.announce(call, lane, slot, reservation)
            lane.slot = slot
            await self._requests.ask(call, lane)
            cost_usd = self._records.record(call, lane, "speculation").cost_usd
        except HocketError as error:
            log.info("hedge_not_made", call_id=call.request.call_id, reason=str(error))
        finally:
            spending.settle(reservation, cost_usd)
