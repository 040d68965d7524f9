"""Pipelines, and one of them."""

from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import JSONResponse, Response

from hocket.admin.console import pipeline_list
from hocket.admin.console.graph import graph_of
from hocket.admin.console.page_route import page_router
from hocket.admin.console.rendering import address, render
from hocket.admin.context import Ctx
from hocket.admin.costs import reads as costs
from hocket.admin.pipelines import reads as pipelines
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.parameters import VersionNumber
from hocket.admin.requests.permissions import needs
from hocket.schemas.access.roles import Permission
from hocket.schemas.rest import Token

ROWS = 50
"""Rows of a list on one page."""

router = page_router()


@router.get("/pipelines")
@needs(Permission.PIPELINES_READ, Permission.COSTS_READ)
async def console_pipelines(
    request: Request,
    context: Ctx,
    caller: CallerDep,
    after: Annotated[str, Query(max_length=63, pattern=r"^[A-Za-z0-9_-]*$")] = "",
) -> Response:
    """List the pipelines with how their last days went."""
    found = await pipelines.list_pipelines(context.pool, caller.tenant, after, ROWS)
    older = address(request, after=found[-1].pipeline) if len(found) == ROWS else None
    rows = await pipeline_list.with_last_days(context.pool, caller.tenant, found)
    values = {"section": "Pipelines", "rows": rows, "older": older}
    return render(request, caller, "pipelines.html", values)


@router.get("/pipelines/{name}")
@needs(Permission.PIPELINES_READ, Permission.COSTS_READ)
async def console_pipeline(
    request: Request,
    name: Token,
    context: Ctx,
    caller: CallerDep,
    version: VersionNumber | None = None,
) -> Response:
    """Show a version of a pipeline: its graph, what its nodes cost, its document."""
    found = await pipelines.version_of(context.pool, caller.tenant, name, version)
    nodes = await costs.by_node(context.pool, caller.tenant, name, found.version)
    values = {
        "section": "Pipelines",
        "pipeline": found,
        "costs": nodes.costs,
        "example": pipeline_list.example_of(found.spec.get("input")) or {},
    }
    return render(request, caller, "pipeline.html", values)


@router.get("/pipelines/{name}/graph.json")
@needs(Permission.PIPELINES_READ)
async def console_pipeline_graph(
    name: Token,
    context: Ctx,
    caller: CallerDep,
    version: VersionNumber | None = None,
) -> Response:
    """Return the graph of a version of a pipeline."""
    _, plan = await context.plans.plan_of(context.pool, caller.tenant, name, version)
    return JSONResponse(graph_of(plan), headers={"Cache-Control": "no-store"})
