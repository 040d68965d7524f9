"""The life of one model call: get a place, ask its backend, book it, answer, or ask the next one.

Owns retries, and nobody else has any: a backend that failed before any output leads to the next
candidate, and, where the model allows more attempts than it has replicas, after a pause to the same
ones again; never past the deadline or over the budget. Every attempt that reached a backend is one
usage record (the first under the call's id, the next ones with `:r1`, `:r2` ...). That it is about to
be made is stored before: a call whose gateway is killed is known, and whoever makes it again books it
under an id of its own (`:t1` ...). A reply is returned only when its records are acknowledged, so what
a caller was told is always booked. Every door goes through here.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Protocol

import structlog

from hocket.gateway.backends.protocol import Backend, BackendError, Chunks
from hocket.gateway.cancellation import Cancellation
from hocket.gateway.core import asked
from hocket.gateway.core.budget import Reservation
from hocket.gateway.core.decisions import kept
from hocket.gateway.core.errors import CallStopped
from hocket.gateway.core.history import Kind
from hocket.gateway.core.locality import NO_PROMPT, Prompt, prompt_of
from hocket.gateway.core.records import call_refused, call_reply, usage_record
from hocket.gateway.core.retrying import attempts_of, pause_ms
from hocket.gateway.core.routing import CallFacts
from hocket.gateway.core.table import ModelSpec
from hocket.gateway.floor import Floor, Place, Wish
from hocket.gateway.metrics import GatewayMetrics
from hocket.gateway.relay import Relay
from hocket.gateway.routes import Routes
from hocket.gateway.spending import NOT_SPENT, Spending
from hocket.schemas.errors import ErrorClass, ErrorInfo, HocketError
from hocket.schemas.messages import (
    CallOpened,
    CallRefused,
    CallReply,
    CallRequest,
    Completion,
    UsageRecord,
)

log = structlog.get_logger()

MAX_TURNS = 8
"""Gateways that begin one call after each other, because the one before was killed."""


class Books(Protocol):
    """Where calls are booked; `open` and `book` return once the record is stored."""

    async def open(self, opened: CallOpened) -> bool:
        """Store that a call is about to be made; tell whether it was not opened before."""
        ...

    async def book(self, record: UsageRecord) -> None:
        """Store what a call used."""
        ...

    def refuse(self, refused: CallRefused) -> None:
        """Tell that nobody was asked for a call, as well as can be."""
        ...


@dataclass(slots=True)
class _Call:
    """A call on its way: which replicas failed it, what it cost so far, how long it waited."""

    request: CallRequest
    cancellation: Cancellation
    started_ms: float
    tried: list[str] = field(default_factory=list)
    attempts: int = 0
    turn: int = 0
    """How many gateways had the call before."""
    cost_usd: Decimal = Decimal(0)
    queue_ms: float = 0.0
    backend: str = ""
    relay: Relay | None = None
    prompt: Prompt = NO_PROMPT

    @property
    def suffix(self) -> str:
        """What tells this attempt's record from the others of the call."""
        turn = f":t{self.turn}" if self.turn else ""
        return turn + (f":r{self.attempts}" if self.attempts else "")

    @property
    def began(self) -> bool:
        """Whether the caller has seen a part of the answer."""
        return self.relay is not None and self.relay.began


class Calls:
    """Makes calls over the routes of the moment."""

    def __init__(
        self,
        routes: Routes,
        *,
        now_ms: Callable[[], float],
        books: Books,
        gateway: str = "",
        metrics: GatewayMetrics | None = None,
    ) -> None:
        self._routes = routes
        self.floor = Floor(routes.table, now_ms, metrics)
        self.spending = Spending(routes.budgets, now_ms)
        self._now_ms = now_ms
        self._books = books
        self._gateway = gateway

    @property
    def routes(self) -> Routes:
        """The routing table in force, with its backends built."""
        return self._routes

    def replace(self, routes: Routes) -> None:
        """Route by another table from now on; calls at backends go on."""
        self._routes = routes
        self.floor.replace(routes.table)
        self.spending.use(routes.budgets)

    async def make(
        self, request: CallRequest, cancellation: Cancellation, chunks: Chunks | None = None
    ) -> CallReply:
        """Make a call and return its reply, with a typed error where it failed; `chunks` gets the
        answer while it is made."""
        call = _Call(request, cancellation, self._now_ms())
        call.relay = None if chunks is None else Relay(chunks)
        failure: ErrorInfo | None = None
        try:
            model = self._routes.table.model(request.model)
            most = attempts_of(model)
            if model.choose == "locality":
                call.prompt = prompt_of(request, model.block_tokens)
            while call.attempts < most:
                reply, move_on = await self._paid(call, model)
                if reply is None and model.retries is None:
                    break
                if reply is None:
                    await self._pause(call)
                    continue
                if reply.error is None or not move_on:
                    return self._told(call, reply)
                failure = reply.error
        except CallStopped as stopped:
            failure = stopped.info()
        except HocketError as error:
            failure = failure or error.info()
        assert failure is not None
        if not call.attempts:
            now_ms = self._now_ms()
            self._books.refuse(call_refused(request, failure, gateway=self._gateway, now_ms=now_ms))
        bare = CallReply(
            call_id=request.call_id, model=request.model, backend=call.backend, error=failure
        )
        return self._told(call, bare)

    async def _paid(self, call: _Call, model: ModelSpec) -> tuple[CallReply | None, bool]:
        """Make an attempt within the budgets of the call; None where every replica was tried."""
        cost_usd = NOT_SPENT
        kind = _kind(call.request)
        prices = (spec.prices for spec in model.backends)
        reservation = await self.spending.reserve(call.request, kind, prices, call.cancellation)
        try:
            place = await self.floor.place(_wish(call, kind), call.cancellation)
            if place is None:
                return None, False
            await self._open(call, place, reservation)
            record, completion, error = await self._attempt(call, place)
            cost_usd = record.cost_usd
            if error is None:
                self.floor.metered(place, completion)
            if error is None and cost_usd:
                self.spending.learn(call.request, kind, place.spec.prices, cost_usd)
        finally:
            self.spending.settle(reservation, cost_usd)
        _log(call.request, place, record)
        await self._books.book(record)
        move_on = isinstance(error, BackendError) and error.may_move_on and not call.began
        return call_reply(call.request, record, completion, error), move_on

    async def _open(self, call: _Call, place: Place, reservation: Reservation | None) -> None:
        """Store that a backend is about to be asked, where it charges for it although we are killed."""
        if place.spec.kind == "function":
            return
        try:
            while call.turn < MAX_TURNS and not await self._books.open(
                self._opened(call, place, reservation)
            ):
                call.turn += 1
        except BaseException:
            place.give_back(unused=True)
            raise

    def _opened(self, call: _Call, place: Place, reservation: Reservation | None) -> CallOpened:
        expected_usd = reservation.estimate.usd if reservation is not None else 0.0
        return CallOpened(
            call_id=call.request.call_id + call.suffix,
            attribution=call.request.attribution,
            model=call.request.model,
            backend=place.spec.name,
            replica=place.spec.replica,
            gateway=self._gateway,
            expected_usd=Decimal(f"{expected_usd:.9f}"),
            started_at_ms=self._now_ms(),
            deadline_at_ms=call.request.deadline_at_ms,
        )

    async def _pause(self, call: _Call) -> None:
        """Wait before the same replicas are asked again."""
        left_ms = call.request.deadline_at_ms - self._now_ms()
        wait_ms = min(pause_ms(call.request.call_id, call.attempts), max(left_ms, 0.0))
        await call.cancellation.guard(asyncio.ensure_future(asyncio.sleep(wait_ms / 1000)))
        call.tried.clear()

    async def _attempt(
        self, call: _Call, place: Place
    ) -> tuple[UsageRecord, Completion, HocketError | None]:
        """Ask the replica of a place once; return what to book, and what came of it."""
        spec = place.spec
        started_ms = self._now_ms()
        error: HocketError | None = CallStopped(reason="the gateway gave up")
        try:
            async with self._routes.served[spec.key].in_use() as backend:
                timeout_ms = min(call.request.deadline_at_ms - started_ms, spec.timeout_ms)
                completion, error = await _asked(backend, call, timeout_ms)
        finally:
            if error is not None:
                self._note_rest(spec.key, error)
            place.give_back(error)
        record = usage_record(
            call.request,
            spec,
            completion,
            error,
            suffix=call.suffix,
            started_ms=started_ms,
            latency_ms=self._now_ms() - started_ms,
            decision=kept(place.decision, queue_ms=place.queue_ms, tried=tuple(call.tried)),
        )
        call.attempts += 1
        call.tried.append(spec.key)
        call.backend = spec.name
        call.cost_usd += record.cost_usd
        call.queue_ms += place.queue_ms
        return record, completion, error

    def _note_rest(self, key: str, error: HocketError) -> None:
        retry_at_ms = error.fields.get("retry_at_ms")
        if error.error_class is ErrorClass.RATE_LIMITED and retry_at_ms is not None:
            self.floor.rest(key, retry_at_ms)

    def _told(self, call: _Call, reply: CallReply) -> CallReply:
        """Return a reply with what the whole call took and cost, all its attempts included, and an
        error with what is left of time and money, for whoever has to decide what to do."""
        now_ms = self._now_ms()
        changes: dict[str, Any] = {
            "latency_ms": now_ms - call.started_ms,
            "cost_usd": call.cost_usd,
            "queue_ms": call.queue_ms,
        }
        if reply.error is not None:
            changes["error"] = reply.error.model_copy(update=self._left(call, reply.error, now_ms))
        return reply.model_copy(update=changes)

    def _left(self, call: _Call, error: ErrorInfo, now_ms: float) -> dict[str, Any]:
        usual_ms = self.floor.durations.of_kind(_kind(call.request), 0.5) or 0.0
        left: dict[str, Any] = {"slack_ms": call.request.deadline_at_ms - now_ms - usual_ms}
        if error.budget_left_usd is None:
            left_usd = self.spending.left_usd(call.request)
            left["budget_left_usd"] = None if left_usd is None else str(left_usd)
        return left


def _kind(request: CallRequest) -> Kind:
    who = request.attribution
    return (request.model, who.pipeline or "", who.node or "")


def _wish(call: _Call, kind: Kind) -> Wish:
    request, requires = call.request, call.request.requires
    return Wish(
        CallFacts(
            request.model,
            tried=tuple(call.tried),
            min_quality=requires.min_quality,
            labels=tuple(requires.labels.items()),
            residency=requires.residency,
            prompt=call.prompt,
        ),
        kind,
        request.priority,
        request.deadline_at_ms,
        guess_fast=asked.embeds(request),
        useful_until_ms=request.useful_until_ms,
    )


async def _asked(
    backend: Backend, call: _Call, timeout_ms: float
) -> tuple[Completion, HocketError | None]:
    """Return what the backend made, or what it metered together with its error."""
    try:
        call.cancellation.check()
        asking = asyncio.create_task(_completed(backend, call, timeout_ms))
        return await call.cancellation.guard(asking), None
    except BackendError as error:
        return error.spent, error
    except HocketError as error:
        return call.relay.spent if call.relay is not None else Completion(), error


async def _completed(backend: Backend, call: _Call, timeout_ms: float) -> Completion:
    return await backend.call(call.request, timeout_ms=timeout_ms, chunks=call.relay)


def _log(request: CallRequest, place: Place, record: UsageRecord) -> None:
    log.info(
        "call_finished",
        call_id=record.call_id,
        run_id=request.attribution.run_id,
        model=request.model,
        backend=place.spec.key,
        reason=place.decision.reason,
        candidates=[
            (candidate.backend, *candidate.score, candidate.refused)
            for candidate in place.decision.candidates
        ],
        status=record.status,
        error_code=record.error_code,
        cost_usd=str(record.cost_usd),
        queue_ms=round(place.queue_ms, 3),
        latency_ms=round(record.latency_ms, 3),
    )
