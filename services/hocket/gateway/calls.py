"""One model call, from request to reply: choose a backend, ask it, book it, or ask the next one.

Owns retries: a backend that failed before any output leads to the next candidate while the deadline
allows, and every attempt that reached a backend is one usage record (the first under the call's id,
the next ones with `:r1`, `:r2` ...). A reply is returned only when its records are acknowledged, so
what a caller was told is always booked. Both doors go through here.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeVar

import structlog

from hocket.gateway.backends.protocol import Backend, BackendError
from hocket.gateway.core.errors import BackendsBusy, CallStopped, DeadlinePassed
from hocket.gateway.core.price import cost
from hocket.gateway.core.routing import MAX_ATTEMPTS, BackendSpec, Decision, RoutingTable, choose
from hocket.gateway.places import Places
from hocket.gateway.served import ServedBackend
from hocket.schemas.errors import ErrorClass, ErrorInfo, HocketError
from hocket.schemas.messages import CallReply, CallRequest, Completion, UsageRecord

BUSY_RETRY_MS = 1_000.0
"""What a caller is told to wait where no backend says how long it rests."""

log = structlog.get_logger()

T = TypeVar("T")
Book = Callable[[UsageRecord], Awaitable[None]]
"""Makes a usage record durable; returns once it is acknowledged."""


@dataclass(frozen=True, slots=True)
class Routes:
    """A routing table with its backends built, replaced as a whole on reload."""

    table: RoutingTable
    served: Mapping[str, ServedBackend]


class Cancellation:
    """The way to stop one call: before it reaches a backend, or at the backend."""

    def __init__(self) -> None:
        self.reason = ""
        self._task: asyncio.Task[Any] | None = None

    @property
    def asked(self) -> bool:
        """Whether somebody asked to stop."""
        return bool(self.reason)

    def cancel(self, reason: str) -> None:
        """Stop the call while it waits or is at a backend; booking goes on."""
        self.reason = self.reason or reason
        if self._task is not None:
            self._task.cancel()

    async def guard(self, task: asyncio.Task[T]) -> T:
        """Await what may be stopped; raise CallStopped where it was cancelled through here."""
        self._task = task
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            self._task = None
        if task.cancelled():
            raise CallStopped(reason=self.reason or "the backend gave up")
        return task.result()


class Calls:
    """Makes calls over the routes of the moment."""

    def __init__(self, routes: Routes, *, now_ms: Callable[[], float], book: Book) -> None:
        self.routes = routes
        self.places = Places()
        self._now_ms = now_ms
        self._book = book
        self._resting_until_ms: dict[str, float] = {}

    async def make(self, request: CallRequest, cancellation: Cancellation) -> CallReply:
        """Make a call and return its reply, with a typed error where it failed."""
        started_ms = self._now_ms()
        tried: list[str] = []
        failure: ErrorInfo | None = None
        try:
            while len(tried) < MAX_ATTEMPTS:
                decision = await self._decide(request, tried, cancellation)
                if decision is None or decision.chosen is None:
                    break
                reply, move_on = await self._attempt(request, decision, len(tried), cancellation)
                if reply.error is None or not move_on:
                    return self._timed(reply, started_ms)
                failure = reply.error
                tried.append(decision.chosen)
        except CallStopped as stopped:
            failure = stopped.info()
        except HocketError as error:
            failure = failure or error.info()
        assert failure is not None
        return self._timed(
            CallReply(
                call_id=request.call_id,
                model=request.model,
                backend=tried[-1] if tried else "",
                error=failure,
            ),
            started_ms,
        )

    async def _decide(
        self, request: CallRequest, tried: list[str], cancellation: Cancellation
    ) -> Decision | None:
        """Return a decision with a backend; None where every backend was tried already."""
        waited_for: frozenset[str] = frozenset()
        try:
            while True:
                decision = self._choose(request, tried, cancellation)
                if decision.chosen is not None:
                    return decision
                if decision.hopeless:
                    return None
                waited_for = frozenset(c.backend for c in decision.candidates) - set(tried)
                await self._wait_for_place(request, decision, waited_for, cancellation)
        except HocketError:
            self.places.wake(waited_for)
            raise

    def _choose(
        self, request: CallRequest, tried: list[str], cancellation: Cancellation
    ) -> Decision:
        now_ms = self._now_ms()
        if cancellation.asked:
            raise CallStopped(reason=cancellation.reason)
        if now_ms >= request.deadline_at_ms:
            raise DeadlinePassed(late_ms=round(now_ms - request.deadline_at_ms))
        return choose(
            self.routes.table,
            request.model,
            self.places.in_flight,
            now_ms,
            resting_until_ms=self._resting_until_ms,
            tried=tried,
        )

    async def _wait_for_place(
        self,
        request: CallRequest,
        decision: Decision,
        backends: frozenset[str],
        cancellation: Cancellation,
    ) -> None:
        now_ms = self._now_ms()
        until_ms = min(request.deadline_at_ms, decision.retry_at_ms or request.deadline_at_ms)
        all_rest = all(self._resting_until_ms.get(name, 0.0) > now_ms for name in backends)
        if self.places.full or (all_rest and until_ms >= request.deadline_at_ms):
            raise BackendsBusy(
                model=request.model,
                reason=decision.reason,
                component="gateway",
                retry_at_ms=decision.retry_at_ms or now_ms + BUSY_RETRY_MS,
            )
        waiting = self.places.wait(backends, request.deadline_at_ms, until_ms - now_ms)
        await cancellation.guard(asyncio.create_task(waiting))

    async def _attempt(
        self,
        request: CallRequest,
        decision: Decision,
        ordinal: int,
        cancellation: Cancellation,
    ) -> tuple[CallReply, bool]:
        """Ask the chosen backend once and book it; tell whether the next one may be asked."""
        assert decision.chosen is not None
        served = self.routes.served[decision.chosen]
        spec = served.spec
        started_ms = self._now_ms()
        timeout_ms = min(request.deadline_at_ms - started_ms, spec.timeout_ms)
        async with served.in_use() as backend:
            with self.places.held(spec.name):
                completion, error = await self._ask(backend, request, timeout_ms, cancellation)
        if error is not None:
            self._note_rest(spec.name, error)
        record = _record(
            request, spec, completion, error, ordinal, started_ms, self._now_ms() - started_ms
        )
        log.info(
            "call_finished",
            call_id=record.call_id,
            run_id=request.attribution.run_id,
            model=request.model,
            backend=spec.name,
            reason=decision.reason,
            candidates=[
                (candidate.backend, *candidate.score, candidate.refused)
                for candidate in decision.candidates
            ],
            status=record.status,
            error_code=record.error_code,
            cost_usd=str(record.cost_usd),
            latency_ms=round(record.latency_ms, 3),
        )
        await self._book(record)
        move_on = isinstance(error, BackendError) and error.may_move_on
        return _reply(request, spec, completion, error, record.cost_usd), move_on

    async def _ask(
        self,
        backend: Backend,
        request: CallRequest,
        timeout_ms: float,
        cancellation: Cancellation,
    ) -> tuple[Completion, HocketError | None]:
        """Return what the backend made, or what it metered together with its error."""
        try:
            return await cancellation.guard(
                asyncio.create_task(_called(backend, request, timeout_ms))
            ), None
        except HocketError as error:
            return error.spent if isinstance(error, BackendError) else Completion(), error

    def _note_rest(self, backend: str, error: HocketError) -> None:
        retry_at_ms = error.fields.get("retry_at_ms")
        if error.error_class is ErrorClass.RATE_LIMITED and retry_at_ms is not None:
            self._resting_until_ms[backend] = retry_at_ms

    def _timed(self, reply: CallReply, started_ms: float) -> CallReply:
        return reply.model_copy(update={"latency_ms": self._now_ms() - started_ms})


async def _called(backend: Backend, request: CallRequest, timeout_ms: float) -> Completion:
    return await backend.call(request, timeout_ms=timeout_ms)


def _record(
    request: CallRequest,
    spec: BackendSpec,
    completion: Completion,
    error: HocketError | None,
    ordinal: int,
    started_ms: float,
    latency_ms: float,
) -> UsageRecord:
    prices = spec.prices
    status = "ok" if error is None else "error"
    if error is not None and error.error_class is ErrorClass.CANCELLED:
        status = "cancelled"
    return UsageRecord.model_validate(
        {
            "call_id": request.call_id + (f":r{ordinal}" if ordinal else ""),
            "attribution": request.attribution,
            "model": request.model,
            "backend": spec.name,
            "status": status,
            "error_code": None if error is None else error.code,
            "input_tokens": completion.input_tokens,
            "output_tokens": completion.output_tokens,
            "cached_tokens": completion.cached_tokens,
            "input_usd_per_mtok": prices.input_usd_per_mtok or Decimal(0),
            "output_usd_per_mtok": prices.output_usd_per_mtok or Decimal(0),
            "cached_usd_per_mtok": prices.cached_usd_per_mtok,
            "request_usd": prices.request_usd or Decimal(0),
            "cost_usd": _cost_usd(spec, completion, error),
            "started_at_ms": started_ms,
            "latency_ms": max(latency_ms, 0.0),
        }
    )


def _cost_usd(spec: BackendSpec, completion: Completion, error: HocketError | None) -> Decimal:
    """Return what the backend metered; a failed call without tokens costs no request either."""
    if error is not None and not (completion.input_tokens or completion.output_tokens):
        return Decimal(0)
    return cost(
        spec.prices,
        input_tokens=completion.input_tokens,
        output_tokens=completion.output_tokens,
        cached_tokens=completion.cached_tokens,
    ).usd


def _reply(
    request: CallRequest,
    spec: BackendSpec,
    completion: Completion,
    error: HocketError | None,
    cost_usd: Decimal,
) -> CallReply:
    return CallReply(
        call_id=request.call_id,
        text=completion.text,
        data=completion.data,
        embeddings=completion.embeddings,
        model=request.model,
        backend=spec.name,
        input_tokens=completion.input_tokens,
        output_tokens=completion.output_tokens,
        cached_tokens=completion.cached_tokens,
        cost_usd=cost_usd,
        finish_reason=completion.finish_reason,
        error=None if error is None else error.info(),
    )
