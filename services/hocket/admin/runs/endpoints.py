"""`/v1/runs`: submit, read, cancel and signal runs."""

from contextlib import nullcontext
from typing import Annotated

from fastapi import APIRouter, Header, Query, Response

from hocket.admin.audit.recording import record
from hocket.admin.context import Ctx
from hocket.admin.node_types.awaited import with_awaited
from hocket.admin.pages import DEFAULT_PAGE, After, Limit
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.json_bodies import PlainJsonRoute
from hocket.admin.requests.parameters import IdempotencyKey, Switch
from hocket.admin.requests.permissions import needs
from hocket.admin.runs import actions, reads, repeats, step_journals
from hocket.admin.runs.content import run_json, shown, steps_json
from hocket.admin.runs.lookup import RunId, found_run
from hocket.admin.runs.parameters import WantedRuns
from hocket.admin.submission.one import merged_key, submit, valid_trace
from hocket.schemas.access.roles import Permission
from hocket.schemas.rest import (
    CancelBody,
    RerunBody,
    RetryBody,
    RunCost,
    RunDetail,
    RunJournal,
    RunList,
    RunReceipt,
    RunResult,
    RunSubmission,
    Sent,
    SignalBody,
    StepList,
)

Traceparent = Annotated[
    str | None, Header(description="W3C trace context of the caller; ignored if not valid.")
]

router = APIRouter(prefix="/v1/runs", tags=["runs"], route_class=PlainJsonRoute)


@router.post("", status_code=202, responses={200: {"model": RunResult}})
@needs(Permission.RUNS_SUBMIT)
async def submit_run(
    task: RunSubmission,
    response: Response,
    context: Ctx,
    caller: CallerDep,
    idempotency_key: IdempotencyKey = None,
    traceparent: Traceparent = None,
) -> RunReceipt | RunResult:
    """Submit a task. Returns 202 with the run's ID once the broker has stored the task or, with
    `wait_ms`, 200 with the result if the run ends within that time."""
    task = merged_key(task, idempotency_key)
    answer = await submit(context, caller, task, traceparent=valid_trace(traceparent))
    return _answered(response, shown(answer, caller))


@router.get("")
@needs(Permission.RUNS_READ)
async def list_runs(
    context: Ctx,
    caller: CallerDep,
    wanted: WantedRuns,
    after: After = None,
    limit: Limit = DEFAULT_PAGE,
) -> RunList:
    """List runs, newest first. With `contains`, a page searches the latest 2,000 runs that match the
    other filters, with `deadline_missed` or `min_cost_usd` the latest 20,000; `next` continues after
    them."""
    async with context.long_reads.place(caller.tenant) if wanted.is_search else nullcontext():
        wanted = await reads.within_reach(context.pool, caller.tenant, wanted, after)
        return await reads.list_runs(context.pool, caller.tenant, wanted, after, limit)


@router.get("/{run_id}", response_model=RunDetail)
@needs(Permission.RUNS_READ)
async def show_run(run_id: RunId, context: Ctx, caller: CallerDep) -> Response:
    """Show a run with its input and its output or error."""
    run = await found_run(context, caller.tenant, run_id, values=caller.sees_content)
    return Response(run_json(run, caller), media_type="application/json")


@router.get("/{run_id}/steps", response_model=StepList)
@needs(Permission.RUNS_READ)
async def list_steps(
    run_id: RunId,
    context: Ctx,
    caller: CallerDep,
    values: Annotated[
        Switch, Query(description="Include the input and output of each step.")
    ] = False,
    after: After = None,
    limit: Limit = DEFAULT_PAGE,
) -> Response:
    """List the steps of a run with their times, deadlines, slack and failed attempts. A page ends early
    where values or errors are large; `next` continues."""
    if values:
        caller.bearer.check(Permission.CONTENT_READ)
    run = await found_run(context, caller.tenant, run_id, values=False)
    async with context.long_reads.place(caller.tenant) if values else nullcontext():
        found, stored = await reads.list_steps(
            context.pool, run_id, after=after, limit=limit, values=values
        )
    found = await with_awaited(context, caller.tenant, run["pipeline"], run["version"], found)
    return Response(steps_json(found, stored), media_type="application/json")


@router.get("/{run_id}/journal")
@needs(Permission.RUNS_READ)
async def show_journal(run_id: RunId, context: Ctx, caller: CallerDep) -> RunJournal:
    """Show what the handlers of a run's steps have done so far (`context.step` and the like). Available
    until 15 minutes after the run ends."""
    await found_run(context, caller.tenant, run_id, values=False)
    return await step_journals.journal_of(context, caller.tenant, run_id)


@router.get("/{run_id}/cost")
@needs(Permission.RUNS_READ, Permission.COSTS_READ)
async def show_cost(run_id: RunId, context: Ctx, caller: CallerDep) -> RunCost:
    """Show what a run has cost so far, by node, model and backend."""
    await found_run(context, caller.tenant, run_id, values=False)
    async with context.long_reads.place(caller.tenant):
        return await reads.run_cost(context.pool, caller.tenant, run_id)


@router.post("/{run_id}/cancel", status_code=202)
@needs(Permission.RUNS_CANCEL)
async def cancel_run(
    run_id: RunId, context: Ctx, caller: CallerDep, body: CancelBody | None = None
) -> Sent:
    """Request the cancellation of a run. Returns 202; the run's coordinator processes requests in
    order."""
    run = await found_run(context, caller.tenant, run_id, values=False)
    actions.check_open(run)
    reason = (body or CancelBody()).reason
    await record(context, caller, "runs.cancel", f"run:{run_id}", {"reason": reason})
    return await actions.cancel(context, caller, run, body or CancelBody())


@router.post("/{run_id}/signals", status_code=202)
@needs(Permission.RUNS_SIGNAL)
async def signal_run(run_id: RunId, body: SignalBody, context: Ctx, caller: CallerDep) -> Sent:
    """Send a signal to a run: the answer to an approval, or the event that a `signal` node waits for."""
    run = await found_run(context, caller.tenant, run_id, values=False)
    signal = await actions.checked_signal(context, caller, run, body)
    await record(context, caller, "runs.signal", f"run:{run_id}", {"name": body.name})
    return await actions.send_signal(context, run, signal)


@router.post("/{run_id}/retry", status_code=202, responses={200: {"model": RunResult}})
@needs(Permission.RUNS_SUBMIT)
async def retry_run(
    run_id: RunId,
    response: Response,
    context: Ctx,
    caller: CallerDep,
    body: RetryBody | None = None,
    idempotency_key: IdempotencyKey = None,
    traceparent: Traceparent = None,
) -> RunReceipt | RunResult:
    """Retry what failed in a run that has ended, as a new run of the same version that reuses everything
    that succeeded. Repeating the same request does not start another run."""
    wanted = merged_key(body or RetryBody(), idempotency_key)
    run = await found_run(context, caller.tenant, run_id)
    await record(context, caller, "runs.retry", f"run:{run_id}")
    answer = await repeats.retry(context, caller, run, wanted, traceparent=valid_trace(traceparent))
    return _answered(response, shown(answer, caller))


@router.post("/{run_id}/rerun", status_code=202, responses={200: {"model": RunResult}})
@needs(Permission.RUNS_SUBMIT)
async def rerun_run(
    run_id: RunId,
    response: Response,
    context: Ctx,
    caller: CallerDep,
    body: RerunBody | None = None,
    idempotency_key: IdempotencyKey = None,
    traceparent: Traceparent = None,
) -> RunReceipt | RunResult:
    """Rerun a run from a step, with another input or with another version, as a new run that reuses the
    steps that would do exactly the same. Repeating the same request does not start another run."""
    wanted = merged_key(body or RerunBody(), idempotency_key)
    run = await found_run(context, caller.tenant, run_id)
    await record(context, caller, "runs.rerun", f"run:{run_id}")
    answer = await repeats.rerun(context, caller, run, wanted, traceparent=valid_trace(traceparent))
    return _answered(response, shown(answer, caller))


def _answered(response: Response, answer: RunReceipt | RunResult) -> RunReceipt | RunResult:
    if isinstance(answer, RunResult):
        response.status_code = 200
    response.headers["Location"] = f"/v1/runs/{answer.run_id}"
    return answer
