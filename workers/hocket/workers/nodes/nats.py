"""The `nats` node: one request to a configured service over NATS, checked and bounded."""

import asyncio
from collections.abc import Mapping
from typing import Any

from nats.aio.msg import Msg
from nats.errors import (
    ConnectionClosedError,
    MaxPayloadError,
    NoRespondersError,
    OutboundBufferLimitError,
)
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NatsTimeoutError

from hocket.schemas.checks.plain_json import shown_text
from hocket.schemas.errors import HocketError, InvalidInput
from hocket.workers.call_time import call_time_ms
from hocket.workers.http.remote_calls import (
    charge_request,
    identity_headers,
    json_value,
    text_value,
)
from hocket.workers.http.remote_errors import MAX_REASON_CHARS, reason_of
from hocket.workers.nats.client import MAX_HEADER_BYTES, UnreadHeaders
from hocket.workers.nats.errors import (
    NatsAnswerTooLarge,
    NatsAnswerUnreadable,
    NatsFailed,
    NatsNoResponders,
    NatsNotAuthorized,
    NatsRateLimited,
    NatsRejected,
    NatsTimeout,
    NatsUnreachable,
)
from hocket.workers.nats.requests import TEXT, NatsRequest, request_of
from hocket.workers.nats.services import NatsService, NatsServices
from hocket.workers.runtime.execution.context import Context

MAX_SHOWN_HEADERS = 50
ERROR, ERROR_CODE = "nats-service-error", "nats-service-error-code"
"""The headers with which services report errors (NATS ADR-32)."""
_UNAUTHORIZED = ("401", "403")
_TRANSIENT = ("408", "425")


class NatsNode:
    """Sends requests to the configured services."""

    def __init__(self, services: NatsServices) -> None:
        self._services = services

    async def __call__(self, context: Context) -> dict[str, Any]:
        """Return `{headers, body}`; the body is the parsed JSON, or text if the answer's `content-type`
        says so, or None if there is none."""
        config = context.config
        service = self._services.get(config["service"], context.tenant)
        request = request_of(config, context.input, service)
        left_ms = call_time_ms(context)
        component = f"nats:{service.name}"
        try:
            async with asyncio.timeout(left_ms / 1000):
                answer = await _asked(service, request, identity_headers(context), left_ms)
        except (TimeoutError, NatsTimeoutError) as error:
            raise NatsTimeout(timeout_ms=round(left_ms), component=component) from error
        charge_request(context, service.settings.request_usd)
        limit = service.settings.max_bytes
        if len(answer.data) > limit:
            raise NatsAnswerTooLarge(limit_bytes=limit, component=component)
        if isinstance(answer.headers, UnreadHeaders):
            reason = f"its headers have more than {MAX_HEADER_BYTES} bytes"
            raise NatsAnswerUnreadable(reason=reason, component=component)
        headers = {str(name).lower(): str(value) for name, value in (answer.headers or {}).items()}
        if ERROR in headers or ERROR_CODE in headers:
            raise _refused(headers, component)
        shown = [name for name in headers if not name.startswith("nats-")][:MAX_SHOWN_HEADERS]
        return {
            "headers": {shown_text(name): shown_text(headers[name], 2_000) for name in shown},
            "body": await _value(headers.get("content-type", ""), answer.data, component),
        }


async def _asked(
    service: NatsService, request: NatsRequest, identity: Mapping[str, str], left_ms: float
) -> Msg:
    component = f"nats:{service.name}"
    connection = await service.connection()
    try:
        return await connection.request(
            request.subject,
            request.body,
            timeout=left_ms / 1000,
            headers={**request.headers, **identity},
        )
    except NatsTimeoutError:
        raise
    except NoRespondersError as error:
        raise NatsNoResponders(subject=request.subject, component=component) from error
    except MaxPayloadError as error:
        raise InvalidInput(
            field="body",
            reason="it is larger than the service's servers accept",
            cure="Send less.",
        ) from error
    except (ConnectionClosedError, OutboundBufferLimitError, NatsError, OSError) as error:
        raise NatsUnreachable(reason=reason_of(error), component=component) from error


def _refused(headers: Mapping[str, str], component: str) -> HocketError:
    """Return the typed error for a service's error, whose codes are those of HTTP."""
    status = shown_text(headers.get(ERROR_CODE, "").strip() or "without a code", 20)
    reason = shown_text(
        headers.get(ERROR, "").strip() or "it gives no further details.", MAX_REASON_CHARS
    )
    fields: dict[str, Any] = {"status": status, "reason": reason, "component": component}
    if status == "429":
        return NatsRateLimited(**fields)
    if status in _UNAUTHORIZED:
        return NatsNotAuthorized(**fields)
    if len(status) == 3 and status.startswith("4") and status not in _TRANSIENT:
        return NatsRejected(**fields)
    return NatsFailed(**fields)


async def _value(kind: str, body: bytes, component: str) -> Any:
    if not body:
        return None
    if TEXT.match(kind):
        return await text_value(body)
    return await json_value(
        body, lambda reason: NatsAnswerUnreadable(reason=reason, component=component)
    )
