"""A run: its time, its money, its steps and values."""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, get_args

from fastapi import Query, Request
from fastapi.responses import Response

from hocket.admin.calls import reads as calls
from hocket.admin.console.page_route import page_router
from hocket.admin.console.rendering import address, render
from hocket.admin.console.run import relations
from hocket.admin.console.views import run_page
from hocket.admin.console.views.trace_lines import trace_lines
from hocket.admin.context import Ctx
from hocket.admin.logs.reads import LogFilter, logs_of
from hocket.admin.pages import After
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.permissions import needs
from hocket.admin.runs import reads as runs
from hocket.admin.runs.content import shown
from hocket.admin.runs.lookup import RunId
from hocket.admin.runs.step_journals import journal_of
from hocket.admin.traces.reads import trace_of
from hocket.schemas.access.roles import Permission
from hocket.schemas.checks.bounded import MAX_STEP_CHARS
from hocket.schemas.tracing.log_lines import Level

STEP_ROWS = 200
LINE_ROWS = 500
LEVELS = get_args(Level)
MAX_CALLS = 500


class View(StrEnum):
    """What the lower half of the page shows."""

    TIMELINE = "timeline"
    STEPS = "steps"
    CALLS = "calls"
    TRACE = "trace"
    LOGS = "logs"
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
    step: Annotated[str, Query(max_length=MAX_STEP_CHARS)] = "",
    level: Level | Literal[""] = "",
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
        "related": await relations.related_runs(context.pool, caller.tenant, run_id),
    }
    if view is View.STEPS:
        steps = await runs.list_steps(
            context.pool, run_id, after=after, limit=STEP_ROWS, values=False
        )
        older = address(request, after=steps.next) if steps.next else None
        values |= {"steps": steps, "older": older}
    if view is View.CALLS:
        values["calls"] = await calls.of_run(context.pool, caller.tenant, run_id, MAX_CALLS)
        values["elsewhere"] = await relations.elsewhere(context.pool, caller.tenant, run_id)
        kept = caller.sees_content
        values["kept"] = (
            await relations.kept_calls(context.pool, caller.tenant, run_id) if kept else set()
        )
    if view is View.TRACE:
        now = datetime.now(UTC)
        values |= await trace_of(
            context,
            caller.tenant,
            run_id,
            lambda trace: {"trace": trace, "lines": trace_lines(trace, now)},
        )
    if view is View.LOGS:
        lines = await logs_of(
            context.pool,
            caller.tenant,
            run_id,
            LogFilter(step or None, level or None),
            after=after,
            limit=LINE_ROWS,
            with_texts=caller.sees_content,
        )
        older = address(request, after=lines.next) if lines.next else None
        values |= {"logs": lines, "older": older, "step": step, "level": level, "levels": LEVELS}
    if view is View.JOURNAL:
        values["journal"] = await journal_of(context, run_id)
    return render(request, caller, "run.html", values)
