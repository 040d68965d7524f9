"""Turns errors of the console's pages into a page."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from hocket.admin.console.error_pages import error_page, refusal, wants_page
from hocket.admin.console.pending_approvals import count_approvals
from hocket.admin.console.rendering import BASE
from hocket.admin.requests.errors import reason_of, told_of
from hocket.schemas.checks.plain_json import shown_text
from hocket.schemas.errors import HocketError, RunUnknown
from hocket.schemas.subjects import TOKEN


def named_tenant(tenant: Annotated[str, Query(pattern=f"^({TOKEN.pattern})?$")] = "") -> str:
    """Accept the tenant named in a URL if it can be one; the caller has already been admitted for it."""
    return tenant


def page_router() -> APIRouter:
    """Return a router of pages, all of which may name a tenant."""
    return APIRouter(
        prefix=BASE,
        include_in_schema=False,
        route_class=PageRoute,
        dependencies=[Depends(named_tenant), Depends(count_approvals)],
    )


class PageRoute(APIRoute):
    """A route that shows errors to people: what went wrong, and what to do."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handler(request)
            except Exception as error:
                if isinstance(error, HTTPException) or not wants_page(request.scope):
                    raise
                return _page(request, error)

        return answer


def _page(request: Request, error: Exception) -> Response:
    if isinstance(error, RequestValidationError):
        told = _told(error.errors())
        if isinstance(told, str):
            return error_page(request.scope, 422, told)
    else:
        told = error if isinstance(error, HocketError) else told_of(request, error)
    return refusal(request.scope, told)


def _told(faults: Sequence[Any]) -> HocketError | str:
    """Say what is wrong with the first parameter. Of one that may have several forms, the first is to be
    empty, and the last says most."""
    field = faults[0]["loc"][:2]
    if field == ("path", "run_id"):
        return RunUnknown(run_id=shown_text(str(faults[0]["input"])))
    last = [fault for fault in faults if fault["loc"][:2] == field][-1]
    return f"`{field[-1]}` is not valid: {reason_of(last)}."
