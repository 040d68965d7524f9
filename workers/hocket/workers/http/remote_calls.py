"""What a step's calls to services have in common, over HTTP and over NATS: how they identify the step,
what they cost, and how JSON answers are read."""

import asyncio
from collections.abc import Callable
from decimal import Decimal
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote

from hocket.kit.process.clock import now_ms
from hocket.schemas.checks.plain_json import parse_json
from hocket.schemas.errors import HocketError, InvalidInput
from hocket.workers.runtime.execution.context import Context

MAX_ANSWER_VALUES = 500_000
"""The most JSON values in an answer."""
READ_IN_THREAD_BYTES = 100_000
MAX_RETRY_AFTER_S = 86_400.0


def identity_headers(context: Context) -> dict[str, str]:
    """Return the headers that identify a request. They are the same for every attempt of a step, so that
    a service that supports them performs the request once."""
    step = context.step
    headers = {"idempotency-key": quote(f"{step.run_id}:{step.step}", safe=":/[]#~")}
    if context.traceparent:
        headers["traceparent"] = context.traceparent
    return headers


def charge_request(context: Context, request_usd: Decimal) -> None:
    """Charge for a request that was answered, if it has a price."""
    if request_usd:
        context.charge(request_usd)


def retry_at_ms(text: str) -> float | None:
    """Return when a service may be called again (epoch ms), from its `Retry-After` header; at most
    MAX_RETRY_AFTER_S from now. None if there is no such header, or it cannot be read."""
    try:
        if text.strip().isdecimal() and len(text) < 20:
            wait_s = float(text)
        else:
            wait_s = parsedate_to_datetime(text).timestamp() - now_ms() / 1000
    except (ValueError, OverflowError):
        return None
    return now_ms() + 1000 * min(max(wait_s, 0.0), MAX_RETRY_AFTER_S)


async def json_value(body: bytes, unreadable: Callable[[str], HocketError]) -> Any:
    """Return the parsed JSON value, or raise the error that `unreadable` makes from the reason."""
    try:
        if len(body) <= READ_IN_THREAD_BYTES:
            return _parsed(body)
        return await asyncio.to_thread(_parsed, body)
    except InvalidInput as error:
        raise unreadable(str(error)) from None


def _parsed(body: bytes) -> Any:
    return parse_json(body, "body", max_values=MAX_ANSWER_VALUES)
