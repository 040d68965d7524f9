"""Submits many tasks by one request: all are on their way to the broker together, and each is taken or
refused by itself."""

import asyncio
from collections.abc import Sequence
from uuid import uuid4

import asyncpg

from hocket.admin.context import Context
from hocket.admin.queries import QUERY_TIMEOUT_S
from hocket.admin.requests.errors import IdempotencyKeyReused
from hocket.admin.requests.identity import Caller
from hocket.admin.submission.one import PUBLISH_TIMEOUT_MS, headers_of, payload_of
from hocket.kit.nats.connection.durable_publisher import PubAck
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.postgres.lookups import rows_of_runs
from hocket.schemas import ids, subjects
from hocket.schemas.administration.bulk import BulkReceipt, BulkTask
from hocket.schemas.capabilities import id_of
from hocket.schemas.errors import HocketError, InvalidInput
from hocket.schemas.rest import RunSubmission

AT_ONCE = 50
"""Tasks that are checked before others have their turn."""

KNOWN = f"""
SELECT run_id, pipeline, status, finished_at {rows_of_runs("hocket.run", "$2::text[]")}
WHERE tenant = $1
"""
"""The runs that keys name already."""


async def submit_all(
    context: Context, caller: Caller, tasks: Sequence[RunSubmission]
) -> BulkReceipt:
    """Submit tasks; return what became of each. Raises InvalidInput where one wants to wait, and
    BusUnavailable where none was taken because the broker is away."""
    for place, task in enumerate(tasks):
        if task.wait_ms:
            raise InvalidInput(
                field=f"runs.{place}.wait_ms",
                reason="many tasks are not waited for",
                cure="Leave it out, and follow the runs.",
            )
    context.disk.check()
    keys = [task.idempotency_key or uuid4().hex for task in tasks]
    run_ids = [ids.run_id(caller.tenant, key) for key in keys]
    known = await _known(context, caller, tasks, run_ids)
    until_s = asyncio.get_running_loop().time() + PUBLISH_TIMEOUT_MS / 1_000
    sent: list[asyncio.Future[PubAck] | BulkTask] = []
    for place, (task, key, run_id) in enumerate(zip(tasks, keys, run_ids, strict=True)):
        if place % AT_ONCE == 0:
            await asyncio.sleep(0)
        try:
            found = known.get(run_id)
            sent.append(await _sent(context, caller, task, key, run_id, found, until_s))
        except HocketError as error:
            sent.append(BulkTask(error=error.info()))
    receipt = await _receipt(sent, run_ids)
    for one in receipt.runs:
        if one.run_id is not None:
            context.recent.add(caller.tenant, one.run_id)
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


async def _sent(
    context: Context,
    caller: Caller,
    task: RunSubmission,
    key: str,
    run_id: str,
    known: asyncpg.Record | None,
    until_s: float,
) -> "asyncio.Future[PubAck] | BulkTask":
    """Publish a task, or return the run that its key names. Raises BusUnavailable where the broker is
    behind until `until_s`."""
    msg_id = run_id
    if known is not None:
        if known["pipeline"] != task.pipeline:
            raise IdempotencyKeyReused(
                field="idempotency_key", run_id=run_id, pipeline=known["pipeline"]
            )
        if known["status"] != "rejected":
            return BulkTask(run_id=run_id, known=True)
        msg_id = f"{run_id}:after:{known['finished_at'].isoformat()}"
    await context.plans.check(context.pool, caller.tenant, task)
    payload = payload_of(task, context.max_task_bytes)
    publisher = context.bus.publisher
    if publisher.unacknowledged >= publisher.window:
        await _capacity(context, until_s)
    return context.bus.publish_durable(
        subjects.task(caller.tenant, task.pipeline),
        payload,
        msg_id=id_of(context.capabilities, msg_id),
        headers=headers_of(task, run_id, key),
    )


async def _capacity(context: Context, until_s: float) -> None:
    try:
        async with asyncio.timeout_at(until_s):
            await context.bus.wait_for_capacity()
    except TimeoutError:
        raise BusUnavailable(reason="the broker is behind with storing tasks") from None


async def _receipt(
    sent: Sequence["asyncio.Future[PubAck] | BulkTask"], run_ids: Sequence[str]
) -> BulkReceipt:
    """Wait until the broker has stored what was sent, and return what became of it."""
    waiting = [one for one in sent if not isinstance(one, BulkTask)]
    if waiting:
        await asyncio.wait(waiting, timeout=PUBLISH_TIMEOUT_MS / 1_000)
    unstored = BusUnavailable(reason="the broker has not confirmed the task")
    runs = [
        one if isinstance(one, BulkTask) else _outcome(one, run_id, unstored)
        for one, run_id in zip(sent, run_ids, strict=True)
    ]
    refused = sum(run.error is not None for run in runs)
    if waiting and refused == len(runs) and not any(one.done() for one in waiting):
        raise unstored
    for one in waiting:
        one.cancel()
    return BulkReceipt(accepted=len(runs) - refused, refused=refused, runs=tuple(runs))


def _outcome(sent: "asyncio.Future[PubAck]", run_id: str, unstored: HocketError) -> BulkTask:
    if not sent.done():
        return BulkTask(error=unstored.info())
    error = sent.exception()
    if isinstance(error, HocketError):
        return BulkTask(error=error.info())
    if error is not None:
        raise error
    return BulkTask(run_id=run_id)
