"""Refuses request bodies over a size limit before they are read completely, and those for which there is
no room beside the other bodies in progress, or those of their tenant."""

from collections import Counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hocket.admin.console.error_pages import refusal
from hocket.admin.requests.identity import tenant_of
from hocket.admin.requests.strangers import MAX_BODY_BYTES
from hocket.schemas.errors import ErrorClass, HocketError, PayloadTooLarge

MAX_BODIES_BYTES = 128 * 1_048_576
"""The total size of the bodies of all requests with a key in progress."""
TENANT_SHARE = 0.5
"""The share of it that one tenant may have, so that a tenant that sends slowly locks out no other."""


class BodiesFull(HocketError):
    """The API already holds {limit_bytes} bytes of bodies and has no room for this one now. Try again
    after `Retry-After`."""

    code = "bodies_full"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True


class TenantBodiesFull(BodiesFull):
    """The API already holds {limit_bytes} bytes of bodies of this tenant. Try again after
    `Retry-After`."""

    code = "tenant_bodies_full"
    error_class = ErrorClass.RATE_LIMITED


class BodyLimit:
    """ASGI middleware: answers 413 if the declared or received length exceeds the limit, 503 if all
    bodies together would exceed MAX_BODIES_BYTES, and 429 if a tenant has its share of them. A body
    without a key may be small only, and is not counted: there are few at once."""

    def __init__(
        self, app: ASGIApp, *, limit_bytes: int, together_bytes: int = MAX_BODIES_BYTES
    ) -> None:
        self._app = app
        self._limit_bytes = limit_bytes
        self._together_bytes = together_bytes
        self._tenant_bytes = max(limit_bytes, int(together_bytes * TENANT_SHARE))
        self._held_bytes = 0
        self._of_tenant = Counter[str]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        received, tenant = 0, tenant_of(scope)
        limit_bytes = self._limit_bytes if tenant else min(MAX_BODY_BYTES, self._limit_bytes)
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > limit_bytes:
            refused = PayloadTooLarge(size_bytes=int(announced), limit_bytes=limit_bytes)
            await refusal(scope, refused)(scope, receive, send)
            return

        async def limited() -> Message:
            nonlocal received
            message = await receive()
            more = len(message.get("body", b""))
            received += more
            if tenant:
                self._held_bytes += more
                self._of_tenant[tenant] += more
            if received > limit_bytes:
                raise PayloadTooLarge(size_bytes=received, limit_bytes=limit_bytes)
            if not tenant:
                return message
            if self._held_bytes > self._together_bytes:
                raise BodiesFull(limit_bytes=self._together_bytes)
            if self._of_tenant[tenant] > self._tenant_bytes:
                raise TenantBodiesFull(limit_bytes=self._tenant_bytes)
            return message

        try:
            await self._app(scope, limited, send)
        finally:
            if tenant:
                self._held_bytes -= received
                self._of_tenant[tenant] -= received
                if not self._of_tenant[tenant]:
                    del self._of_tenant[tenant]
