"""The page of a run: its time, cost, steps and values."""

import asyncio
from typing import Annotated, Any, Literal

from fastapi import Query, Request
from fastapi.responses import Response

from hocket.admin.console.page_route import page_router
from hocket.admin.console.rendering import render
from hocket.admin.console.run import relations, shown_values, views
from hocket.admin.console.run.views import View
from hocket.admin.console.views import run_page
from hocket.admin.context import Ctx
from hocket.admin.pages import After
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.permissions import needs
from hocket.admin.runs import reads as runs
from hocket.admin.runs.content import shown
from hocket.admin.runs.lookup import RunId, found_run
from hocket.schemas.access.roles import Permission
from hocket.schemas.checks.bounded import MAX_STEP_CHARS
from hocket.schemas.tracing.log_lines import Level

JOURNAL_ROWS = 1_000
"""Entries of a journal on the page."""

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
    step: Annotated[str, Query(max_length=MAX_STEP_CHARS)] = "",
    level: Literal["", Level] = "",
) -> Response:
    """Show a run: its time, its money, and one of its views."""
    found = await found_run(context, caller.tenant, run_id, values=False)
    run = shown(runs.detail(found), caller)
    is_of_values = view is View.VALUES and caller.sees_content
    can_repeat = (
        run.finished_at is not None
        and caller.bearer.may(Permission.RUNS_SUBMIT)
        and caller.sees_content
    )
    parts = run_page.path_parts(run.critical_path)
    took, allowed = run_page.took_ms(run), run_page.allowed_ms(run)
    async with context.long_reads.place(caller.tenant):
        cost = await runs.run_cost(context.pool, caller.tenant, run_id)
        related = await relations.related_runs(context.pool, caller.tenant, run_id)
        of_run = shown_values.ValueTexts()
        flow = await relations.limits_of(context, caller, run)
        if can_repeat or is_of_values:
            of_run = await shown_values.of_run(
                context.pool, caller.tenant, run_id, output=is_of_values
            )
    of_run = await asyncio.to_thread(of_run.shown)
    values: dict[str, Any] = {
        "section": "Runs",
        "run": run,
        "cost": cost,
        "spent": run_page.spent_usd(run, cost),
        "took": took,
        "allowed": allowed,
        "late": run_page.is_late(run),
        "path": parts,
        "longest": run_page.longest_steps(run.critical_path),
        "total": sum(part.ms for part in parts),
        "critical": run_page.critical_waits(run.critical_path),
        "queue_ms": run_page.queue_ms,
        "burn_down": run_page.burn_down,
        "view": view,
        "views": tuple(View),
        "journal_rows": JOURNAL_ROWS,
        "related": related,
        "flow": flow,
        "can_repeat": can_repeat,
        "input": of_run.input,
        "output": of_run.output,
    }
    asked = views.Asked(run_id, after=after, step=step, level=level or None)
    values |= await views.values_of(view, request, context, caller, asked)
    return render(request, caller, "run.html", values)
