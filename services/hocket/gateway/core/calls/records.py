"""The usage record of one attempt at a backend, and the reply to the caller."""

from decimal import Decimal
from typing import Literal

from hocket.gateway.core.budgets.price import cost
from hocket.gateway.core.config.table import BackendSpec
from hocket.schemas.errors import ErrorClass, ErrorInfo, HocketError
from hocket.schemas.messages import (
    CallRefused,
    CallReply,
    CallRequest,
    Completion,
)
from hocket.schemas.structs.usage import RecordedDecision, RecordedUsage

UsageKind = Literal["call", "cascade", "speculation"]
MAX_REASON_CHARS = 1_000
MAX_NAME_CHARS = 200
_FREE = Decimal(0)


def usage_record(
    request: CallRequest,
    spec: BackendSpec,
    completion: Completion,
    error: HocketError | None,
    *,
    suffix: str,
    started_ms: float,
    latency_ms: float,
    kind: UsageKind = "call",
    decision: RecordedDecision | None = None,
    experiment: str | None = None,
    arm: str | None = None,
) -> RecordedUsage:
    """Return the record of an attempt, with the prices it used. Its cached and written tokens are part
    of its input tokens, as they are billed, whatever the backend reports."""
    prices = spec.prices
    cached_tokens = min(completion.cached_tokens, completion.input_tokens)
    return RecordedUsage(
        call_id=request.call_id + suffix,
        kind=kind,
        attribution=request.attribution,
        model=request.model,
        backend=spec.name,
        replica=spec.replica,
        status=_status(error),
        error_code=None if error is None else error.code,
        input_tokens=completion.input_tokens,
        output_tokens=completion.output_tokens,
        cached_tokens=cached_tokens,
        cache_write_tokens=min(
            completion.cache_write_tokens, completion.input_tokens - cached_tokens
        ),
        input_usd_per_mtok=prices.input_usd_per_mtok or _FREE,
        output_usd_per_mtok=prices.output_usd_per_mtok or _FREE,
        cached_usd_per_mtok=prices.cached_usd_per_mtok,
        cache_write_usd_per_mtok=prices.cache_write_usd_per_mtok,
        request_usd=prices.request_usd or _FREE,
        cost_usd=_cost_usd(spec, completion, error),
        estimated=completion.estimated,
        unpriced=not prices.priced and spec.kind != "function",
        started_at_ms=started_ms,
        latency_ms=max(latency_ms, 0.0),
        experiment=experiment,
        arm=arm,
        decision=decision,
    )


def call_reply(
    request: CallRequest,
    record: RecordedUsage,
    completion: Completion,
    error: HocketError | None,
) -> CallReply:
    """Return the reply to a call from the usage record of its last attempt."""
    return CallReply(
        call_id=request.call_id,
        text=completion.text,
        data=completion.data,
        embeddings=completion.embeddings,
        tool_calls=completion.tool_calls,
        openai=completion.openai,
        model=request.model,
        backend=record.backend,
        input_tokens=completion.input_tokens,
        output_tokens=completion.output_tokens,
        cached_tokens=completion.cached_tokens,
        cache_write_tokens=completion.cache_write_tokens,
        cost_usd=record.cost_usd,
        finish_reason=completion.finish_reason,
        error=None if error is None else error.info(),
    )


def call_refused(
    request: CallRequest, error: ErrorInfo, *, gateway: str, now_ms: float
) -> CallRefused:
    """Return the message that reports a call refused before any backend was asked."""
    return CallRefused(
        call_id=request.call_id,
        attribution=request.attribution,
        model=_plain(request.model)[:MAX_NAME_CHARS],
        error_code=error.code,
        reason=_plain(error.message)[:MAX_REASON_CHARS],
        gateway=gateway,
        refused_at_ms=now_ms,
    )


def _plain(text: str) -> str:
    return text.replace("\0", " ")


def _status(error: HocketError | None) -> Literal["ok", "error", "cancelled"]:
    if error is None:
        return "ok"
    return "cancelled" if error.error_class is ErrorClass.CANCELLED else "error"


def _cost_usd(spec: BackendSpec, completion: Completion, error: HocketError | None) -> Decimal:
    """Return the cost of what the backend metered;
    a failed call without tokens is not charged per request either."""
    if error is not None and not (completion.input_tokens or completion.output_tokens):
        return _FREE
    return cost(
        spec.prices,
        input_tokens=completion.input_tokens,
        output_tokens=completion.output_tokens,
        cached_tokens=completion.cached_tokens,
        cache_write_tokens=completion.cache_write_tokens,
    ).usd
