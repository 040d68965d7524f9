"""The life of one model call: which models may answer it, how often each is tried, what the caller gets.

Owns retries, and nobody else has any: a backend that failed before any output leads to the next
candidate, and, where the model allows more attempts than it has replicas, after a pause to the same
ones again; never past the deadline or over the budget. A cascade asks its stages in order until an
answer is accepted; a stage that fails leads to the next one. Each attempt (`attempts.py`) is announced
before and booked after, and a reply is returned only when its records are acknowledged, so what a
caller was told is always booked. Every door goes through here.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from hocket.gateway.accounting.spending import Spending
from hocket.gateway.backends.protocol import Chunks
from hocket.gateway.calls.attempt import Attempts
from hocket.gateway.calls.call import AttemptResult, Call, UsageRecorder
from hocket.gateway.calls.cancellation import Cancellation
from hocket.gateway.calls.relay import Relay
from hocket.gateway.capacity.occupancy import UsageTracker
from hocket.gateway.capacity.scheduler import CallScheduler
from hocket.gateway.config.routes import Routes
from hocket.gateway.core.calls.body_fields import check_passed, unusual_fields
from hocket.gateway.core.calls.records import call_refused
from hocket.gateway.core.calls.retries import attempts_of, pause_ms
from hocket.gateway.core.config.table import ModelSpec
from hocket.gateway.core.errors import BudgetExceeded, CallStopped, DeadlinePassed, ModelUnpriced
from hocket.gateway.core.routing.locality import NO_PROMPT, prompt_of
from hocket.gateway.experiments.experiments import Experiments
from hocket.gateway.metrics import GatewayMetrics
from hocket.schemas.errors import ErrorInfo, HocketError
from hocket.schemas.messages import CallReply, CallRequest

__all__ = ["Calls", "UsageRecorder"]

_FINAL = (CallStopped, BudgetExceeded, ModelUnpriced, DeadlinePassed)
"""What a better model cannot help against."""


class Calls:
    """Makes calls over the routes of the moment."""

    def __init__(
        self,
        routes: Routes,
        *,
        now_ms: Callable[[], float],
        books: UsageRecorder,
        gateway: str = "",
        metrics: GatewayMetrics | None = None,
        usage: UsageTracker | None = None,
        experiments: Experiments | None = None,
    ) -> None:
        self._experiments = experiments
        self._routes = routes
        self.scheduler = CallScheduler(routes.table, now_ms, metrics, usage)
        self.spending = Spending(routes.budgets, now_ms)
        self._now_ms = now_ms
        self._books = books
        self._gateway = gateway
        self._metrics = metrics
        self._attempts = Attempts(
            lambda: self._routes,
            self.scheduler,
            self.spending,
            books,
            now_ms=now_ms,
            gateway=gateway,
            metrics=metrics,
        )

    @property
    def routes(self) -> Routes:
        """The routing table in force, with its backends built."""
        return self._routes

    def replace(self, routes: Routes) -> None:
        """Route by another table from now on; calls at backends go on."""
        self._routes = routes
        self.scheduler.replace(routes.table)
        self.spending.use(routes.budgets)
        if self._experiments is not None:
            self._experiments.use(routes.experiments, routes.table)

    async def make(
        self, request: CallRequest, cancellation: Cancellation, chunks: Chunks | None = None
    ) -> CallReply:
        """Make a call and return its reply, with a typed error where it failed; `chunks` gets the
        answer while it is made."""
        call = Call(request, cancellation, self._now_ms(), fields=unusual_fields(request))
        relay = None if chunks is None else Relay(chunks, cancellation)
        assigned = self._experiments.assign(request) if self._experiments is not None else None
        if assigned is not None:
            call.model, call.stage = assigned.arm.model, assigned.because
            call.experiment, call.arm = assigned.experiment.name, assigned.arm.name
        try:
            reply = await self._by_stages(call, relay)
        except HocketError as error:
            reply = self._bare(call, error.info())
            if not call.attempts:
                self._refuse(call, error.info())
        reply = self._told(call, reply)
        if assigned is not None and self._experiments is not None:
            latency_ms = reply.latency_ms - reply.queue_ms
            self._experiments.called(
                assigned, reply.error, asked=call.attempts > 0, latency_ms=latency_ms
            )
        return reply

    async def settle_behind(self, timeout_ms: float) -> None:
        """End requests that are read on although another one won, within a bound."""
        await self._attempts.settle_behind(timeout_ms)

    async def _by_stages(self, call: Call, relay: Relay | None) -> CallReply:
        """Ask the stages of the model, which has one unless it is a cascade, until an answer is
        accepted. Only the last one may speak before its answer is whole."""
        table = self._routes.table
        wanted, before = call.model or call.request.model, call.stage and f", {call.stage}"
        cascade = table.model(wanted).cascade
        stages = (wanted,) if cascade is None else cascade.stages
        for number, stage in enumerate(stages, start=1):
            last = number == len(stages)
            call.model, call.tried, call.prompt = stage, [], NO_PROMPT
            call.relay = relay if last else None
            if cascade is not None:
                call.stage = f"stage {number} of {len(stages)} (`{stage}`){before}"
                call.accepts = None if last else partial(cascade.accepts, call.request)
            made, error = await self._of_stage(call, table.model(stage), last)
            if cascade is not None:
                self._count(call, stage, made, error)
            if made is not None and (last or (made.accepted and error is None)):
                return made.reply
            before = f", as `{stage}` " + ("was not accepted" if error is None else f"gave {error}")
        raise AssertionError("the last stage returns or raises")

    async def _of_stage(
        self, call: Call, model: ModelSpec, last: bool
    ) -> tuple[AttemptResult | None, str | None]:
        """Return what a model made of a call, None where it could not try, and the code of its error.
        Raises where no better model could help."""
        try:
            made = await self._with_retries(call, model)
        except HocketError as error:
            if last or isinstance(error, _FINAL):
                raise
            return None, error.code
        return made, made.reply.error.code if made.reply.error is not None else None

    async def _with_retries(self, call: Call, model: ModelSpec) -> AttemptResult:
        """Make attempts until one is final. Raises where none could be made."""
        made: AttemptResult | None = None
        if call.fields:
            check_passed(call.model, call.fields, model.backends)
        if model.choose == "locality":
            call.prompt = prompt_of(call.request, model.block_tokens)
        attempts, most = 0, attempts_of(model)
        while attempts < most:
            call.because = _because(call, made)
            try:
                tried = await self._attempts.make(call, model)
            except CallStopped:
                raise
            except HocketError:
                if made is None:
                    raise
                break
            if tried is None and model.retries is None:
                break
            if tried is None:
                await self._pause(call, attempts)
                continue
            made, attempts = tried, attempts + 1
            if made.reply.error is None or not made.move_on:
                break
        assert made is not None, "the first attempt is made, or it raises"
        return made

    async def _pause(self, call: Call, attempts: int) -> None:
        """Wait before the same replicas are asked again."""
        left_ms = call.request.deadline_at_ms - self._now_ms()
        wait_ms = min(pause_ms(call.request.call_id, attempts), max(left_ms, 0.0))
        await call.cancellation.guard(asyncio.ensure_future(asyncio.sleep(wait_ms / 1000)))
        call.tried.clear()

    def _count(self, call: Call, stage: str, made: AttemptResult | None, error: str | None) -> None:
        if self._metrics is not None:
            accepted = made is not None and made.accepted
            result = "failed" if error else "accepted" if accepted else "rejected"
            self._metrics.cascade_answers.labels(call.request.model, stage, result).inc()

    def _refuse(self, call: Call, error: ErrorInfo) -> None:
        now_ms = self._now_ms()
        self._books.refuse(call_refused(call.request, error, gateway=self._gateway, now_ms=now_ms))

    def _bare(self, call: Call, error: ErrorInfo) -> CallReply:
        request = call.request
        return CallReply(
            call_id=request.call_id, model=request.model, backend=call.backend, error=error
        )

    def _told(self, call: Call, reply: CallReply) -> CallReply:
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

    def _left(self, call: Call, error: ErrorInfo, now_ms: float) -> dict[str, Any]:
        usual_ms = self.scheduler.durations.of_kind(call.kind, 0.5) or 0.0
        left: dict[str, Any] = {"slack_ms": call.request.deadline_at_ms - now_ms - usual_ms}
        if error.budget_left_usd is None:
            left_usd = self.spending.left_usd(call.request)
            left["budget_left_usd"] = None if left_usd is None else str(left_usd)
        return left


def _because(call: Call, before: AttemptResult | None) -> str:
    """Return why an attempt is made at all."""
    if before is None or before.reply.error is None:
        return call.stage
    retry = f"again after {before.reply.error.code}"
    return f"{call.stage}, {retry}" if call.stage else retry
