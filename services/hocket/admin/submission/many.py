"""Submits many tasks with one request: all are sent to the broker together, and each is accepted or
refused individually."""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime
from uuid import uuid4

import asyncpg

from hocket.admin.context import Context
from hocket.admin.queries import QUERY_TIMEOUT_S
from hocket.admin.requests.identity import Caller
from hocket.admin.submission.one import PUBLISH_TIMEOUT_MS, headers_of, message_id, payload_of
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.nats.post_batches import Post
from hocket.kit.postgres.lookups import rows_of_runs
from hocket.kit.process import clock
from hocket.schemas import ids, subjects
from hocket.schemas.administration.bulk import BulkReceipt, BulkTask
from hocket.schemas.capabilities import id_of
from hocket.schemas.errors import HocketError, IdempotencyKeyReused, InvalidInput
from hocket.schemas.rest import RunSubmission

AT_ONCE_MS = 5.0
"""How long tasks are checked before other requests have their turn."""

KNOWN = f"""
SELECT run_id, pipeline, status, finished_at {rows_of_runs("hocket.run", "$2::text[]")}
WHERE tenant = $1
"""
"""The runs that the keys already name."""


async def submit_all(
    context: Context, caller: Caller, tasks: Sequence[RunSubmission]
) -> BulkReceipt:
    """Submit tasks; return the outcome of each. Raises InvalidInput if a task asks to wait, and
    BusUnavailable if none was accepted because the broker is unavailable."""
    for place, task in enumerate(tasks):
        if task.wait_ms:
            raise InvalidInput(
                field=f"runs.{place}.wait_ms",
                reason="a submission of many tasks cannot wait",
                cure="Leave it out, and follow the runs.",
            )
    context.disk.check()
    keys = [task.idempotency_key or uuid4().hex for task in tasks]
    run_ids = [ids.run_id(caller.tenant, key) for key in keys]
    known = await _known(context, caller, tasks, run_ids)
    refused_at, pipelines = _apart(known.values())
    made: list[Post | BulkTask] = []
    since_ms = clock.monotonic_ms()
    for task, key, run_id in zip(tasks, keys, run_ids, strict=True):
        if clock.monotonic_ms() - since_ms >= AT_ONCE_MS:
            await asyncio.sleep(0)
            since_ms = clock.monotonic_ms()
        try:
            _check_key(run_id, task, pipelines.get(run_id))
            made.append(await _made(context, caller, task, key, run_id, known.get(run_id)))
            pipelines[run_id] = task.pipeline
        except HocketError as error:
            made.append(BulkTask(error=error.info()))
    receipt = await _receipt(context, made, run_ids)
    for one in receipt.runs:
        if one.run_id is not None:
            context.recent.add(caller.tenant, one.run_id, refused_at.get(one.run_id))
    return receipt


async def _known(
    context: Context, caller: Caller, tasks: Sequence[RunSubmission], run_ids: Sequence[str]
) -> dict[str, asyncpg.Record]:
    asked = [
        run_id
        for task, run_id in zip(tasks, run_ids, strict=True)
        if task.idempotency_key is not None
    ]
    if not asked:
        return {}
    rows = await context.pool.fetch(KNOWN, caller.tenant, asked, timeout=QUERY_TIMEOUT_S)
    return {row["run_id"]: row for row in rows}


def _apart(known: Iterable[asyncpg.Record]) -> tuple[dict[str, datetime], dict[str, str]]:
    """Return when tasks with the keys of rejected runs were refused, and the pipelines of the others."""
    refused_at, pipelines = dict[str, datetime](), dict[str, str]()
    for run in known:
        if run["status"] == "rejected":
            refused_at[run["run_id"]] = run["finished_at"]
        else:
            pipelines[run["run_id"]] = run["pipeline"]
    return refused_at, pipelines


def _check_key(run_id: str, task: RunSubmission, pipeline: str | None) -> None:
    """Raise IdempotencyKeyReused if the key of a task names a run of another pipeline, or stands at
    an earlier task of this request for one."""
    if pipeline not in (None, task.pipeline):
        raise IdempotencyKeyReused(field="idempotency_key", run_id=run_id, pipeline=pipeline)


async def _made(
    context: Context,
    caller: Caller,
    task: RunSubmission,
    key: str,
    run_id: str,
    known: asyncpg.Record | None,
) -> Post | BulkTask:
    """Return the message for a task, or the run that its key already names."""
    refused_at = None
    if known is not None:
        if known["status"] != "rejected":
            return BulkTask(run_id=run_id, known=True)
        refused_at = known["finished_at"]
    await context.plans.check(context.pool, caller.tenant, task)
    return Post(
        subjects.batched_task(caller.tenant, task.pipeline),
        payload_of(task, context.max_task_bytes),
        id_of(context.capabilities, message_id(run_id, task.pipeline, refused_at)),
        headers_of(task, run_id, key),
    )


async def _receipt(
    context: Context, made: Sequence[Post | BulkTask], run_ids: Sequence[str]
) -> BulkReceipt:
    """Publish the messages, and return the outcome of each task."""
    posts = [one for one in made if isinstance(one, Post)]
    outcomes = await context.batches.post(posts, timeout_s=PUBLISH_TIMEOUT_MS / 1_000)
    left = iter(outcomes)
    runs = [
        one if isinstance(one, BulkTask) else _outcome(next(left), run_id)
        for one, run_id in zip(made, run_ids, strict=True)
    ]
    refused = sum(run.error is not None for run in runs)
    away = next((one for one in outcomes if isinstance(one, BusUnavailable)), None)
    if away is not None and refused == len(runs) and outcomes.count(None) == 0:
        raise away
    return BulkReceipt(accepted=len(runs) - refused, refused=refused, runs=tuple(runs))


def _outcome(error: HocketError | None, run_id: str) -> BulkTask:
    return BulkTask(run_id=run_id) if error is None else BulkTask(error=error.info())
