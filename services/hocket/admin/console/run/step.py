"""A step of a run, as a page or as a panel beside the graph."""

import asyncio
from typing import Annotated

from fastapi import Path, Request
from fastapi.responses import Response

from hocket.admin.approvals import reads as approvals
from hocket.admin.console.page_route import page_router
from hocket.admin.console.rendering import is_part, render
from hocket.admin.console.run import relations, shown_values
from hocket.admin.console.views import run_page
from hocket.admin.context import Ctx
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.permissions import needs
from hocket.admin.runs import reads as runs
from hocket.admin.runs.content import shown
from hocket.admin.runs.lookup import RunId, found_run
from hocket.schemas.access.roles import Permission
from hocket.schemas.checks.bounded import MAX_STEP_CHARS

StepName = Annotated[str, Path(max_length=MAX_STEP_CHARS)]

router = page_router()


@router.get("/runs/{run_id}/steps/{step:path}")
@needs(Permission.RUNS_READ)
async def console_step(
    request: Request, run_id: RunId, step: StepName, context: Ctx, caller: CallerDep
) -> Response:
    """Show a step with its values: a page, or only its part of one."""
    row = await found_run(context, caller.tenant, run_id, values=False)
    run = shown(runs.detail(row), caller)
    spent, of_step, prompt = {}, shown_values.ValueTexts(), None
    async with context.long_reads.place(caller.tenant):
        found = await runs.one_step(context.pool, run_id, step)
        if caller.sees_content:
            of_step = await shown_values.of_step(context.pool, run_id, step)
        if caller.bearer.may(Permission.COSTS_READ):
            spent = await relations.step_costs(context.pool, caller.tenant, run_id, [found])
        if run.finished_at is None and found.type == "approval" and found.state == run_page.WAITING:
            prompt = await approvals.prompt_of_step(
                context, caller.tenant, run_id, step, content=caller.sees_content
            )
    of_step = await asyncio.to_thread(of_step.shown)
    part = is_part(request)
    values = {
        "section": "Runs",
        "run": run,
        "step": found,
        "input": of_step.input,
        "output": of_step.output,
        "spent": spent.get(step),
        "prompt": prompt,
        "queue_ms": run_page.queue_ms,
        "burn_down": run_page.burn_down,
    }
    return render(request, caller, "step_panel.html" if part else "step.html", values)
