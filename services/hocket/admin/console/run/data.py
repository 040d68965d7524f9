"""The data that the scripts of a run's page load: timeline, graph, trace for Perfetto, events."""

import json
from datetime import UTC, datetime
from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import JSONResponse, Response

from hocket.admin.console.compression import compressed_response
from hocket.admin.console.page_route import page_router
from hocket.admin.console.views import timeline
from hocket.admin.console.views.graph import graph_of, with_emitted
from hocket.admin.context import Ctx
from hocket.admin.live.endpoints import EVENT_ID, LastEventId, follow_run
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.permissions import needs
from hocket.admin.runs.lookup import RunId, found_run
from hocket.admin.traces.reads import trace_of
from hocket.kit.traces.chrome_trace import chrome_trace
from hocket.schemas.access.roles import Permission
from hocket.schemas.checks.bounded import MAX_STEP_CHARS
from hocket.schemas.tracing.replies import RunTrace

router = page_router()


@router.get("/runs/{run_id}/trace.json")
@needs(Permission.RUNS_READ)
async def console_trace(run_id: RunId, context: Ctx, caller: CallerDep) -> Response:
    """Return the trace of a run as Chrome's trace events, which Perfetto shows."""
    await found_run(context, caller.tenant, run_id, values=False)
    found = await trace_of(context, caller.tenant, run_id, _for_perfetto)
    return Response(found, media_type="application/json", headers={"Cache-Control": "no-store"})


def _for_perfetto(trace: RunTrace) -> str:
    return json.dumps(
        chrome_trace(trace.model_dump(mode="json"), now=datetime.now(UTC).isoformat())
    )


@router.get("/runs/{run_id}/timeline.json")
@needs(Permission.RUNS_READ)
async def console_timeline(
    request: Request,
    run_id: RunId,
    context: Ctx,
    caller: CallerDep,
    node: Annotated[str | None, Query(max_length=MAX_STEP_CHARS)] = None,
    after: Annotated[str, Query(max_length=MAX_STEP_CHARS)] = "",
) -> Response:
    """Return the nodes of a run, with the steps of a short one; or a page of one node's steps."""
    run = await found_run(context, caller.tenant, run_id, values=False)
    costs = caller.bearer.may(Permission.COSTS_READ)
    async with context.long_reads.place(caller.tenant):
        if node is None and not after:
            found = await timeline.overview(context.pool, run, costs=costs)
        else:
            found = await timeline.steps(context.pool, run, node, after, costs=costs)
    body = json.dumps(found, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    return compressed_response(
        request, body, {"Cache-Control": "no-store"}, media_type="application/json"
    )


@router.get("/runs/{run_id}/graph.json")
@needs(Permission.RUNS_READ, Permission.PIPELINES_READ)
async def console_run_graph(run_id: RunId, context: Ctx, caller: CallerDep) -> Response:
    """Return the graph of a run's pipeline with how far its nodes are."""
    run = await found_run(context, caller.tenant, run_id, values=False)
    _, plan = await context.plans.plan_of(
        context.pool, caller.tenant, run["pipeline"], run["version"]
    )
    async with context.long_reads.place(caller.tenant):
        nodes = await timeline.nodes(context.pool, run)
    found = with_emitted(graph_of(plan), nodes)
    return JSONResponse(found | {"nodes": nodes}, headers={"Cache-Control": "no-store"})


@router.get("/live/runs/{run_id}")
@needs(Permission.RUNS_READ)
async def console_live_run(
    run_id: RunId,
    request: Request,
    context: Ctx,
    caller: CallerDep,
    last_event_id: LastEventId = None,
    since: Annotated[str | None, Query(pattern=EVENT_ID)] = None,
) -> Response:
    """Follow a run, as the API does; a page that begins again says in its address `since` when."""
    return await follow_run(run_id, request, context, caller, last_event_id or since)
