"""Turns errors of the console's pages into a page."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from hocket.admin.console.rendering import BASE, render
from hocket.admin.requests.errors import reason_of, status_of
from hocket.schemas.errors import HocketError
from hocket.schemas.subjects import TOKEN

HTML = "text/html"


def named_tenant(tenant: Annotated[str, Query(pattern=f"^({TOKEN.pattern})?$")] = "") -> str:
    """Accept the tenant named in a URL if it can be one; the caller has already been admitted for it."""
    return tenant


def page_router() -> APIRouter:
    """Return a router of pages, all of which may name a tenant."""
    return APIRouter(
        prefix=BASE,
        include_in_schema=False,
        route_class=PageRoute,
        dependencies=[Depends(named_tenant)],
    )


class PageRoute(APIRoute):
    """A route that shows errors to people: what went wrong, and what to do."""

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


def _fault(faults: Sequence[Any]) -> str:
    """Say what is wrong with the first parameter. Of one that may have several forms, the first is to be
    empty, and the last says most."""
    field = faults[0]["loc"][:2]
    last = [fault for fault in faults if fault["loc"][:2] == field][-1]
    return f"`{field[-1]}` is not valid: {reason_of(last)}."


def _page(request: Request, error: HocketError | RequestValidationError) -> Response:
    if isinstance(error, HocketError):
        info = error.info()
        status, text = status_of(info), info.message
    else:
        status, text = 422, _fault(error.errors())
    title = "Not found" if status == 404 else "That did not work"
    values = {"section": "", "title": title, "text": text}
    answer = render(request, None, "error.html", values)
    answer.status_code = status
    return answer
