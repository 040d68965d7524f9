"""Repeats a run by submitting an ordinary task that names the run it repeats.

The new run's id is derived from the original run and the request (or the caller's key), so that a
repeated request yields the same run. Invalid requests are refused here by the same rules that intake
applies.
"""

import asyncio
import json
from datetime import UTC, datetime

import asyncpg
from pydantic_core import to_json

from hocket.admin.context import Context
from hocket.admin.queries import QUERY_TIMEOUT_S
from hocket.admin.requests.identity import Caller
from hocket.admin.submission.bare_input import without_defaults
from hocket.admin.submission.one import payload_of, submit
from hocket.kit.nats import cloudevents
from hocket.kit.nats.bus import RESERVE_BYTES
from hocket.schemas.errors import InvalidInput, PayloadTooLarge
from hocket.schemas.ids import content_hash
from hocket.schemas.messages import RunOrigin, encoded_without_defaults
from hocket.schemas.pipeline.plan import Plan
from hocket.schemas.repeats import MAX_STEP_INPUT_CHARS, StepPlace, check_repeat, with_edit
from hocket.schemas.rest import RerunBody, RetryBody, RunReceipt, RunResult, RunSubmission

KEY_HEX = 32
NO_INPUT = b"{}"
"""The body of a retry's task: its run takes over the input of the origin, which may be larger than a
task may be, because the defaults were added to it."""
OTHER_BYTES = 2 * RESERVE_BYTES
"""What is left free in the message with which a run begins, beside what a retry takes over: for what all
messages leave free, and for ids, times and the like."""
RERUN = "Run it again, which sends its input without the defaults: `hocket runs rerun {}`."
NEW_RUN = (
    "Its input without the defaults is larger than that of a task may be, too. Start a new run; keep"
    " large values where the steps can read them (a database, a file server), and pass their address."
)


class OriginTooLarge(PayloadTooLarge):
    """What a retry of run `{run_id}` takes over has {size_bytes} bytes: its input with the defaults, its
    labels, and the input that was given to a step. The limit is {limit_bytes}. {cure}"""


PLACE = """
SELECT path, role, coalesce(facts ->> 'home', '') AS home
FROM hocket.step
WHERE run_id = $1 AND key = $2
"""
"""The state of a step of a run."""


async def retry(
    context: Context,
    caller: Caller,
    run: asyncpg.Record,
    body: RetryBody,
    *,
    traceparent: str | None,
) -> RunReceipt | RunResult:
    """Rerun the failed steps of an ended run; raises RunOpen, NothingToRetry and what `submit`
    raises."""
    asked = RunOrigin(run_id=run["run_id"], operation="retry")
    return await _repeat(context, caller, run, asked, body, traceparent)


async def rerun(
    context: Context,
    caller: Caller,
    run: asyncpg.Record,
    body: RerunBody,
    *,
    traceparent: str | None,
) -> RunReceipt | RunResult:
    """Rerun a run from a step, with another input or as another version; raises RunOpen, InvalidInput
    and what `submit` raises."""
    asked = RunOrigin(
        run_id=run["run_id"],
        operation="rerun",
        from_step=body.from_step,
        step_input=body.step_input,
    )
    return await _repeat(context, caller, run, asked, body, traceparent)


async def _repeat(
    context: Context,
    caller: Caller,
    run: asyncpg.Record,
    asked: RunOrigin,
    body: RetryBody,
    traceparent: str | None,
) -> RunReceipt | RunResult:
    own = body if isinstance(body, RerunBody) else RerunBody()
    version = own.version or run["version"]
    _, plan = await context.plans.plan_of(context.pool, caller.tenant, run["pipeline"], version)
    place = await _place(context, asked)
    run_input = json.loads(run["input"]) if own.input is None else own.input
    check_repeat(
        asked,
        status=run["status"],
        from_step=place,
        plan=plan,
        version=version,
        run_input=run_input,
    )
    task = RunSubmission.model_construct(
        pipeline=run["pipeline"],
        input=run_input,
        idempotency_key=_key(asked, run["accepted_at"], body),
        deadline_ms=body.deadline_ms,
        priority=body.priority,
        budget_usd=body.budget_usd,
        version=version,
        wait_ms=body.wait_ms,
    )
    sent: bytes | None = None
    if asked.operation == "retry":
        await _check_size(context, plan, run, asked, task)
        sent = NO_INPUT
    elif own.input is None:
        task, sent = await _small_enough(context, plan, task)
    return await submit(
        context, caller, task, traceparent=traceparent, headers=_headers(asked), body=sent
    )


async def _check_size(
    context: Context, plan: Plan, run: asyncpg.Record, asked: RunOrigin, task: RunSubmission
) -> None:
    """Raise OriginTooLarge if no message can hold what a retry takes over: intake would refuse it."""
    before = None if run["origin"] is None else RunOrigin.model_validate_json(run["origin"])
    limit_bytes = context.bus.nc.max_payload - OTHER_BYTES
    size_bytes = len(to_json(task.input)) + len((run["labels"] or "").encode())
    size_bytes += len(encoded_without_defaults(with_edit(asked, before)))
    if size_bytes <= limit_bytes:
        return
    task, _ = await _small_enough(context, plan, task)
    try:
        payload_of(task, context.max_task_bytes)
        cure = RERUN.format(asked.run_id)
    except PayloadTooLarge:
        cure = NEW_RUN
    raise OriginTooLarge(
        field="input",
        run_id=asked.run_id,
        size_bytes=size_bytes,
        limit_bytes=limit_bytes,
        cure=cure,
    )


async def _small_enough(
    context: Context, plan: Plan, task: RunSubmission
) -> tuple[RunSubmission, bytes | None]:
    """Return a task with the input of a run, and its body. If it is too large, return it without the
    defaults, which were added to what was sent: its body is left to `submit`."""
    try:
        return task, payload_of(task, context.max_task_bytes)
    except PayloadTooLarge:
        bare = await asyncio.to_thread(without_defaults, plan.pipeline.input, task.input)
        return task.model_copy(update={"input": bare}), None


async def _place(context: Context, asked: RunOrigin) -> StepPlace | None:
    if asked.from_step is None:
        return None
    row = await context.pool.fetchrow(PLACE, asked.run_id, asked.from_step, timeout=QUERY_TIMEOUT_S)
    return None if row is None else StepPlace(**dict(row))


def _key(asked: RunOrigin, accepted_at: datetime, body: RetryBody) -> str:
    """Return the idempotency key of a repeat: derived from the caller's key, otherwise from the whole
    request; and from the time of the run, because a run id is used again once its run is deleted."""
    said = body.model_dump(mode="json", exclude={"wait_ms"})
    what = [said["idempotency_key"] or said, accepted_at.astimezone(UTC).isoformat()]
    return f"{asked.operation}:{asked.run_id}:{content_hash(what)[:KEY_HEX]}"


def _headers(asked: RunOrigin) -> dict[str, str]:
    headers = {cloudevents.ORIGIN_RUN: asked.run_id, cloudevents.OPERATION: asked.operation}
    if asked.from_step is not None:
        headers[cloudevents.FROM_STEP] = asked.from_step
    if asked.step_input is not None:
        text = json.dumps(asked.step_input, separators=(",", ":"))
        if len(text) > MAX_STEP_INPUT_CHARS:
            raise InvalidInput(
                field="step_input",
                reason=f"it has {len(text)} characters",
                cure=f"Use at most {MAX_STEP_INPUT_CHARS}; instead of a large value, pass its address.",
            )
        headers[cloudevents.STEP_INPUT] = text
    return headers
