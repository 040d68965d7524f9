"""Refuses requests beyond those that are answered at once: each waits, streams or holds a connection."""

from starlette.types import ASGIApp, Receive, Scope, Send

from hocket.admin.requests.errors import error_response
from hocket.schemas.errors import ErrorClass, HocketError

MAX_REQUESTS = 1_024
"""Requests that are answered at once, those that wait for a run or follow one included."""
ALWAYS = frozenset({"/healthz", "/readyz", "/v1/health"})
"""What is answered all the same, for it says how things are."""


class ApiFull(HocketError):
    """The API answers {limit} requests at once already. Try again after `Retry-After`, wait for runs
    with fewer requests, or start another API process."""

    code = "api_full"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True


class RequestLimit:
    """ASGI middleware: answers 503 while `limit` requests are being answered."""

    def __init__(self, app: ASGIApp, *, limit: int = MAX_REQUESTS) -> None:
        self._app = app
        self._limit = limit
        self._answering = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in ALWAYS:
            await self._app(scope, receive, send)
            return
        if self._answering >= self._limit:
            await error_response(ApiFull(limit=self._limit).info())(scope, receive, send)
            return
        self._answering += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._answering -= 1
