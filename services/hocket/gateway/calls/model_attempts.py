"""The attempts of a call at one model.

If a backend fails before producing output, the next candidate is asked. If the model allows more
attempts than it has replicas, the same replicas are asked again after a pause. No attempt is made
past the deadline or over the budget.
"""

import asyncio

from hocket.gateway.calls.attempts.attempt import Attempts
from hocket.gateway.calls.call import AttemptResult, Call
from hocket.gateway.calls.dependencies import CallDependencies
from hocket.gateway.core.calls.body_fields import check_passed
from hocket.gateway.core.calls.call_retries import attempts_of, pause_ms
from hocket.gateway.core.config.table import ModelSpec
from hocket.gateway.core.errors import CallStopped
from hocket.gateway.core.routing.locality import prompt_of
from hocket.schemas.errors import HocketError


class ModelAttempts:
    """Makes attempts until one is final."""

    def __init__(self, on: CallDependencies) -> None:
        self._on = on
        self._attempts = Attempts(on)

    async def make(self, call: Call, model: ModelSpec) -> AttemptResult:
        """Make attempts until one is final. Raises if none could be made."""
        made: AttemptResult | None = None
        last: AttemptResult | None = None
        if call.fields:
            check_passed(call.model, call.fields, model.backends)
        if model.choose == "locality":
            call.prompt = prompt_of(call.request, model.block_tokens)
        attempts, most = 0, attempts_of(model)
        while attempts < most:
            call.because = _because(call, last)
            try:
                tried = await self._attempts.make(call, model)
            except CallStopped:
                raise
            except HocketError:
                if made is None:
                    raise
                break
            if tried is None:
                if model.retries is None or not _may_pass(made):
                    break
                await self._pause(call, attempts)
                continue
            made, last, attempts = _telling(made, tried), tried, attempts + 1
            if _is_final(tried):
                break
        assert made is not None, "the first attempt is made, or it raises"
        return made

    async def settle_trailing(self, drain_ms: float, flush_ms: float) -> None:
        """Wait up to `drain_ms` for hedged requests that lost but are still being read,
        then end them."""
        await self._attempts.settle_trailing(drain_ms, flush_ms)

    async def _pause(self, call: Call, attempts: int) -> None:
        """Wait before the same replicas are asked again."""
        left_ms = call.request.deadline_at_ms - self._on.now_ms()
        wait_ms = min(pause_ms(call.request.call_id, attempts), max(left_ms, 0.0))
        await call.cancellation.guard(asyncio.ensure_future(asyncio.sleep(wait_ms / 1000)))
        call.tried.clear()


def _is_final(tried: AttemptResult) -> bool:
    """Return whether no other replica is to be asked."""
    return tried.reply.error is None or not tried.move_on


def _may_pass(made: AttemptResult | None) -> bool:
    """Return whether asking the same replicas again may help."""
    return made is None or made.reply.error is None or made.reply.error.retryable


def _telling(made: AttemptResult | None, tried: AttemptResult) -> AttemptResult:
    """Return the attempt whose reply counts: the last one, unless it only tells that a replica is set
    up wrongly while another one failed for a reason that may pass."""
    if made is None or _is_final(tried):
        return tried
    return made if _may_pass(made) and not _may_pass(tried) else tried


def _because(call: Call, before: AttemptResult | None) -> str:
    """Return the reason for an attempt."""
    if before is None or before.reply.error is None:
        return call.stage
    retry = f"again after {before.reply.error.code}"
    return f"{call.stage}, {retry}" if call.stage else retry
