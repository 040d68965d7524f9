"""What was spent, on what."""

from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import Response

from hocket.admin.console.page_route import page_router
from hocket.admin.console.rendering import render
from hocket.admin.console.views import money
from hocket.admin.context import Ctx
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.permissions import needs
from hocket.schemas.access.roles import Permission

router = page_router()


@router.get("/money")
@needs(Permission.COSTS_READ)
async def console_money(
    request: Request,
    context: Ctx,
    caller: CallerDep,
    days: Annotated[int, Query(ge=1, le=366)] = 7,
) -> Response:
    """Show what the last days cost."""
    of_all = caller.bearer.tenant is None
    spent = await money.spending(context.pool, caller.tenant, days, of_all=of_all)
    values = {
        "section": "Money",
        "days": days,
        "total": spent.total,
        "calls": spent.calls,
        "waste": spent.waste,
        "tables": spent.tables,
        "forecasts": await money.forecasts(context.pool, caller.tenant),
    }
    return render(request, caller, "money.html", values)
