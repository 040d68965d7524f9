"""A route that answers the ordinary case of an operation itself, and leaves the rest to the framework.

The framework takes about 500 us per request, whatever the endpoint does. Submitting runs is the most
frequent operation, so its requests come here first. A well-formed request is answered at once; anything
else (an error in the body, an invalid header) is passed on, with its body, to the operation's own route.
So there is still one contract, and one place that words the errors.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

PASSED_ON = "hocket.passed_on"
"""The key in the scope of a request that the framework has to answer."""


@dataclass(frozen=True, slots=True)
class QuickAnswer:
    """A JSON answer; `location` is the path of its resource, if any."""

    status: int
    body: bytes
    location: str | None = None


Answering = Callable[[Scope, bytes], Awaitable[QuickAnswer | None]]
"""Answers a request with this body, or returns None to leave it to the framework. Errors that it raises
become answers as for any endpoint."""


class QuickRoute(BaseRoute):
    """The ordinary case of one operation. It comes before all other routes of `router`, one of which has
    the same path and method."""

    def __init__(self, router: APIRouter, path: str, method: str, answering: Answering) -> None:
        self.path = path
        self._method = method
        self._answering = answering
        self._router: ASGIApp = router

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match a request unless it has been passed on already."""
        if (
            scope["type"] == "http"
            and scope["path"] == self.path
            and scope["method"] == self._method
            and PASSED_ON not in scope
        ):
            return Match.FULL, {"route": self}
        return Match.NONE, {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on with its body."""
        body = await _body_of(scope, receive)
        answer = await self._answering(scope, body)
        if answer is None:
            scope[PASSED_ON] = True
            await self._router(scope, _again(body, receive), send)
            return
        headers = [
            (b"content-length", b"%d" % len(answer.body)),
            (b"content-type", b"application/json"),
        ]
        if answer.location is not None:
            headers.append((b"location", answer.location.encode("ascii")))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})


async def _body_of(scope: Scope, receive: Receive) -> bytes:
    try:
        return await Request(scope, receive).body()
    except ClientDisconnect:
        raise HTTPException(400, "The request ended before its body") from None


def _again(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that replays a body that was already read, then continues with `receive`."""
    given = False

    async def received() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return received
