"""Answers errors of the console's pages with a page."""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from hocket.admin.console.rendering import render
from hocket.admin.requests.errors import status_of
from hocket.schemas.errors import HocketError

HTML = "text/html"


class PageRoute(APIRoute):
    """A route whose errors people read: what went wrong, and what to do."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handler(request)
            except (HocketError, RequestValidationError) as error:
                if HTML not in request.headers.get("accept", ""):
                    raise
                return _page(request, error)

        return answer


def _page(request: Request, error: HocketError | RequestValidationError) -> Response:
    if isinstance(error, HocketError):
        info = error.info()
        status, text = status_of(info), info.message
    else:
        first = error.errors()[0]
        status, text = 422, f"`{first['loc'][-1]}` is not valid: {first['msg']}."
    title = "There is no such thing" if status == 404 else "That did not work"
    values = {"section": "", "title": title, "text": text}
    answer = render(request, None, "error.html", values)
    answer.status_code = status
    return answer
