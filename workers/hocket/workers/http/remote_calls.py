"""What a step's calls to services have in common, over HTTP and over NATS: how they identify the step,
what they cost, and how answers are read."""

import asyncio
import codecs
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
DECODED_AT_ONCE_BYTES = 16_384
"""How much of a text is decoded at once: some encodings take 10 ms for it if no byte is valid."""
_ORDER_MARKS = {
    "utf-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
    "utf-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),
}
"""What a text in these encodings begins with if it says the order of its bytes."""
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


async def text_value(body: bytes, encoding: str = "utf-8") -> str:
    """Return the text in an answer, with a mark in place of what the encoding does not have."""
    name = codecs.lookup(encoding).name
    if name in _ORDER_MARKS and not body.startswith(_ORDER_MARKS[name]):
        encoding = f"{name}-le"  # otherwise the machine's order would count, or none be known
    if len(body) <= DECODED_AT_ONCE_BYTES:
        return body.decode(encoding, "replace")
    return await asyncio.to_thread(_decoded, body, encoding)


def _decoded(body: bytes, encoding: str) -> str:
    """Decode a text in parts, because while one is decoded, nothing else in the process goes on."""
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    starts = range(0, len(body), DECODED_AT_ONCE_BYTES)
    parts = [decoder.decode(body[start : start + DECODED_AT_ONCE_BYTES]) for start in starts]
    return "".join([*parts, decoder.decode(b"", final=True)])


def _parsed(body: bytes) -> Any:
    return parse_json(body, "body", max_values=MAX_ANSWER_VALUES)
