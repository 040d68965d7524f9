"""The page of spending: how much, on what, and from which budgets."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import Response

from hocket.admin.backends.errors import GatewayAway
from hocket.admin.backends.gathering import gathered_budgets
from hocket.admin.console.page_route import page_router
from hocket.admin.console.rendering import render
from hocket.admin.console.shown_sql import shown_sql
from hocket.admin.console.views import money
from hocket.admin.context import Context, Ctx
from hocket.admin.costs.budgets import budgets_of
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.permissions import needs
from hocket.kit.postgres.database import TOO_SLOW
from hocket.schemas.access.roles import Permission
from hocket.schemas.administration.budgets import BudgetUse

router = page_router()


@router.get("/money")
@needs(Permission.COSTS_READ)
async def console_money(
    request: Request,
    context: Ctx,
    caller: CallerDep,
    days: Annotated[int, Query(ge=1, le=366)] = 7,
) -> Response:
    """Show what the last days cost, what of the budgets is spent, and what the month will come to."""
    of_all, tenant = caller.bearer.tenant is None, caller.tenant
    async with context.long_reads.place(tenant):
        spent = await money.spending(context.pool, tenant, days, of_all=of_all)
        month = await money.forecasts(context.pool, tenant)
    values = {
        "section": "Money",
        "days": days,
        "spent": spent,
        "budgets": await _budgets(context, tenant, of_all=of_all),
        "month": month,
    }
    return render(request, caller, "money.html", values)


@dataclass(frozen=True, slots=True)
class Budgets:
    """The budgets shown, how many are left out, and the SQL behind the amounts spent. `is_late`: adding
    up these took too long."""

    shown: tuple[BudgetUse, ...]
    more: int
    sources: list[tuple[str, str]]
    is_late: bool = False


async def _budgets(context: Context, tenant: str, *, of_all: bool) -> Budgets | None:
    """Return the budgets that apply to a tenant, or None if no gateway answers (only gateways know
    them)."""
    try:
        rules = await gathered_budgets(context.bus)
    except GatewayAway:
        return None
    now = context.now()
    async with context.long_reads.place(tenant):
        try:
            found, sources = await budgets_of(context.pool, tenant, rules, now, of_all=of_all)
        except TOO_SLOW:
            return Budgets((), 0, [], is_late=True)
    return Budgets(
        found.budgets[: money.TOP],
        max(0, len(found.budgets) - money.TOP),
        [(one.title, shown_sql(one.query, *one.values)) for one in sources],
    )
