"""`/v1/runs/{run_id}/trace`: where the time of a run was spent, span by span."""

from fastapi import APIRouter
from fastapi.responses import Response

from hocket.admin.context import Ctx
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.permissions import needs
from hocket.admin.runs.lookup import RunId, found_run
from hocket.admin.traces.reads import trace_of
from hocket.schemas.access.roles import Permission
from hocket.schemas.tracing.replies import RunTrace

router = APIRouter(prefix="/v1/runs", tags=["runs"])


@router.get("/{run_id}/trace", response_model=RunTrace)
@needs(Permission.RUNS_READ)
async def show_trace(run_id: RunId, context: Ctx, caller: CallerDep) -> Response:
    """Show the trace of a run: steps, waits, attempts and model calls, including those of sub-runs. It
    contains no prompts and no answers."""
    await found_run(context, caller.tenant, run_id, values=False)
    content = await trace_of(context, caller.tenant, run_id, RunTrace.model_dump_json)
    return Response(content, media_type="application/json")
