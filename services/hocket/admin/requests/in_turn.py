"""Lets requests take turns: only a few are processed at once, those of quiet callers first."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hocket.admin.connections import gone_of
from hocket.admin.requests.identity import tenant_of
from hocket.kit.request_turns import Turns


class InTurn:
    """ASGI middleware: a request holds a turn until it is answered, except while its body is arriving.
    If the caller disconnects while it waits, it is not started."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._turns = Turns()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        client = scope.get("client") or ("", 0)
        turn = self._turns.turn(tuple(client), client[0], tenant_of(scope))

        async def heard() -> Message:
            turn.give_back()
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body", False):
                await turn.take()
            return message

        try:
            await turn.take()
            if not gone_of(scope):
                await self._app(scope, heard, send)
        finally:
            turn.give_back()
