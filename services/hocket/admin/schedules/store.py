"""The tables of schedules and of their firings (what became of each planned time).

Deciding about a schedule and submitting its tasks both happen under the lock of its row, so that one
process at a time does so; if a process dies, the lock is released with its connection.
"""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import asyncpg

from hocket.admin.pages import FAR_FUTURE, cursor, parse_cursor
from hocket.admin.queries import QUERY_TIMEOUT_S, Pool
from hocket.admin.schedules.times import Times
from hocket.schemas.administration.schedules import (
    SHOWN_NEXT,
    Firing,
    FiringList,
    Schedule,
    ScheduleTask,
)
from hocket.schemas.errors import ErrorClass, ErrorInfo, HocketError, InvalidInput

KEPT_FIRINGS = 1_000
"""How many firings are kept of each schedule."""
TRIMMED_AT_ONCE = 200

INSERT = """
INSERT INTO hocket.schedule (schedule_id, tenant, name, description, cron, time_zone, jitter_s, catch_up,
    catch_up_window_s, overlap, task, time_field, paused, planned_at, due_at, created_by, changed_by)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $16)
ON CONFLICT (tenant, name) DO NOTHING
RETURNING *
"""

REPLACE = """
UPDATE hocket.schedule SET description = $2, cron = $3, time_zone = $4, jitter_s = $5, catch_up = $6,
    catch_up_window_s = $7, overlap = $8, task = $9, time_field = $10, paused = $11,
    pause_reason = CASE WHEN $11 THEN pause_reason ELSE '' END,
    planned_at = $12, due_at = $13, changed_by = $14, changed_at = now(), revision = revision + 1
WHERE schedule_id = $1
RETURNING *
"""

SWITCH = """
UPDATE hocket.schedule SET paused = $2, pause_reason = $3, planned_at = $4, due_at = $5, changed_by = $6,
    changed_at = now(), revision = revision + 1
WHERE schedule_id = $1
RETURNING *
"""

LOCKED = "SELECT * FROM hocket.schedule WHERE tenant = $1 AND name = $2 FOR UPDATE"
FOUND = "SELECT * FROM hocket.schedule WHERE tenant = $1 AND name = $2"
LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('schedules of ' || $1, 0))"
"""Serializes creation and deletion of a tenant's schedules, so that counting them is exact, and a new
one goes on from the revision of a deleted one (migration 0068)."""
COUNT = "SELECT count(*) FROM hocket.schedule WHERE tenant = $1"
DELETE = "DELETE FROM hocket.schedule WHERE schedule_id = $1"

_LATEST = """
SELECT schedule_id, tenant, name, description, cron, time_zone, jitter_s, catch_up, catch_up_window_s,
       overlap, {} AS task, time_field, paused, pause_reason, revision, planned_at, due_at, created_by,
       created_at, changed_by, changed_at
FROM hocket.schedule
WHERE tenant = $1 AND (created_at, schedule_id) < ($2, $3)
  AND ($5::text IS NULL OR task ->> 'pipeline' = $5) AND ($6::boolean IS NULL OR paused = $6)
ORDER BY created_at DESC, schedule_id DESC LIMIT $4
"""
LATEST = _LATEST.format("task - 'input'")
"""A page of a tenant's schedules, without the inputs of their tasks, which may be large."""
LATEST_WITH_INPUTS = _LATEST.format("task")

DUE = """
SELECT * FROM hocket.schedule WHERE due_at <= $1 AND NOT paused AND schedule_id IN (
    SELECT schedule_id FROM (
        SELECT schedule_id, due_at, row_number() OVER (PARTITION BY tenant ORDER BY due_at) AS turn
        FROM hocket.schedule s
        WHERE due_at <= $1 AND NOT paused AND NOT EXISTS (
            SELECT FROM hocket.schedule_firing f
            WHERE f.schedule_id = s.schedule_id AND f.state = 'pending')) AS overdue
    ORDER BY turn, due_at LIMIT $2)
ORDER BY due_at
FOR UPDATE SKIP LOCKED
"""
"""Due schedules that no other process is deciding, tenants in turn. A schedule with a pending task is
skipped until that is submitted."""
AHEAD = """
SELECT schedule_id, cron, time_zone, jitter_s, planned_at, revision FROM hocket.schedule
WHERE schedule_id > $1 AND planned_at > $2 AND NOT paused
ORDER BY schedule_id LIMIT $3
"""
"""Schedules whose planned time is to come, in the order of their ids."""
PUT_BACK = """
UPDATE hocket.schedule SET planned_at = $4, due_at = $5 WHERE schedule_id IN (
    SELECT schedule_id FROM hocket.schedule
    WHERE schedule_id = $1 AND planned_at = $2 AND revision = $3 AND NOT paused
    FOR UPDATE SKIP LOCKED)
"""
"""Replaces the planned time of a schedule, unless it was changed, or somebody is changing it."""
ADVANCE = "UPDATE hocket.schedule SET planned_at = $2, due_at = $3 WHERE schedule_id = $1"

ADD_FIRING = """
INSERT INTO hocket.schedule_firing (firing_id, schedule_id, tenant, cause, state, planned_at, until,
    run_id, reason, decided_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (firing_id) DO NOTHING
"""
TAKE_BACK = """
DELETE FROM hocket.schedule_firing
WHERE firing_id = $1 AND state = 'missed' AND reason = $2 AND until = planned_at
"""

UNDONE = """
SELECT schedule_id FROM (
    SELECT schedule_id, first, row_number() OVER (PARTITION BY tenant ORDER BY first) AS turn
    FROM (SELECT f.schedule_id, f.tenant, min(f.decided_at) AS first
          FROM hocket.schedule_firing f JOIN hocket.schedule s USING (schedule_id)
          WHERE f.state = 'pending'
             OR f.state = 'buffered' AND NOT (s.paused AND f.cause <> 'triggered')
              AND NOT (s.overlap = 'buffer_one' AND EXISTS (
              SELECT FROM hocket.schedule_firing o
              LEFT JOIN hocket.run r ON r.run_id = o.run_id AND r.tenant = o.tenant
              WHERE o.schedule_id = f.schedule_id AND o.state = 'fired' AND NOT o.over
                AND CASE WHEN r.run_id IS NULL THEN o.fired_at > $2 ELSE r.finished_at IS NULL END))
          GROUP BY 1, 2) AS waiting) AS ordered
ORDER BY turn, first LIMIT $1
"""
"""Schedules with tasks to submit, tenants in turn. Those that wait for the end of a run, or until their
schedule is resumed, are left out, because many of them would keep the others waiting. A run that is not
in the database counts as in progress if it was submitted after `$2`."""
ONE_LOCKED = "SELECT * FROM hocket.schedule WHERE schedule_id = $1 FOR UPDATE SKIP LOCKED"
UNDONE_OF = """
SELECT * FROM hocket.schedule_firing
WHERE schedule_id = $1 AND state IN ('pending', 'buffered')
ORDER BY planned_at, firing_id LIMIT $2
"""
OPEN = """
SELECT f.firing_id, f.fired_at, r.run_id, r.partition, r.status, r.finished_at
FROM hocket.schedule_firing f LEFT JOIN hocket.run r ON r.run_id = f.run_id AND r.tenant = f.tenant
WHERE f.schedule_id = $1 AND f.state = 'fired' AND NOT f.over
"""
"""The runs of a schedule that are not known to have ended; run_id is null for those not in the database
yet."""
CLOSE = "UPDATE hocket.schedule_firing SET over = true WHERE firing_id = ANY ($1::text[])"
SETTLE = """
UPDATE hocket.schedule_firing SET state = $2, run_id = coalesce($3, run_id), error = $4, reason = $5,
    fired_at = $6
WHERE firing_id = $1
"""
PENDING = """
SELECT count(*) FROM hocket.schedule_firing WHERE schedule_id = $1 AND state = 'pending'
"""
BUFFERED = """
SELECT EXISTS (SELECT FROM hocket.schedule_firing WHERE schedule_id = $1 AND state = 'buffered')
"""
TRIM = """
DELETE FROM hocket.schedule_firing WHERE firing_id IN (
    SELECT firing_id FROM (
        SELECT firing_id, run_id, state = 'fired' AND NOT over AS is_open
        FROM hocket.schedule_firing
        WHERE schedule_id = $1 AND state NOT IN ('pending', 'buffered')
        ORDER BY planned_at DESC, firing_id DESC OFFSET $2) AS old
    WHERE NOT (is_open AND EXISTS (
        SELECT FROM hocket.run r WHERE r.run_id = old.run_id AND r.finished_at IS NULL))
    LIMIT $3)
"""
"""Deletes old firings, except those whose runs are in progress: the overlap policy needs them."""

FIRINGS = """
SELECT f.*, r.status AS run_status
FROM hocket.schedule_firing f LEFT JOIN hocket.run r ON r.run_id = f.run_id AND r.tenant = f.tenant
WHERE f.schedule_id = $1 AND (f.planned_at, f.firing_id) < ($2, $3)
ORDER BY f.planned_at DESC, f.firing_id DESC LIMIT $4
"""
FIRING = """
SELECT f.*, r.status AS run_status
FROM hocket.schedule_firing f LEFT JOIN hocket.run r ON r.run_id = f.run_id AND r.tenant = f.tenant
WHERE f.firing_id = $1
"""


class ScheduleUnknown(HocketError):
    """There is no schedule `{name}`. `hocket schedules list` and `GET /v1/schedules` show
    those that exist."""

    code = "schedule_unknown"
    error_class = ErrorClass.INVALID


async def find(
    connection: "Pool | asyncpg.Connection", tenant: str, name: str, *, lock: bool = False
) -> asyncpg.Record:
    """Return the row of a schedule, locked on request; raise ScheduleUnknown."""
    query = LOCKED if lock else FOUND
    row = await connection.fetchrow(query, tenant, name, timeout=QUERY_TIMEOUT_S)
    if row is None:
        raise ScheduleUnknown(name=name)
    return row


async def list_firings(
    pool: Pool, row: asyncpg.Record, after: str | None, limit: int
) -> FiringList:
    """Return a page of a schedule's firings, latest first."""
    before = (FAR_FUTURE, "") if after is None else parse_cursor(after)
    found = await pool.fetch(
        FIRINGS, row["schedule_id"], *before, limit + 1, timeout=QUERY_TIMEOUT_S
    )
    page = found[:limit]
    last = page[-1] if len(found) > limit else None
    more = None if last is None else cursor(last["planned_at"], last["firing_id"])
    return FiringList(firings=tuple(shown_firing(one) for one in page), next=more)


def times_of(row: Mapping[str, Any]) -> Times:
    """Return the times of a schedule."""
    return Times(row["cron"], row["time_zone"], row["jitter_s"], row["schedule_id"])


def firing_id(schedule_id: str, planned_at: datetime) -> str:
    """Return the id of a time's firing; the same time always has the same id."""
    return f"{schedule_id}:{round(planned_at.timestamp() * 1_000_000)}"


def shown(row: asyncpg.Record, now: datetime | None, *, with_input: bool) -> Schedule:
    """Return a schedule as callers see it; without `now`, only the stored next time is shown of the
    coming ones."""
    told: dict[str, Any] = dict(row)
    task = json.loads(told.pop("task"))
    if not with_input:
        task["input"] = None
    first: tuple[datetime, ...] = ()
    if not row["paused"] and row["planned_at"] is not None:
        first = (row["planned_at"],) if now is None else coming(row, now, SHOWN_NEXT)
    return Schedule(**told, task=ScheduleTask(**task), next=first)


def coming(row: asyncpg.Record, now: datetime, count: int) -> tuple[datetime, ...]:
    """Return a schedule's upcoming times, first the one that fires next; none if this machine does not
    know its zone, so that it can be seen and changed all the same."""
    times = times_of(row)
    try:
        times.check()
    except InvalidInput:
        return ()
    return times.coming(begin_of(row, now), count)


def begin_of(row: asyncpg.Record, now: datetime) -> datetime:
    """Return the moment after which a schedule's times come: now, or right before its planned time, if
    that is later."""
    planned_at: datetime | None = row["planned_at"]
    if row["paused"] or planned_at is None:
        return now
    return max(now, planned_at - timedelta(microseconds=1))


def shown_firing(row: asyncpg.Record) -> Firing:
    """Return a firing as callers see it."""
    told: dict[str, Any] = dict(row)
    error = told.pop("error")
    return Firing(**told, error=None if error is None else ErrorInfo.model_validate_json(error))
