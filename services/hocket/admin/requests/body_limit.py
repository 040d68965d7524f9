"""Refuses request bodies over a limit before they are read whole."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hocket.admin.requests.errors import error_response
from hocket.schemas.errors import HocketError, PayloadTooLarge


class BodyLimit:
    """ASGI middleware: answers 413 where the announced or the received length passes the limit."""

    def __init__(self, app: ASGIApp, *, limit_bytes: int) -> None:
        self._app = app
        self._limit_bytes = limit_bytes

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
            received += len(message.get("body", b""))
            if received > self._limit_bytes:
                raise self._too_large(received)
            return message

        await self._app(scope, limited, send)

    def _too_large(self, size_bytes: int) -> HocketError:
        return PayloadTooLarge(size_bytes=size_bytes, limit_bytes=self._limit_bytes)
