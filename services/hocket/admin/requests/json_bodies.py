"""Parses JSON bodies by the rules of docs/reference/values.md: no duplicate keys, nothing that cannot be
stored."""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from hocket.schemas.checks.plain_json import parse_json
from hocket.schemas.errors import InvalidInput

BODY = "(body)"


class PlainJsonRoute(APIRoute):
    """A route whose body is plain JSON; errors name the place in the body."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await handler(_PlainRequest(request.scope, request.receive))

        return handle


class _PlainRequest(Request):
    async def json(self) -> Any:
        try:
            return parse_json(await self.body(), BODY)
        except InvalidInput as error:
            place = error.fields["field"].removeprefix(f"{BODY}.")
            raise InvalidInput(**{**error.fields, "field": place}) from None
