"""A run: its time, its money, its steps and values."""

import json
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

from fastapi import Path, Query, Request
from fastapi.responses import JSONResponse, Response

from hocket.admin.calls import reads as calls
from hocket.admin.console.page_route import page_router
from hocket.admin.console.rendering import address, is_part, render
from hocket.admin.console.views import run_page, timeline
from hocket.admin.console.views.graph import graph_of
from hocket.admin.console.views.trace_lines import trace_lines
from hocket.admin.context import Ctx
from hocket.admin.pages import After
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.permissions import needs
from hocket.admin.runs import reads as runs
from hocket.admin.runs.content import shown
from hocket.admin.runs.lookup import RunId
from hocket.admin.runs.step_journals import journal_of
from hocket.admin.traces.reads import trace_of
from hocket.kit.traces.chrome_trace import chrome_trace
from hocket.schemas.access.roles import Permission
from hocket.schemas.checks.bounded import MAX_STEP_CHARS
from hocket.schemas.tracing.replies import RunTrace

STEP_ROWS = 200
MAX_CALLS = 500
StepName = Annotated[str, Path(max_length=MAX_STEP_CHARS)]


class View(StrEnum):
    """What the lower half of the page shows."""

    TIMELINE = "timeline"
    STEPS = "steps"
    CALLS = "calls"
    TRACE = "trace"
    JOURNAL = "journal"
    VALUES = "values"

    @property
    def label(self) -> str:
        """The name on its tab."""
        return "Model calls" if self is View.CALLS else self.capitalize()


router = page_router()


@router.get("/runs/{run_id}")
@needs(Permission.RUNS_READ, Permission.COSTS_READ)
async def console_run(
    request: Request,
    run_id: RunId,
    context: Ctx,
    caller: CallerDep,
    view: View = View.TIMELINE,
    after: After = None,
) -> Response:
    """Show a run: its time, its money, and one of its views."""
    run = shown(runs.detail(await runs.run_row(context.pool, caller.tenant, run_id)), caller)
    parts = run_page.path_parts(run.critical_path)
    took, allowed = run_page.took_ms(run), run_page.allowed_ms(run)
    values: dict[str, Any] = {
        "section": "Runs",
        "run": run,
        "cost": await runs.run_cost(context.pool, caller.tenant, run_id),
        "took": took,
        "allowed": allowed,
        "late": run.met_deadline is False or (run.finished_at is None and took > allowed),
        "path": parts,
        "longest": run_page.longest_steps(run.critical_path),
        "total": sum(part.ms for part in parts),
        "critical": run_page.critical_steps(run.critical_path),
        "queue_ms": run_page.queue_ms,
        "burn_down": run_page.burn_down,
        "view": view,
        "views": tuple(View),
    }
    if view is View.STEPS:
        steps = await runs.list_steps(
            context.pool, run_id, after=after, limit=STEP_ROWS, values=False
        )
        older = address(request, after=steps.next) if steps.next else None
        values |= {"steps": steps, "older": older}
    if view is View.CALLS:
        values["calls"] = await calls.of_run(context.pool, caller.tenant, run_id, MAX_CALLS)
    if view is View.TRACE:
        values |= await trace_of(context, caller.tenant, run_id, _drawn)
    if view is View.JOURNAL:
        values["journal"] = await journal_of(context, run_id)
    return render(request, caller, "run.html", values)


@router.get("/runs/{run_id}/trace.json")
@needs(Permission.RUNS_READ)
async def console_trace(run_id: RunId, context: Ctx, caller: CallerDep) -> Response:
    """Return the trace of a run as Chrome's trace events, which Perfetto shows."""
    await runs.run_row(context.pool, caller.tenant, run_id)
    found = await trace_of(context, caller.tenant, run_id, _for_perfetto)
    return Response(found, media_type="application/json", headers={"Cache-Control": "no-store"})


def _drawn(trace: RunTrace) -> dict[str, Any]:
    return {"trace": trace, "lines": trace_lines(trace, datetime.now(UTC))}


def _for_perfetto(trace: RunTrace) -> str:
    return json.dumps(
        chrome_trace(trace.model_dump(mode="json"), now=datetime.now(UTC).isoformat())
    )


@router.get("/runs/{run_id}/timeline.json")
@needs(Permission.RUNS_READ)
async def console_timeline(
    run_id: RunId,
    context: Ctx,
    caller: CallerDep,
    node: Annotated[str | None, Query(max_length=MAX_STEP_CHARS)] = None,
    after: Annotated[str, Query(max_length=MAX_STEP_CHARS)] = "",
) -> Response:
    """Return the nodes of a run, with the steps of a short one; or a page of one node's steps."""
    run = await runs.run_row(context.pool, caller.tenant, run_id)
    if node is None and not after:
        found = await timeline.overview(context.pool, run)
    else:
        found = await timeline.steps(context.pool, run, node, after)
    return JSONResponse(found, headers={"Cache-Control": "no-store"})


@router.get("/runs/{run_id}/graph.json")
@needs(Permission.RUNS_READ, Permission.PIPELINES_READ)
async def console_run_graph(run_id: RunId, context: Ctx, caller: CallerDep) -> Response:
    """Return the graph of a run's pipeline with how far its nodes are."""
    run = await runs.run_row(context.pool, caller.tenant, run_id)
    _, plan = await context.plans.plan_of(
        context.pool, caller.tenant, run["pipeline"], run["version"]
    )
    found = graph_of(plan)
    found["nodes"] = await timeline.nodes(context.pool, run)
    return JSONResponse(found, headers={"Cache-Control": "no-store"})


@router.get("/runs/{run_id}/steps/{step:path}")
@needs(Permission.RUNS_READ)
async def console_step(
    request: Request, run_id: RunId, step: StepName, context: Ctx, caller: CallerDep
) -> Response:
    """Show a step with its values: a page, or only its part of one."""
    run = shown(runs.detail(await runs.run_row(context.pool, caller.tenant, run_id)), caller)
    found = await runs.one_step(context.pool, run_id, step)
    if not caller.sees_content:
        found = found.model_copy(update={"input": None, "output": None})
    part = is_part(request)
    values = {
        "section": "Runs",
        "run": run,
        "step": found,
        "queue_ms": run_page.queue_ms,
    }
    return render(request, caller, "step_panel.html" if part else "step.html", values)
