"""What calls of a step to a service have in common, over HTTP or over NATS: whose they are, and how JSON
that came back is read."""

import asyncio
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from urllib.parse import quote

from hocket.schemas.checks.plain_json import parse_json
from hocket.schemas.errors import HocketError, InvalidInput
from hocket.workers.runtime.execution.context import Context

MAX_ANSWER_VALUES = 500_000
"""JSON values in an answer."""
READ_IN_THREAD_BYTES = 100_000


def identity_headers(context: Context) -> dict[str, str]:
    """Return the headers that tell a service which request this is: the same for every attempt of a
    step, so that a service which knows them does it once."""
    step = context.step
    headers = {"idempotency-key": quote(f"{step.run_id}:{step.step}", safe=":/[]#~")}
    if context.traceparent:
        headers["traceparent"] = context.traceparent
    return headers


def charge_request(context: Context, request_usd: Decimal) -> None:
    """Charge a request that was answered, where it has a price."""
    if request_usd:
        context.charge(request_usd)


async def json_value(body: bytes, unreadable: Callable[[str], HocketError]) -> Any:
    """Return the value of JSON, or raise the error of an answer that cannot be read, of the reason."""
    try:
        if len(body) <= READ_IN_THREAD_BYTES:
            return _parsed(body)
        return await asyncio.to_thread(_parsed, body)
    except InvalidInput as error:
        raise unreadable(str(error)) from None


def _parsed(body: bytes) -> Any:
    return parse_json(body, "body", max_values=MAX_ANSWER_VALUES)
