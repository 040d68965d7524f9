"""Changes of schedules by people, each in one transaction with its audit row."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import uuid4

import asyncpg

from hocket.admin.context import Context
from hocket.admin.queries import QUERY_TIMEOUT_S
from hocket.admin.requests.etags import check_match, check_none_match
from hocket.admin.requests.identity import Caller
from hocket.admin.schedules import firing, store
from hocket.admin.schedules.times import Times
from hocket.admin.submission.one import payload_of
from hocket.kit.access import audit_log
from hocket.kit.access.audit_log import Action
from hocket.schemas import ids
from hocket.schemas.administration.schedules import MAX_SCHEDULES, ScheduleBody
from hocket.schemas.checks.plain_json import same_json
from hocket.schemas.errors import ErrorClass, HocketError, InvalidInput, PayloadTooLarge
from hocket.schemas.rest import RunSubmission

ZERO = datetime.fromisoformat("2026-01-01T00:00:00+00:00")


class SchedulesFull(HocketError):
    """The tenant has {most} schedules, which is the limit. Delete one: `DELETE /v1/schedules/NAME`."""

    code = "schedules_full"
    error_class = ErrorClass.INVALID


async def put(
    context: Context,
    caller: Caller,
    name: str,
    body: ScheduleBody,
    *,
    if_match: str | None,
    if_none_match: str | None,
) -> tuple[asyncpg.Record, bool]:
    """Create or replace a schedule; return its row, and whether it is new. Raises InvalidInput,
    PipelineUnknown, PipelineArchived, PayloadTooLarge, PreconditionFailed and SchedulesFull."""
    await _check(context, caller, body)
    async with _transaction(context, caller) as connection:
        former = await connection.fetchrow(store.LOCKED, caller.tenant, name)
        revision = None if former is None else former["revision"]
        check_match(if_match, revision)
        check_none_match(if_none_match, revision)
        now = await context.database_now(connection)
        if former is None:
            row = await _insert(connection, caller, name, body, now)
            if row is None:  # another request has created it meanwhile
                former = await store.find(connection, caller.tenant, name, lock=True)
                check_match(if_match, former["revision"])
                check_none_match(if_none_match, former["revision"])
        if former is not None:
            if same_json(_said_by(body, former), _said_of(former)):
                return former, False
            row = await _replace(connection, caller, former, body, now)
        assert row is not None, "it is new, or was replaced"
        done = "schedules.create" if former is None else "schedules.change"
        salt = uuid4().hex
        before = None if former is None else _audited(former, salt)
        await _record(connection, caller, done, name, before, _audited(row, salt))
    context.schedules_asked.set()
    return row, former is None


async def switch(
    context: Context,
    caller: Caller,
    name: str,
    *,
    paused: bool,
    reason: str,
    if_match: str | None,
) -> asyncpg.Record:
    """Pause a schedule, or resume it from now on; return its row. Times that have come and are not
    decided are left out. Nothing changes if it already is in that state. Raises ScheduleUnknown and
    PreconditionFailed."""
    async with _transaction(context, caller) as connection:
        former = await store.find(connection, caller.tenant, name, lock=True)
        check_match(if_match, former["revision"])
        if (former["paused"], former["pause_reason"]) == (paused, reason):
            return former
        planned_at, due_at = former["planned_at"], former["due_at"]
        if former["paused"] and not paused:
            times = store.times_of(former)
            await asyncio.to_thread(times.check)  # this machine may not know its zone
            now = await context.database_now(connection)
            planned_at, due_at = await _first_of_resumed(connection, former, times, now)
        if paused and not former["paused"]:
            now = await context.database_now(connection)
            await firing.leave_out_former(connection, former, now, firing.PAUSED)
        row = await connection.fetchrow(
            store.SWITCH, former["schedule_id"], paused, reason, planned_at, due_at, caller.name
        )
        done = "schedules.pause" if paused else "schedules.resume"
        await _record(connection, caller, done, name, None, {"reason": reason} if paused else None)
    return row


async def trigger(context: Context, caller: Caller, name: str, key: str | None) -> asyncpg.Record:
    """Submit a schedule's task now, subject to its overlap policy; return the resulting firing. Raises
    ScheduleUnknown."""
    async with _transaction(context, caller) as connection:
        row = await store.find(connection, caller.tenant, name, lock=True)
        token = uuid4().hex if key is None else ids.content_hash(key)[:32]
        firing_id = f"{row['schedule_id']}:by-hand:{token}"
        known = await connection.fetchrow(store.FIRING, firing_id)
        if known is not None:
            return known
        now = await context.database_now(connection)
        await firing.add_pending(connection, row, "triggered", now, now, firing_id)
        await firing.trim(connection, row["schedule_id"])
        await _record(connection, caller, "schedules.trigger", name, None, {"firing": firing_id})
        found = await connection.fetchrow(store.FIRING, firing_id)
    context.schedules_asked.set()
    return found


async def delete(context: Context, caller: Caller, name: str, *, if_match: str | None) -> None:
    """Delete a schedule with its history; its runs stay. Raises ScheduleUnknown and
    PreconditionFailed."""
    async with _transaction(context, caller) as connection:
        await connection.execute(store.LOCK, caller.tenant)
        row = await store.find(connection, caller.tenant, name, lock=True)
        check_match(if_match, row["revision"])
        await connection.execute(store.DELETE, row["schedule_id"])
        said = _audited(row, uuid4().hex)
        await _record(connection, caller, "schedules.delete", name, said, None)


@asynccontextmanager
async def _transaction(context: Context, caller: Caller) -> AsyncIterator[asyncpg.Connection]:
    """Begin a transaction, with a place for computing the times of a schedule: who waits for one holds
    no connection."""
    async with (
        context.schedule_times.place(caller.tenant),
        context.pool.acquire(timeout=QUERY_TIMEOUT_S) as connection,
        connection.transaction(),
    ):
        yield connection


async def _check(context: Context, caller: Caller, body: ScheduleBody) -> None:
    """Raise the error with which the task would be refused, at the time the schedule is written."""
    times, task = Times(body.cron, body.time_zone), body.task
    async with context.schedule_times.place(caller.tenant):
        await asyncio.to_thread(times.check)
    value = task.input
    if body.time_field is not None:
        value = {**value, body.time_field: times.local(ZERO)}
    submission = RunSubmission(pipeline=task.pipeline, version=task.version, input=value)
    try:
        await context.plans.check(context.pool, caller.tenant, submission)
        payload_of(submission, context.max_task_bytes)
    except (InvalidInput, PayloadTooLarge) as error:
        place = f"task.{error.fields['field']}"
        raise type(error)(**{**error.fields, "field": place}) from None


async def _insert(
    connection: asyncpg.Connection, caller: Caller, name: str, body: ScheduleBody, now: datetime
) -> asyncpg.Record | None:
    await connection.execute(store.LOCK, caller.tenant)
    if await connection.fetchval(store.COUNT, caller.tenant) >= MAX_SCHEDULES:
        raise SchedulesFull(most=MAX_SCHEDULES)
    schedule_id = f"s{uuid4().hex[:24]}"
    first = await _first(_times_of(body, schedule_id), now)
    values = (schedule_id, caller.tenant, name, *_values(body), *first, caller.name)
    return await connection.fetchrow(store.INSERT, *values)


async def _replace(
    connection: asyncpg.Connection,
    caller: Caller,
    former: asyncpg.Record,
    body: ScheduleBody,
    now: datetime,
) -> asyncpg.Record:
    """Overwrite a schedule. It continues where it was, unless its times changed or it was paused. If
    this pauses it, times that have come and are not decided are left out."""
    times = _times_of(body, former["schedule_id"])
    first = (former["planned_at"], former["due_at"])
    if body.paused and not former["paused"]:
        await firing.leave_out_former(connection, former, now, firing.PAUSED)
    if former["paused"] and body.paused is False:
        first = await _first_of_resumed(connection, former, times, now)
    elif times != store.times_of(former):
        first = await _first_of_changed(connection, former, body, times, now)
    values = (former["schedule_id"], *_values(body, former), *first, caller.name)
    return await connection.fetchrow(store.REPLACE, *values)


async def _first_of_resumed(
    connection: asyncpg.Connection, former: asyncpg.Record, times: Times, now: datetime
) -> tuple[datetime | None, datetime | None]:
    """Return the planned time from which a paused schedule goes on, and when it is due: the first one
    after now, or the one that had come before the pause, if its jitter delays it still."""
    planned_at, due_at = former["planned_at"], former["due_at"]
    is_delayed = planned_at is not None and planned_at <= now < due_at
    if (
        is_delayed
        and times == store.times_of(former)
        and await firing.take_back(connection, former)
    ):
        return planned_at, due_at
    return await _first(times, now)


async def _first_of_changed(
    connection: asyncpg.Connection,
    former: asyncpg.Record,
    body: ScheduleBody,
    times: Times,
    now: datetime,
) -> tuple[datetime | None, datetime | None]:
    """Return the planned time from which a schedule with other times goes on, and when it is due. Times
    that have come but are not decided, because their jitter delays them or they were missed, are not
    lost, unless they are very many. If only the jitter changed and delays the first one still, it stays;
    otherwise all are decided now, by the former times."""
    planned_at, before = former["planned_at"], store.times_of(former)
    if former["paused"] or body.paused or planned_at is None or planned_at > now:
        return await _first(times, now)
    if replace(before, jitter_s=times.jitter_s) == times:
        due_at = await asyncio.to_thread(times.due_at, planned_at)
        if due_at > now:
            return planned_at, due_at
    await firing.decide_former(connection, former, now)
    return await _first(times, now)


def _values(body: ScheduleBody, former: asyncpg.Record | None = None) -> tuple[Any, ...]:
    paused = body.paused
    if paused is None:
        paused = former is not None and former["paused"]
    return (
        body.description,
        body.cron,
        body.time_zone,
        body.jitter_s,
        body.catch_up,
        body.catch_up_window_s,
        body.overlap,
        json.dumps(_task(body)),
        body.time_field,
        paused,
    )


def _task(body: ScheduleBody) -> dict[str, Any]:
    task = body.task.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    if body.task.budget_usd is not None:
        task["budget_usd"] = format(body.task.budget_usd, "f")  # without an exponent
    return {**task, "input": body.task.input}


def _times_of(body: ScheduleBody, schedule_id: str) -> Times:
    return Times(body.cron, body.time_zone, body.jitter_s, schedule_id)


async def _first(times: Times, now: datetime) -> tuple[datetime | None, datetime | None]:
    """Return the first planned time after now, and when it is due."""
    found = await asyncio.to_thread(times.coming_and_due, now, 1)
    return found[0] if found else (None, None)


SAID = (
    "description", "cron", "time_zone", "jitter_s", "catch_up", "catch_up_window_s", "overlap",
    "task", "time_field", "paused",
)  # fmt: skip


def _said_by(body: ScheduleBody, former: asyncpg.Record) -> dict[str, Any]:
    return {**dict(zip(SAID, _values(body, former), strict=True)), "task": _task(body)}


def _said_of(row: asyncpg.Record) -> dict[str, Any]:
    return {**{name: row[name] for name in SAID}, "task": json.loads(row["task"])}


def _audited(row: asyncpg.Record, salt: str) -> dict[str, Any]:
    """Return a schedule in the form written to the audit: the input, which is content, is replaced by a
    hash. Its salt is kept nowhere: the two hashes of a change show whether the input changed, and
    nobody can find it out by hashing guesses."""
    said = _said_of(row)
    task = said["task"]
    salted = ids.content_hash([salt, task["input"]])
    return {**said, "task": {**task, "input": {"salted_sha256": salted}}}


async def _record(
    connection: asyncpg.Connection,
    caller: Caller,
    action: str,
    name: str,
    before: dict[str, Any] | None,
    after: dict[str, Any] | None,
) -> None:
    done = Action(action, f"schedule:{name}", caller.tenant, before=before, after=after)
    await audit_log.record(connection, caller.actor, done)
