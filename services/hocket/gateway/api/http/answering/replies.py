"""Replies and errors as HTTP responses."""

from collections.abc import Awaitable, Mapping
from contextlib import suppress
from typing import Any

from aiohttp import web
from pydantic_core import to_json

from hocket.gateway.api.http import identity
from hocket.gateway.api.http.answers import Answers, takes_long
from hocket.gateway.backends.large_work import beside
from hocket.gateway.backends.reply_room import kept_replies
from hocket.gateway.core.protocols.json_parts import written_in_parts
from hocket.gateway.metrics import GatewayMetrics
from hocket.kit.process import clock
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.messages import CallReply
from hocket.schemas.openai.failures import failure

JSON = {"Content-Type": "application/json"}


def headers_of(reply: CallReply) -> dict[str, str]:
    """Return the response headers for a reply; if it is an error, perhaps of no backend."""
    headers = {**ids_of(reply.call_id), "X-Hocket-Cost-Usd": format(reply.cost_usd, "f")}
    if reply.backend:
        headers["X-Hocket-Backend"] = reply.backend
    return headers


def ids_of(call_id: str) -> dict[str, str]:
    """Return the response headers that name a call."""
    return {"x-request-id": call_id, identity.CALL_ID: call_id}


def refusal(error: ErrorInfo, headers: Mapping[str, str] | None = None) -> web.Response:
    """Return the response that reports an error; `headers` say of which call, if there is one."""
    told = failure(error, clock.now_ms())
    return answered(told.body, {**told.headers, **(headers or {})}, told.status)


def answered(
    body: dict[str, Any], headers: Mapping[str, str] | None = None, status: int = 200
) -> web.Response:
    """Return a JSON response."""
    return _response(to_json(body, inf_nan_mode="null"), headers, status)


def _response(content: bytes, headers: Mapping[str, str] | None, status: int = 200) -> web.Response:
    return web.Response(
        body=content, status=status, headers=JSON if headers is None else {**JSON, **headers}
    )


class Failures:
    """Renders errors for callers, and counts them."""

    def __init__(self, metrics: GatewayMetrics) -> None:
        self._metrics = metrics

    def answer(self, error: ErrorInfo, headers: Mapping[str, str] | None = None) -> web.Response:
        """Return the response that reports an error; `headers` say of which call, if there is one."""
        self._metrics.http_failures.labels(error.code).inc()
        return refusal(error, headers)

    def body(self, error: ErrorInfo) -> dict[str, Any]:
        """Return the body that reports an error within a stream."""
        self._metrics.http_failures.labels(error.code).inc()
        return failure(error, clock.now_ms()).body


async def answered_whole(
    request: web.BaseRequest, making: Awaitable[CallReply], answers: Answers, failures: Failures
) -> web.Response:
    """Return the response with the answer to a call that is not begun before, or with its error.

    A large answer is written in a thread and sent here. The room of the backend's reply is kept until
    it is written; what is sent and not read yet is counted by its connection.
    """
    response, is_long = await _whole(making, answers, failures)
    if is_long:
        with suppress(
            ConnectionError
        ):  # the caller has gone; its handler is already being cancelled
            await response.prepare(request)
            await response.write_eof()
        response.body = None  # or it would be held until the next request of the connection
    return response


async def _whole(
    making: Awaitable[CallReply], answers: Answers, failures: Failures
) -> tuple[web.Response, bool]:
    """Return the response to a call, and whether its answer is large."""
    with kept_replies() as kept:
        reply = await making
        if reply.error is not None:
            return failures.answer(reply.error, headers_of(reply)), False
        if not kept.are_long and not takes_long(reply):
            return answered(answers.whole(reply), headers_of(reply)), False
        content = await beside(lambda: written_in_parts(answers.whole(reply)))
        return _response(content, headers_of(reply)), True
