"""The list of pipelines, and the page of one pipeline."""

import asyncio
from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import JSONResponse, Response

from hocket.admin.backends.errors import GatewayAway
from hocket.admin.console import authors, documents
from hocket.admin.console.page_route import page_router
from hocket.admin.console.rendering import address, render
from hocket.admin.console.views import graph, pipeline_list, pipeline_time
from hocket.admin.context import Context, Ctx
from hocket.admin.costs import reads as costs
from hocket.admin.experiments.endpoints import list_experiments
from hocket.admin.pipelines import reads as pipelines
from hocket.admin.requests.identity import Caller, CallerDep
from hocket.admin.requests.parameters import VersionNumber
from hocket.admin.requests.permissions import needs
from hocket.schemas.access.roles import Permission
from hocket.schemas.messages import ExperimentState
from hocket.schemas.rest import Token

ROWS = 50
"""Rows of a list on one page."""

NEW_PIPELINE = """pipeline: hello
description: What it does, in one sentence.
slo_ms: 30000
input:
  type: object
  properties:
    question: {type: string}
  required: [question]
nodes:
  answer:
    type: llm
    model: smart
    with:
      question: "{{ input.question }}"
    prompt: "{{ input.question }}"
"""
"""The text with which a new pipeline begins in the editor."""

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
    more = await pipelines.list_pipelines(context.pool, caller.tenant, after, ROWS + 1)
    found = more[:ROWS]
    older = address(request, after=found[-1].pipeline) if len(more) > ROWS else None
    async with context.long_reads.place(caller.tenant):
        rows = await pipeline_list.with_last_days(context.pool, caller.tenant, found)
    sql = pipeline_list.last_days_sql(caller.tenant, found)
    values = {"section": "Pipelines", "rows": rows, "rows_sql": sql, "older": older}
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
    async with context.long_reads.place(caller.tenant):
        nodes = await costs.by_node(context.pool, caller.tenant, name, found.version)
        last = await pipeline_time.last_days(context.pool, caller.tenant, name)
    values = {
        "section": "Pipelines",
        "pipeline": found,
        "spec": await asyncio.to_thread(documents.short_spec, found.spec),
        "costs": nodes.costs,
        "calls_sql": pipeline_time.calls_sql(caller.tenant, name, found.version),
        "last": last,
        "trials": await _trials(context, caller, name),
        "by": await authors.names_of(context.pool, [found.created_by]),
        "example": pipeline_list.example_of(found.spec.get("input")) or {},
        "schema": found.spec.get("input") or {},
    }
    return render(request, caller, "pipeline.html", values)


async def _trials(context: Context, caller: Caller, name: str) -> list[ExperimentState]:
    """Return the experiments that runs of a pipeline take part in; empty if no gateway answers."""
    if not caller.bearer.may(Permission.EXPERIMENTS_READ):
        return []
    try:
        found = await list_experiments(context, caller)
    except GatewayAway:
        return []
    return [one for one in found.experiments if one.pipeline in (None, name)]


@router.get("/editor")
@needs(Permission.PIPELINES_CHECK, Permission.PIPELINES_READ)
async def console_editor(
    request: Request,
    context: Ctx,
    caller: CallerDep,
    name: Annotated[Token | None, Query()] = None,
    version: VersionNumber | None = None,
) -> Response:
    """Edit a version of a pipeline, or a new one; the API checks what is typed."""
    text = NEW_PIPELINE
    if name is not None:
        found = await pipelines.version_of(context.pool, caller.tenant, name, version)
        async with context.long_reads.place(caller.tenant):
            text = await asyncio.to_thread(documents.as_yaml, found.spec)
    values = {"section": "Pipelines", "name": name, "text": text}
    return render(request, caller, "editor.html", values)


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
    return JSONResponse(graph.graph_of(plan), headers={"Cache-Control": "no-store"})
