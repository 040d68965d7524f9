"""`/v1/costs`: what was spent, from the views of schema `report`."""

from datetime import UTC, date, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query

from hocket.admin.backends.gathering import gathered_budgets
from hocket.admin.context import Ctx
from hocket.admin.costs import reads
from hocket.admin.costs.budgets import budgets_of
from hocket.admin.pages import DEFAULT_PAGE, Limit, in_range
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.parameters import Day, Moment, VersionNumber
from hocket.admin.requests.permissions import needs
from hocket.schemas.access.roles import Permission
from hocket.schemas.administration.budgets import BudgetUses
from hocket.schemas.errors import InvalidInput
from hocket.schemas.rest import (
    CacheSavings,
    KindCosts,
    NodeCosts,
    PipelineCosts,
    RunCosts,
    Token,
)

DEFAULT_DAYS = 30
MAX_DAYS = 400

PipelineName = Annotated[Token | None, Query(description="Only this pipeline.")]

router = APIRouter(prefix="/v1/costs", tags=["costs"])


@router.get("/pipelines")
@needs(Permission.COSTS_READ)
async def costs_by_pipeline(
    context: Ctx,
    caller: CallerDep,
    pipeline: PipelineName = None,
    first: Annotated[Day | None, Query(alias="from", description="First day (UTC).")] = None,
    last: Annotated[Day | None, Query(alias="to", description="Last day (UTC).")] = None,
) -> PipelineCosts:
    """Show costs by pipeline and day; by default, of the last 30 days."""
    start, end = _days(first, last)
    async with context.long_reads.place(caller.tenant):
        return await reads.by_pipeline(context.pool, caller.tenant, start, end, pipeline)


@router.get("/budgets")
@needs(Permission.COSTS_READ)
async def costs_by_budget(context: Ctx, caller: CallerDep) -> BudgetUses:
    """Show how much is spent of the configured budgets in the current hour, day or month (UTC), for
    budgets that apply to the tenant's calls. Single-tenant keys see a budget that is set for every
    tenant only once their tenant has spent from it."""
    rules = await gathered_budgets(context.bus)
    of_all = caller.bearer.tenant is None
    tenant, now = caller.tenant, context.now()
    async with context.long_reads.place(tenant):
        found, _ = await budgets_of(context.pool, tenant, rules, now, of_all=of_all)
    return found


@router.get("/cache")
@needs(Permission.COSTS_READ)
async def saved_by_cache(
    context: Ctx,
    caller: CallerDep,
    pipeline: PipelineName = None,
    first: Annotated[Day | None, Query(alias="from", description="First day (UTC).")] = None,
    last: Annotated[Day | None, Query(alias="to", description="Last day (UTC).")] = None,
) -> CacheSavings:
    """Show what steps served from the cache would have cost, by node and day."""
    start, end = _days(first, last)
    async with context.long_reads.place(caller.tenant):
        return await reads.saved_by_cache(context.pool, caller.tenant, start, end, pipeline)


@router.get("/kinds")
@needs(Permission.COSTS_READ)
async def costs_by_kind(
    context: Ctx,
    caller: CallerDep,
    pipeline: PipelineName = None,
    first: Annotated[Day | None, Query(alias="from", description="First day (UTC).")] = None,
    last: Annotated[Day | None, Query(alias="to", description="Last day (UTC).")] = None,
) -> KindCosts:
    """Show costs by node, day and kind: calls, repeated attempts, and branches that lost their race."""
    start, end = _days(first, last)
    async with context.long_reads.place(caller.tenant):
        return await reads.by_kind(context.pool, caller.tenant, start, end, pipeline)


@router.get("/nodes")
@needs(Permission.COSTS_READ)
async def costs_by_node(
    context: Ctx,
    caller: CallerDep,
    pipeline: PipelineName = None,
    version: VersionNumber | None = None,
) -> NodeCosts:
    """Show costs by pipeline version, node, model and backend, over all time."""
    async with context.long_reads.place(caller.tenant):
        return await reads.by_node(context.pool, caller.tenant, pipeline, version)


@router.get("/runs")
@needs(Permission.COSTS_READ)
async def costs_by_run(
    context: Ctx,
    caller: CallerDep,
    pipeline: PipelineName = None,
    since: Annotated[
        Moment | None, Query(description="RFC 3339 timestamp with a time zone.")
    ] = None,
    limit: Limit = DEFAULT_PAGE,
) -> RunCosts:
    """Show costs by run, most expensive first; by default, of the last 30 days."""
    start = since or datetime.now(UTC) - timedelta(days=DEFAULT_DAYS)
    async with context.long_reads.place(caller.tenant):
        return await reads.by_run(context.pool, caller.tenant, in_range(start), pipeline, limit)


def _days(first: date | None, last: date | None) -> tuple[date, date]:
    """Return the requested range of days, or raise InvalidInput."""
    end = last or datetime.now(UTC).date()
    start = first or date.fromordinal(max(1, end.toordinal() - DEFAULT_DAYS + 1))
    if start > end or (end - start).days >= MAX_DAYS:
        raise InvalidInput(
            field="from",
            reason=f"{start} to {end} is not a span of 1 to {MAX_DAYS} days",
            cure="Choose dates closer together, with `from` first.",
        )
    return start, end
