"""Replies and errors as HTTP responses."""

from collections.abc import Mapping
from typing import Any

from aiohttp import web
from pydantic_core import to_json

from hocket.gateway.api.http import identity
from hocket.gateway.metrics import GatewayMetrics
from hocket.kit.process import clock
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.messages import CallReply
from hocket.schemas.openai.failures import failure

JSON = {"Content-Type": "application/json"}


def headers_of(reply: CallReply) -> dict[str, str]:
    """Return the response headers for a reply."""
    return {
        "x-request-id": reply.call_id,
        identity.CALL_ID: reply.call_id,
        "X-Hocket-Backend": reply.backend,
        "X-Hocket-Cost-Usd": str(reply.cost_usd),
    }


def refusal(error: ErrorInfo) -> web.Response:
    """Return the response that reports an error."""
    told = failure(error, clock.now_ms())
    return answered(told.body, told.headers, told.status)


def answered(
    body: dict[str, Any], headers: Mapping[str, str] | None = None, status: int = 200
) -> web.Response:
    """Return a JSON response."""
    return web.Response(
        body=to_json(body, inf_nan_mode="null"),
        status=status,
        headers=JSON if headers is None else {**JSON, **headers},
    )


class Failures:
    """Renders errors for callers, and counts them."""

    def __init__(self, metrics: GatewayMetrics) -> None:
        self._metrics = metrics

    def answer(self, error: ErrorInfo) -> web.Response:
        """Return the response that reports an error."""
        self._metrics.http_failures.labels(error.code).inc()
        return refusal(error)

    def body(self, error: ErrorInfo) -> dict[str, Any]:
        """Return the body that reports an error within a stream."""
        self._metrics.http_failures.labels(error.code).inc()
        return failure(error, clock.now_ms()).body
