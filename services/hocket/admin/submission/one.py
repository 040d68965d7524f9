"""Submits a task the way any user can: as one message on TASKS, with a reply for callers that wait.

It owns no state. The run's id is derived from tenant and idempotency key, so it is known before anything
is sent, and a second submission finds the run of the first: in the database, or, while the run is not
there yet, because intake derives the same id. The run is looked up before the task is checked, because
its pipeline may have another version by now, or be archived; and again once a caller that waits listens
for its end. Such a caller is told of the end on a reply inbox or, if an earlier submission started the
run, by the public fact. An output that was too large for these messages is read from the database.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol, Self, TypeVar
from uuid import uuid4

import asyncpg

from hocket.admin.context import Context
from hocket.admin.requests.identity import Caller
from hocket.admin.runs import reads
from hocket.kit.nats import cloudevents
from hocket.kit.request_turns import give_way
from hocket.schemas import ids, subjects
from hocket.schemas.capabilities import id_of
from hocket.schemas.errors import (
    ErrorInfo,
    HocketError,
    IdempotencyKeyReused,
    InvalidInput,
    PayloadTooLarge,
)
from hocket.schemas.labels import header_of
from hocket.schemas.messages import RunFinished, TaskRejected
from hocket.schemas.rest import RunReceipt, RunResult, RunSubmission
from hocket.schemas.tracing.context import read_context

PUBLISH_TIMEOUT_MS = 10_000
"""How long the broker may take to confirm that the task is stored."""
EVENT_TYPE = "hocket.task"
EVENT_SOURCE = "/hocket/admin"

_Post = Callable[..., Awaitable[None]]


class Keyed(Protocol):
    """The body of a request that may name its idempotency key."""

    @property
    def idempotency_key(self) -> str | None: ...

    def model_copy(self, *, update: Mapping[str, Any]) -> Self: ...


K = TypeVar("K", bound=Keyed)
_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


class TaskRefused(HocketError):
    """The task was refused: {reason}"""

    code = "task_refused"

    def __init__(self, error: ErrorInfo) -> None:
        super().__init__(reason=error.message)
        self._error = error

    def info(self) -> ErrorInfo:
        """Return the error given by intake."""
        return self._error


async def submit(
    context: Context,
    caller: Caller,
    task: RunSubmission,
    *,
    traceparent: str | None,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
) -> RunReceipt | RunResult:
    """Submit a task; return the run's result if it ended within `wait_ms`, otherwise a receipt.
    `headers` are added to those derived from the submission; `body` is sent instead of its input.

    Raises PipelineUnknown, InvalidInput, PayloadTooLarge, IdempotencyKeyReused, BusUnavailable, and
    intake's refusal if it arrives within `wait_ms`.
    """
    key = task.idempotency_key or uuid4().hex
    run_id = ids.run_id(caller.tenant, key)
    post = partial(_publish, context, caller, task, key, body, traceparent, headers)
    known, refused_at = await _known_or_checked(context, caller, task, run_id)
    if not task.wait_ms:
        if known is not None:
            return _receipt(task, run_id, known["status"], known=True)
        await post(refused_at)
        return _receipt(task, run_id, "accepted", known=False)
    if known is not None and known["finished_at"] is not None:
        return _end(await reads.run_row(context.pool, caller.tenant, run_id))
    return await _waited(context, caller, task, run_id, post)


async def _waited(
    context: Context, caller: Caller, task: RunSubmission, run_id: str, post: _Post
) -> RunReceipt | RunResult:
    """Post a task unless its run is known by now, and wait for the run's end within `wait_ms`."""
    async with _end_of(context, caller, task, run_id) as (inbox, end):
        known, refused_at = await _known(context, caller, task, run_id)  # it may have ended before
        if known is None:
            await post(refused_at, reply_to=inbox)
        elif known["finished_at"] is not None:
            return _end(await reads.run_row(context.pool, caller.tenant, run_id))
        finished = await _within(context, end, task.wait_ms)
    if finished is not None and not finished.output_left_out:
        return _result(finished)
    latest = await reads.find_run(context.pool, caller.tenant, run_id)
    if latest is None or (refused_at is not None and latest["finished_at"] == refused_at):
        # its row is not written yet
        return _receipt(task, run_id, "accepted", known=known is not None)
    if latest["finished_at"] is not None:
        return _end(latest)
    return _receipt(task, run_id, latest["status"], known=known is not None)


def merged_key(body: K, header: str | None) -> K:
    """Return a body with the idempotency key of the header `Idempotency-Key`, if there is one."""
    if header is None or header == body.idempotency_key:
        return body
    if body.idempotency_key is not None:
        raise InvalidInput(
            field="Idempotency-Key",
            reason="header and body name different keys",
            cure="Send one of them.",
        )
    return body.model_copy(update={"idempotency_key": header})


def valid_trace(traceparent: str | None) -> str | None:
    """Return the caller's trace context (W3C), or None if it is missing or invalid."""
    return None if read_context(traceparent) is None else traceparent


def payload_of(task: RunSubmission, limit_bytes: int) -> bytes:
    """Return the body of a task's message, or raise PayloadTooLarge."""
    payload = _COMPACT.encode(task.input).encode()
    if len(payload) > limit_bytes:
        raise PayloadTooLarge(field="input", size_bytes=len(payload), limit_bytes=limit_bytes)
    return payload


async def _known_or_checked(
    context: Context, caller: Caller, task: RunSubmission, run_id: str
) -> tuple[asyncpg.Record | None, datetime | None]:
    """Return the same as `_known`. If the key names no run, check the task."""
    known, refused_at = await _known(context, caller, task, run_id)
    if known is None:
        await context.plans.check(context.pool, caller.tenant, task)
    return known, refused_at


async def _known(
    context: Context, caller: Caller, task: RunSubmission, run_id: str
) -> tuple[asyncpg.Record | None, datetime | None]:
    """Return the run that the key already names, or when the last task with that key was refused: a
    rejected run does not hold its key."""
    if task.idempotency_key is None:
        return None, None
    row = await context.known_runs.find(context.pool, caller.tenant, run_id)
    if row is not None and row["status"] == "rejected":
        return None, row["finished_at"]
    if row is not None and row["pipeline"] != task.pipeline:
        raise IdempotencyKeyReused(field="idempotency_key", run_id=run_id, pipeline=row["pipeline"])
    return row, None


def message_id(run_id: str, pipeline: str, refused_at: datetime | None) -> str:
    """Return the id of a task's message. It has the pipeline, because the stream would drop a task of
    another pipeline with the same key in silence, which intake refuses with an answer; and when the last
    task with the key was refused."""
    after = "" if refused_at is None else f":after:{refused_at.isoformat()}"
    return f"{run_id}:{pipeline}{after}"


def _end(row: asyncpg.Record) -> RunResult:
    """Return the result of a run, or raise the error with which it was rejected."""
    result = reads.result(row)
    if result.status == "rejected" and result.error is not None:
        raise TaskRefused(result.error)
    return result


async def _publish(
    context: Context,
    caller: Caller,
    task: RunSubmission,
    key: str,
    body: bytes | None,
    traceparent: str | None,
    given: Mapping[str, str] | None,
    refused_at: datetime | None,
    *,
    reply_to: str | None = None,
) -> None:
    payload = payload_of(task, context.max_task_bytes) if body is None else body
    context.disk.check()
    run_id = ids.run_id(caller.tenant, key)
    headers = headers_of(task, run_id, key, traceparent, given, reply_to)
    await context.bus.publish(
        subjects.task(caller.tenant, task.pipeline),
        payload,
        msg_id=id_of(context.capabilities, message_id(run_id, task.pipeline, refused_at)),
        headers=headers,
        timeout_ms=PUBLISH_TIMEOUT_MS,
    )
    context.recent.add(caller.tenant, run_id, refused_at)


def headers_of(
    task: RunSubmission,
    run_id: str,
    key: str,
    traceparent: str | None = None,
    given: Mapping[str, str] | None = None,
    reply_to: str | None = None,
) -> dict[str, str]:
    """Return the headers for a task's message."""
    headers = {
        **(given or {}),
        **cloudevents.event_headers(EVENT_TYPE, EVENT_SOURCE, run_id, traceparent=traceparent),
        cloudevents.IDEMPOTENCY_KEY: key,
    }
    for name, value in (
        (cloudevents.DEADLINE_MS, task.deadline_ms),
        (cloudevents.PRIORITY, task.priority),
        (cloudevents.BUDGET_USD, task.budget_usd),
        (cloudevents.VERSION, task.version),
        (cloudevents.LABELS, header_of(task.labels) if task.labels else None),
        (cloudevents.REPLY_TO, reply_to),
    ):
        if value is not None:
            headers[name] = str(value)
    return headers


@asynccontextmanager
async def _end_of(
    context: Context, caller: Caller, task: RunSubmission, run_id: str
) -> AsyncIterator[tuple[str, asyncio.Future[RunFinished]]]:
    """Listen for the end of a run: on its own inbox and, if an earlier submission may have started the
    run, to the public fact. The subscriptions reach the server before the task does."""
    end: asyncio.Future[RunFinished] = asyncio.get_running_loop().create_future()

    async def heard(message: Any) -> None:
        body = json.loads(message.data)
        if end.done():
            return
        if "run_id" not in body:
            end.set_exception(TaskRefused(TaskRejected.model_validate(body).error))
        elif body["run_id"] == run_id and "finished_at_ms" in body:
            end.set_result(RunFinished.model_validate(body))

    inbox = context.bus.nc.new_inbox()
    async with AsyncExitStack() as listening:
        listening.callback(end.cancel)
        subscription = await context.bus.subscribe(inbox, heard)
        listening.push_async_callback(subscription.unsubscribe)
        if task.idempotency_key is not None:
            hearing = context.known_runs.ends.hearing(
                context.bus, caller.tenant, task.pipeline, run_id, end
            )
            await listening.enter_async_context(hearing)
        yield inbox, end


async def _within(
    context: Context, end: asyncio.Future[RunFinished], wait_ms: float
) -> RunFinished | None:
    give_way()
    stopping = asyncio.ensure_future(context.stopping.wait())
    ends: set[asyncio.Future[Any]] = {end, stopping}
    try:
        await asyncio.wait(ends, timeout=wait_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
    return end.result() if end.done() else None


def _receipt(task: RunSubmission, run_id: str, status: str, *, known: bool) -> RunReceipt:
    return RunReceipt(
        run_id=run_id,
        pipeline=task.pipeline,
        status=status,
        known=known,
        url=f"/v1/runs/{run_id}",
    )


def _result(finished: RunFinished) -> RunResult:
    return RunResult(
        run_id=finished.run_id,
        pipeline=finished.pipeline,
        version=finished.version,
        status=finished.status,
        output=finished.output,
        error=finished.error,
        accepted_at=_moment(finished.accepted_at_ms),
        finished_at=_moment(finished.finished_at_ms),
        deadline_at=_moment(finished.deadline_at_ms),
        duration_ms=round(finished.finished_at_ms - finished.accepted_at_ms, 3),
        met_deadline=reads.met_deadline(
            finished.status, _moment(finished.finished_at_ms), _moment(finished.deadline_at_ms)
        ),
        spent_usd=finished.cost_usd,
    )


def _moment(at_ms: float) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC)
