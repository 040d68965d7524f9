"""One attempt of a call at a replica: its money, its slot, its announcement, the answer, its record.

A model may hedge: where the answer takes longer than such calls usually do, a second replica is asked
too (`hedged_request.py`), if one has a free place at once and the budget allows it; whichever loses is
stopped and booked as speculation. Every request that reached a backend leaves one usage record: the
first under the call's id, repeats with `:r1`, `:r2` ..., the second of a hedge with `:h` behind that,
and `:t1` ... in between where a gateway was killed on the way.
"""

import asyncio
import logging
from collections.abc import Callable
from decimal import Decimal

import structlog

from hocket.gateway.accounting.spending import NOT_SPENT, Spending
from hocket.gateway.backends.protocol import Backend, BackendError
from hocket.gateway.calls import upstream
from hocket.gateway.calls.call import AttemptResult, Call, UsageRecorder
from hocket.gateway.calls.cancellation import Cancellation
from hocket.gateway.calls.hedged_request import HedgedRequest, UpstreamRequest
from hocket.gateway.capacity.scheduler import CallScheduler
from hocket.gateway.capacity.slot import PlacementRequest, Slot
from hocket.gateway.config.routes import Routes
from hocket.gateway.core.budgets.budget import Reservation
from hocket.gateway.core.calls import request_content
from hocket.gateway.core.calls.decisions import kept
from hocket.gateway.core.calls.hedging import HedgeTokens
from hocket.gateway.core.calls.records import UsageKind, call_reply, usage_record
from hocket.gateway.core.config.table import ModelSpec
from hocket.gateway.core.errors import CallStopped, HookFailed
from hocket.gateway.core.routing.history import Kind
from hocket.gateway.core.routing.routing import CallFacts
from hocket.gateway.hooks.builder import hooks_for
from hocket.gateway.hooks.chain import Listening, Prepared, prepared
from hocket.gateway.metrics import GatewayMetrics
from hocket.schemas.errors import ErrorClass, HocketError
from hocket.schemas.messages import (
    CallOpened,
    Priority,
    UsageRecord,
)

log = structlog.get_logger()

MAX_EXPECTED_USD = 1e11
"""More than this nothing is said to cost beforehand."""
MAX_TURNS = 8
"""Gateways that begin one call after each other, because the one before was killed."""


class Attempts:
    """Makes attempts over the routes of the moment."""

    def __init__(
        self,
        routes: Callable[[], Routes],
        scheduler: CallScheduler,
        spending: Spending,
        books: UsageRecorder,
        *,
        now_ms: Callable[[], float],
        gateway: str,
        metrics: GatewayMetrics | None,
    ) -> None:
        self._routes = routes
        self._scheduler = scheduler
        self._spending = spending
        self._books = books
        self._now_ms = now_ms
        self._gateway = gateway
        self._metrics = metrics
        self._hedge_tokens: dict[str, HedgeTokens] = {}
        self._behind: dict[asyncio.Task[None], Cancellation] = {}
        """Requests that lost against another and are read on, with what they are booked by."""

    async def make(self, call: Call, model: ModelSpec) -> AttemptResult | None:
        """Make an attempt within the budgets of the call; None where every replica was tried."""
        kind = call.kind
        prices = (spec.prices for spec in model.backends)
        reservation = await self._spending.reserve(call.request, kind, prices, call.cancellation)
        cost_usd = NOT_SPENT
        try:
            place = await self._scheduler.place(self._wish(call, kind), call.cancellation)
            if place is None:
                return None
            first = UpstreamRequest(
                call.tail, call.turn, call.cancellation, call.relay, call.because, place
            )
            await self._prepare(call, first, place)
            await self._announce(call, first, place, reservation)
            lane, other, behind = await self._answered(call, model, kind, first)
            if behind is not None and other is not None:
                owed = reservation if other is first else None
                self._book_behind(call, other, behind, owed)
                reservation = None if other is first else reservation
                other = None
            await self._stored(call, lane, other)
            accepted = (
                lane.error is not None or call.accepts is None or call.accepts(lane.completion)
            )
            records = [self._record(call, lane, "call" if accepted else "cascade")]
            if other is not None:
                records.append(self._record(call, other, "speculation" if other.lost else "call"))
            if reservation is not None:
                cost_usd = records[0 if lane is first else 1].cost_usd
            learning = (call, kind, lane, records[0].cost_usd)
            asyncio.get_running_loop().call_soon(self._learn, *learning)  # the answer goes first
        finally:
            self._spending.settle(reservation, cost_usd)
        call.attempts += 1
        call.backend = records[0].backend
        call.queue_ms += place.queue_ms
        call.cost_usd += sum((record.cost_usd for record in records), NOT_SPENT)
        for one, record in zip((lane, other), records, strict=False):
            _log(one, record)
        await self._book(records)
        move_on = isinstance(lane.error, BackendError) and lane.error.may_move_on
        move_on = move_on and not call.began and not call.cancellation.asked
        reply = call_reply(call.request, records[0], lane.completion, lane.error)
        return AttemptResult(reply, move_on, accepted, records[0].latency_ms)

    async def _prepare(self, call: Call, lane: UpstreamRequest, place: Slot) -> None:
        """Let the hooks for a replica see the call; raise HookFailed where one does not let it go."""
        routes = self._routes()
        if not routes.hooks:
            return
        aliases = routes.table.aliases
        names = {aliases.get(name, name) for name in (call.model, call.request.model)}
        hooks = hooks_for(routes.hooks, place.spec, names)
        if not hooks:
            return
        key = tuple(one.rule.where for one in hooks)
        try:
            lane.prepared = call.prepared.get(key)
            if lane.prepared is None:
                lane.prepared = await prepared(hooks, call.request, self._metrics)
                call.prepared[key] = lane.prepared
        except BaseException:
            place.release(unused=True)
            raise

    async def _announce(
        self, call: Call, lane: UpstreamRequest, place: Slot, reservation: Reservation | None
    ) -> None:
        """Say that a backend is about to be asked, where it charges for it although we are killed."""
        if place.spec.kind == "function":
            return
        expected_usd = reservation.estimate.usd if reservation is not None else 0.0
        try:
            lane.announced = await self._books.open(self._opened(call, lane, place, expected_usd))
        except BaseException:
            place.release(unused=True)
            raise

    async def _stored(self, call: Call, *lanes: UpstreamRequest | None) -> None:
        """Wait until the announcements of lanes are stored; one that another gateway had made before us
        is made again, under an id of our own."""
        for lane in lanes:
            if lane is None or lane.announced is None or lane.place is None:
                continue
            while not await lane.announced.first() and call.turn < MAX_TURNS:
                call.turn += 1
                lane.turn = call.turn
                lane.announced = await self._books.open(self._opened(call, lane, lane.place, 0.0))

    def _opened(
        self, call: Call, lane: UpstreamRequest, place: Slot, expected_usd: float
    ) -> CallOpened:
        return CallOpened(
            call_id=call.request.call_id + lane.suffix,
            attribution=call.request.attribution,
            model=call.request.model,
            backend=place.spec.name,
            replica=place.spec.replica,
            gateway=self._gateway,
            expected_usd=Decimal(f"{min(expected_usd, MAX_EXPECTED_USD):.9f}"),
            started_at_ms=self._now_ms(),
            deadline_at_ms=call.request.deadline_at_ms,
        )

    # ---- one request, or two ------------------------------------------------------------------

    async def _answered(
        self, call: Call, model: ModelSpec, kind: Kind, first: UpstreamRequest
    ) -> tuple[UpstreamRequest, UpstreamRequest | None, "asyncio.Task[None] | None"]:
        """Return the lane whose answer counts, the other one where there was one, and its request
        where that goes on."""
        assert first.place is not None
        left_ms = call.request.deadline_at_ms - self._now_ms()
        with upstream.timed_out_at_deadline(call.cancellation, first.place.spec, left_ms):
            delay_ms = self._hedge_after_ms(call, model, kind, first)
            if delay_ms is not None:
                return await self._hedged(call, model, kind, first, delay_ms)
            await self._ask(call, first)
            return first, None, None

    async def _hedged(
        self, call: Call, model: ModelSpec, kind: Kind, first: UpstreamRequest, delay_ms: float
    ) -> tuple[UpstreamRequest, UpstreamRequest | None, "asyncio.Task[None] | None"]:
        first.cancellation = Cancellation()
        because = f"hedge: no answer of {call.model} within {delay_ms:.0f} ms"
        second = UpstreamRequest(first.tail + ":h", first.turn, because=because)
        hedged = HedgedRequest(first, second, call.cancellation, call.relay)

        async def ask(lane: UpstreamRequest) -> None:
            await self._ask(call, lane)

        async def join(lane: UpstreamRequest) -> None:
            await self._join(call, model, kind, lane)

        racing = asyncio.ensure_future(hedged.run(ask, join, delay_ms))
        reads_on = any(spec.reads_on for spec in model.backends)
        lane, other = await call.cancellation.guard(
            racing,
            reads_on_ms=upstream.READ_ON_MS if reads_on else 0.0,
            followers=(first.cancellation, second.cancellation),
        )
        if other is not None and self._metrics is not None:
            self._metrics.hedges.labels(call.model, "won" if lane is second else "lost").inc()
        return lane, other, hedged.behind

    def _book_behind(
        self,
        call: Call,
        lane: UpstreamRequest,
        asked: "asyncio.Task[None]",
        reservation: Reservation | None,
    ) -> None:
        """Book the request that lost when it has been read on."""

        async def book() -> None:
            cost_usd = NOT_SPENT
            try:
                await asked
                await self._stored(call, lane)
                record = self._record(call, lane, "speculation")
                cost_usd = record.cost_usd
            finally:
                self._spending.settle(reservation, cost_usd)
            _log(lane, record)
            await self._books.book(record)

        booking = asyncio.create_task(book(), name="request behind")
        self._behind[booking] = lane.cancellation
        booking.add_done_callback(self._booked_behind)

    def _booked_behind(self, booking: "asyncio.Task[None]") -> None:
        del self._behind[booking]
        if not booking.cancelled() and (error := booking.exception()) is not None:
            log.error("request_behind_not_booked", reason=repr(error))

    async def settle_behind(self, timeout_ms: float) -> None:
        """End what is still read on, and give it so long to be booked."""
        for cancellation in self._behind.values():
            cancellation.hurry()
        if self._behind:
            await asyncio.wait(set(self._behind), timeout=timeout_ms / 1000)

    def _hedge_after_ms(
        self, call: Call, model: ModelSpec, kind: Kind, first: UpstreamRequest
    ) -> float | None:
        rule = model.hedge
        assert first.place is not None
        if rule is None or first.place.spec.kind == "function" or len(model.backends) < 2:
            return None
        tokens = self._hedge_tokens.get(call.model)
        if tokens is None or tokens.rule != rule:
            tokens = self._hedge_tokens[call.model] = HedgeTokens(rule)
        tokens.earn()
        return rule.delay_ms(self._scheduler.durations, kind) if rule.suits(call.request) else None

    async def _join(self, call: Call, model: ModelSpec, kind: Kind, lane: UpstreamRequest) -> None:
        """Ask another replica of the model too, if one has a free place and there is money for it."""
        if not self._hedge_tokens[call.model].take():
            return
        reservation, cost_usd = None, NOT_SPENT
        try:
            prices = (spec.prices for spec in model.backends)
            reservation = await self._spending.reserve(
                call.request, kind, prices, lane.cancellation
            )
            place = self._scheduler.place_now(
                self._wish(call, kind), frozenset(spec.key for spec in model.backends)
            )
            if place is None:
                return
            await self._prepare(call, lane, place)
            await self._announce(call, lane, place, reservation)
            lane.place = place
            await self._ask(call, lane)
            cost_usd = self._record(call, lane, "speculation").cost_usd
        except HocketError as error:
            log.info("hedge_not_made", call_id=call.request.call_id, reason=str(error))
        finally:
            self._spending.settle(reservation, cost_usd)

    async def _ask(self, call: Call, lane: UpstreamRequest) -> None:
        """Ask the replica of a lane once, and note what came of it."""
        place = lane.place
        assert place is not None
        spec = place.spec
        lane.before = tuple(call.tried)
        call.tried.append(spec.key)
        lane.started_ms = self._now_ms()
        try:
            async with self._routes().served[spec.key] as backend:
                timeout_ms = min(call.request.deadline_at_ms - lane.started_ms, spec.timeout_ms)
                if lane.prepared is None:
                    lane.completion, lane.error = await upstream.asked(
                        backend, call.request, lane, timeout_ms, lane.relay
                    )
                else:
                    await self._ask_prepared(backend, lane, lane.prepared, timeout_ms)
        except BaseException:
            lane.error = CallStopped(reason="the gateway gave up")
            raise
        finally:
            lane.latency_ms = self._now_ms() - lane.started_ms
            if lane.completion.estimated:
                lane.completion = upstream.used(call.request, lane)
            if lane.error is not None:
                self._note_rest(spec.key, lane.error)
            place.release(lane.error)

    async def _ask_prepared(
        self, backend: Backend, lane: UpstreamRequest, call: Prepared, timeout_ms: float
    ) -> None:
        """Ask for a call as hooks left it, and let them see the answer."""
        listening = Listening(call, self._metrics)
        chunks = None if lane.relay is None else listening.relayed(lane.relay)
        lane.completion, lane.error = await upstream.asked(
            backend, call.request, lane, timeout_ms, chunks
        )
        if lane.error is None:
            try:
                lane.completion = await listening.finished(lane.completion, lane.relay)
            except HookFailed as error:
                lane.error = error

    def _note_rest(self, key: str, error: HocketError) -> None:
        retry_at_ms = error.fields.get("retry_at_ms")
        if error.error_class is ErrorClass.RATE_LIMITED and retry_at_ms is not None:
            self._scheduler.health.rest(key, retry_at_ms)

    def _wish(self, call: Call, kind: Kind) -> PlacementRequest:
        request, requires = call.request, call.request.requires
        return PlacementRequest(
            CallFacts(
                kind[0],
                fast=self._scheduler.is_fast(kind, request_content.embeds(request)),
                urgent=request.priority is Priority.INTERACTIVE,
                tried=tuple(call.tried),
                min_quality=requires.min_quality,
                labels=tuple(requires.labels.items()),
                residency=requires.residency,
                prompt=call.prompt,
                until_ms=request.deadline_at_ms,
                tenant=request.attribution.tenant,
                fields=call.fields,
            ),
            kind,
            request.priority,
            request.deadline_at_ms,
            useful_until_ms=request.useful_until_ms,
        )

    # ---- what is left of it -------------------------------------------------------------------

    def _learn(self, call: Call, kind: Kind, lane: UpstreamRequest, cost_usd: Decimal) -> None:
        """Take in what an answer tells of its replica, and of what such calls cost."""
        if lane.place is None:
            return
        if lane.error is None:
            place = lane.place
            self._scheduler.caches.metered(
                place.spec.key, place.cached_tokens, lane.completion.cached_tokens
            )
        read_on = lane.cancellation.asked and not lane.completion.estimated
        if cost_usd and (lane.error is None or read_on):
            self._spending.learn(call.request, kind, lane.place.spec.prices, cost_usd)

    def _record(self, call: Call, lane: UpstreamRequest, usage: UsageKind) -> UsageRecord:
        place = lane.place
        assert place is not None
        return usage_record(
            call.request,
            place.spec,
            lane.completion,
            lane.error,
            suffix=lane.suffix,
            started_ms=lane.started_ms,
            latency_ms=lane.latency_ms,
            kind=usage,
            decision=kept(
                place.decision, queue_ms=place.queue_ms, tried=lane.before, because=lane.because
            ),
            experiment=call.experiment,
            arm=call.arm,
        )

    async def _book(self, records: list[UsageRecord]) -> None:
        if len(records) == 1:
            await self._books.book(records[0])
        else:
            await asyncio.gather(*map(self._books.book, records))


def _log(lane: UpstreamRequest | None, record: UsageRecord) -> None:
    """Log an attempt; one that went well at the level `debug` only, for its record says all of it."""
    level = logging.DEBUG if record.status == "ok" else logging.INFO
    if lane is None or lane.place is None or not log.is_enabled_for(level):
        return
    log.log(
        level,
        "call_finished",
        call_id=record.call_id,
        kind=record.kind,
        run_id=record.attribution.run_id,
        model=record.model,
        backend=lane.place.spec.key,
        reason=lane.place.decision.reason,
        because=lane.because,
        status=record.status,
        error_code=record.error_code,
        cost_usd=str(record.cost_usd),
        queue_ms=round(lane.place.queue_ms, 3),
        latency_ms=round(record.latency_ms, 3),
    )
