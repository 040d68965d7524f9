"""Refuses request bodies over a size limit before they are read completely, and those for which there is
no room beside the other bodies in progress."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hocket.admin.requests.errors import error_response
from hocket.schemas.errors import ErrorClass, HocketError, PayloadTooLarge

MAX_BODIES_BYTES = 128 * 1_048_576
"""The total size of the bodies of all requests in progress."""


class BodiesFull(HocketError):
    """The API already holds {limit_bytes} bytes of bodies and has no room for this one now. Try again
    after `Retry-After`."""

    code = "bodies_full"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True


class BodyLimit:
    """ASGI middleware: answers 413 if the declared or received length exceeds the limit, and 503 if all
    bodies together would exceed MAX_BODIES_BYTES."""

    def __init__(
        self, app: ASGIApp, *, limit_bytes: int, together_bytes: int = MAX_BODIES_BYTES
    ) -> None:
        self._app = app
        self._limit_bytes = limit_bytes
        self._together_bytes = together_bytes
        self._held_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > self._limit_bytes:
            await error_response(self._too_large(int(announced)).info())(scope, receive, send)
            return
        received = 0

        async def limited() -> Message:
            nonlocal received
            message = await receive()
            more = len(message.get("body", b""))
            received += more
            self._held_bytes += more
            if received > self._limit_bytes:
                raise self._too_large(received)
            if self._held_bytes > self._together_bytes:
                raise BodiesFull(limit_bytes=self._together_bytes)
            return message

        try:
            await self._app(scope, limited, send)
        finally:
            self._held_bytes -= received

    def _too_large(self, size_bytes: int) -> HocketError:
        return PayloadTooLarge(size_bytes=size_bytes, limit_bytes=self._limit_bytes)
