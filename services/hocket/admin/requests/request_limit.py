"""Refuses requests beyond a limit of concurrent ones: each of them waits, streams or holds a
connection."""

from collections import Counter

from starlette.types import ASGIApp, Receive, Scope, Send

from hocket.admin.requests.errors import error_response
from hocket.admin.requests.identity import tenant_of
from hocket.schemas.errors import ErrorClass, HocketError

MAX_REQUESTS = 1_024
"""The maximum number of concurrent requests, including those that wait for a run. Event streams have
their own limit (`live/live_events.py`)."""
TENANT_SHARE = 0.5
"""The share of them that one tenant may have, so that a tenant that waits for or follows many runs does
not lock out others."""
ALWAYS = frozenset({"/healthz", "/readyz", "/v1/health"})
"""Paths that are always answered, because they report the state of the process."""

COUNTED = "hocket.counted"
"""The key in a request's scope of the function that stops counting it."""


class ApiFull(HocketError):
    """The API is already answering {limit} requests at once. Try again after `Retry-After`, wait for
    runs with fewer requests, or start another API process."""

    code = "api_full"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True


class TenantApiFull(HocketError):
    """The API is already answering {limit} requests of this tenant at once. Try again after
    `Retry-After`, or wait for runs with fewer requests."""

    code = "tenant_api_full"
    error_class = ErrorClass.RATE_LIMITED
    retryable = True


class RequestLimit:
    """ASGI middleware: answers 503 while `limit` requests are being answered, and 429 while a tenant has
    its share of them."""

    def __init__(self, app: ASGIApp, *, limit: int = MAX_REQUESTS) -> None:
        self._app = app
        self._limit = limit
        self._tenant_limit = max(1, int(limit * TENANT_SHARE))
        self._answering = 0
        self._by_tenant: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in ALWAYS:
            await self._app(scope, receive, send)
            return
        tenant = tenant_of(scope)
        if refused := self._refused(tenant):
            await error_response(refused.info())(scope, receive, send)
            return
        self._answering += 1
        self._by_tenant[tenant] += 1
        counted = True

        def leave() -> None:
            nonlocal counted
            if counted:
                counted = False
                self._leave(tenant)

        scope[COUNTED] = leave
        try:
            await self._app(scope, receive, send)
        finally:
            leave()

    def _leave(self, tenant: str) -> None:
        self._answering -= 1
        self._by_tenant[tenant] -= 1
        if not self._by_tenant[tenant]:
            del self._by_tenant[tenant]

    def _refused(self, tenant: str) -> HocketError | None:
        if self._answering >= self._limit:
            return ApiFull(limit=self._limit)
        if self._by_tenant[tenant] >= self._tenant_limit:
            return TenantApiFull(limit=self._tenant_limit)
        return None


def stop_counting(scope: Scope) -> None:
    """Stop counting a request: from now on its own limit applies."""
    leave = scope.get(COUNTED)
    if leave is not None:
        leave()
