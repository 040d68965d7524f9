"""The models a call uses: just one, or the stages of a cascade in order until an answer is
accepted.

If a stage fails, the next one is asked. Only the last stage may stream its answer.
"""

from functools import partial

from hocket.gateway.calls.call import AttemptResult, Call
from hocket.gateway.calls.dependencies import CallDependencies
from hocket.gateway.calls.model_attempts import ModelAttempts
from hocket.gateway.calls.relay import Relay
from hocket.gateway.core.calls.cascade import Cascade
from hocket.gateway.core.config.table import ModelSpec
from hocket.gateway.core.errors import BudgetExceeded, CallStopped, DeadlinePassed, ModelUnpriced
from hocket.gateway.core.routing.locality import NO_PROMPT
from hocket.schemas.errors import HocketError
from hocket.schemas.messages import CallReply

_FINAL = (CallStopped, BudgetExceeded, ModelUnpriced, DeadlinePassed)
"""Errors that asking a better model cannot fix."""


class Stages:
    """Makes calls with one model or a cascade of models."""

    def __init__(self, on: CallDependencies) -> None:
        self._on = on
        self._attempts = ModelAttempts(on)

    async def make(self, call: Call, relay: Relay | None) -> CallReply:
        """Ask the model of a call, or the stages of its cascade, and return the reply that counts.

        Raises if no backend could be asked, and for errors that a better model cannot fix.
        """
        wanted = call.model or call.request.model
        model = self._on.routes().table.model(wanted)
        if model.cascade is not None:
            return await self._cascade(call, model.cascade, relay)
        _begin(call, wanted, relay)
        return (await self._made(call, model)).reply

    async def settle_trailing(self, drain_ms: float, flush_ms: float) -> None:
        """Wait up to `drain_ms` for hedged requests that lost but are still being read,
        then end them."""
        await self._attempts.settle_trailing(drain_ms, flush_ms)

    async def _cascade(self, call: Call, cascade: Cascade, relay: Relay | None) -> CallReply:
        table = self._on.routes().table
        before = call.stage and f", {call.stage}"
        for number, stage in enumerate(cascade.stages, start=1):
            last = number == len(cascade.stages)
            _begin(call, stage, relay if last else None)
            call.stage = f"stage {number} of {len(cascade.stages)} (`{stage}`){before}"
            call.accepts = None if last else partial(cascade.accepts, call.request)
            made, error = await self._stage(call, table.model(stage), last)
            self._count(call, stage, made, error)
            if made is not None and (last or (made.accepted and error is None)):
                return made.reply
            before = f", as `{stage}` " + ("was not accepted" if error is None else f"gave {error}")
        raise AssertionError("the last stage returns or raises")

    async def _stage(
        self, call: Call, model: ModelSpec, last: bool
    ) -> tuple[AttemptResult | None, str | None]:
        """Return the result of asking one model (None if it could not try) and the code of its
        error.

        Raises errors that a better model cannot fix.
        """
        try:
            made = await self._made(call, model)
        except HocketError as error:
            if last or isinstance(error, _FINAL):
                raise
            return None, error.code
        return made, made.reply.error.code if made.reply.error is not None else None

    async def _made(self, call: Call, model: ModelSpec) -> AttemptResult:
        """Ask a model once the tenant's rates leave room for the call."""
        rates = self._on.rates
        if rates is None:
            return await self._attempts.make(call, model)
        name = self._on.routes().table.canonical(call.model)
        admission = await rates.admit(call.request, name, call.cancellation)
        call.count_later = partial(rates.add, admission)
        before = call.tokens
        try:
            return await self._attempts.make(call, model)
        finally:
            rates.settle(admission, call.tokens - before)

    def _count(self, call: Call, stage: str, made: AttemptResult | None, error: str | None) -> None:
        if self._on.metrics is not None:
            accepted = made is not None and made.accepted
            result = "failed" if error else "accepted" if accepted else "rejected"
            self._on.metrics.cascade_answers.labels(call.request.model, stage, result).inc()


def _begin(call: Call, model: str, relay: Relay | None) -> None:
    call.model, call.tried, call.prompt, call.relay = model, [], NO_PROMPT, relay
    call.too_dear.clear()
