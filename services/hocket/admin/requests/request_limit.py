"""Refuses requests beyond a limit of concurrent ones: each of them waits, streams or holds a
connection."""

from starlette.types import ASGIApp, Receive, Scope, Send

from hocket.admin.console.error_pages import refusal
from hocket.admin.held_places import HeldPlaces
from hocket.admin.requests.identity import tenant_of
from hocket.admin.requests.strangers import StrangersPlaces, address_of
from hocket.schemas.errors import ErrorClass, HocketError

MAX_REQUESTS = 1_024
"""The maximum number of concurrent requests with a key, including those that wait for a run. Event
streams have their own limit (`live/live_events.py`), and so have requests without a key
(`strangers.py`)."""
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
    """ASGI middleware: answers 503 while `limit` requests of tenants are being answered, and 429 while a
    tenant has its share of them; requests without a key have places of their own. What begins with one
    of `uncounted` is served from memory, and not counted."""

    def __init__(
        self, app: ASGIApp, *, limit: int = MAX_REQUESTS, uncounted: tuple[str, ...] = ()
    ) -> None:
        self._app = app
        self._uncounted = uncounted
        self._tenants = _TenantsPlaces(limit)
        self._strangers = StrangersPlaces()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._is_uncounted(scope["path"]):
            await self._app(scope, receive, send)
            return
        tenant = tenant_of(scope)
        places, name = (self._tenants, tenant) if tenant else (self._strangers, address_of(scope))
        if refused := places.refused(name):
            await refusal(scope, refused)(scope, receive, send)
            return
        places.enter(name)
        counted = True

        def leave() -> None:
            nonlocal counted
            if counted:
                counted = False
                places.leave(name)

        scope[COUNTED] = leave
        try:
            await self._app(scope, receive, send)
        finally:
            leave()

    def _is_uncounted(self, path: str) -> bool:
        return path in ALWAYS or path.startswith(self._uncounted)


class _TenantsPlaces(HeldPlaces):
    """The places of requests with a key, by their tenant."""

    def __init__(self, places: int) -> None:
        super().__init__(places)
        self._of_one = max(1, int(places * TENANT_SHARE))

    def refused(self, tenant: str) -> HocketError | None:
        """Return why there is no place for another request of a tenant; None if there is."""
        if self._taken >= self._places:
            return ApiFull(limit=self._places)
        if self._held[tenant] >= self._of_one:
            return TenantApiFull(limit=self._of_one)
        return None


def stop_counting(scope: Scope) -> None:
    """Stop counting a request: from now on its own limit applies."""
    leave = scope.get(COUNTED)
    if leave is not None:
        leave()
