"""`/v1/runs/{run_id}/logs`: log lines written by the handlers of a run's steps."""

from typing import Annotated

from fastapi import APIRouter, Query

from hocket.admin.context import Ctx
from hocket.admin.logs.reads import LogFilter, logs_of
from hocket.admin.pages import DEFAULT_PAGE, MAX_CURSOR_CHARS, Limit
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.permissions import needs
from hocket.admin.runs.lookup import RunId, found_run
from hocket.schemas.access.roles import Permission
from hocket.schemas.administration.run_logs import RunLogs
from hocket.schemas.checks.bounded import MAX_STEP_CHARS
from hocket.schemas.rest import STORABLE
from hocket.schemas.tracing.log_lines import Level

Step = Annotated[
    str | None,
    Query(
        max_length=MAX_STEP_CHARS,
        pattern=STORABLE,
        description="Only lines of this step.",
    ),
]
AfterLine = Annotated[
    str | None,
    Query(
        max_length=MAX_CURSOR_CHARS,  # as long as a step's key with what stands before it
        pattern=r"^[0-9]{1,17}:[0-9]{1,9}:[0-9]{1,9}:[0-9]{1,9}:[^\x00-\x1f\x7f]*$",
        description="Cursor: `next` of the previous page.",
    ),
]
AtLeast = Annotated[Level | None, Query(description="Only lines at this level or above.")]

router = APIRouter(prefix="/v1/runs", tags=["runs"])


@router.get("/{run_id}/logs")
@needs(Permission.RUNS_READ)
async def show_logs(
    run_id: RunId,
    context: Ctx,
    caller: CallerDep,
    step: Step = None,
    level: AtLeast = None,
    after: AfterLine = None,
    limit: Limit = DEFAULT_PAGE,
) -> RunLogs:
    """Show what the handlers of a run's steps logged, oldest line first, including while the run is
    still in progress. Without `content.read`, texts and fields are omitted."""
    await found_run(context, caller.tenant, run_id, values=False)
    return await logs_of(
        context.pool,
        caller.tenant,
        run_id,
        LogFilter(step, level),
        after=after,
        limit=limit,
        with_texts=caller.sees_content,
    )
