"""`/v1/calls`: why model calls went to their backends."""

from typing import Annotated

from fastapi import APIRouter, Path, Query

from hocket.admin.calls import reads
from hocket.admin.context import Ctx
from hocket.admin.pages import DEFAULT_PAGE, MAX_CALL_CHARS, After, Limit
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.permissions import needs
from hocket.schemas.access.roles import Permission
from hocket.schemas.checks.plain_json import shown_text
from hocket.schemas.errors import ErrorClass, HocketError
from hocket.schemas.rest import CallExplained, CallList

RunId = Annotated[str, Query(alias="run", min_length=1, max_length=256, pattern=r"^[^\x00]+$")]
CallId = Annotated[
    str,
    Path(
        min_length=1,
        max_length=MAX_CALL_CHARS,
        pattern=r"^[^\x00]+$",
        description="ID of the call.",
    ),
]

router = APIRouter(prefix="/v1/calls", tags=["calls"])


class CallUnknown(HocketError):
    """No call `{call_id}` is known. A call is known when the ledger has booked it, a refused one for a
    week; `hocket gateway explain RUN` lists those of a run."""

    code = "call_unknown"
    error_class = ErrorClass.INVALID


@router.get("")
@needs(Permission.RUNS_READ)
async def calls_of_run(
    context: Ctx,
    caller: CallerDep,
    run_id: RunId,
    limit: Limit = DEFAULT_PAGE,
    after: After = None,
) -> CallList:
    """List the calls of a run, oldest first: each attempt separately, with its routing decision."""
    async with context.long_reads.place(caller.tenant):
        return await reads.of_run(context.pool, caller.tenant, run_id, limit, after=after)


@router.get("/{call_id:path}")
@needs(Permission.RUNS_READ)
async def explain_call(call_id: CallId, context: Ctx, caller: CallerDep) -> CallExplained:
    """Show every attempt of a call: the candidate replicas, why one was chosen, and the outcome; or why
    no backend was called."""
    async with context.long_reads.place(caller.tenant):
        explained = await reads.explain(context.pool, caller.tenant, call_id)
    if not explained.attempts and explained.refused is None and not explained.open:
        raise CallUnknown(call_id=shown_text(call_id, 200))
    return explained
