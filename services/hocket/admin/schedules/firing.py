"""Submits the tasks of schedules, once per planned time, however many processes run this.

A planned time passes through two transactions, both under the lock of its schedule's row. The first
decides what happens to the time, and writes that together with the next time. The second submits the
task, with an idempotency key derived from schedule and time, and records that. If a process dies between
the two, or during the second, another one submits the same task again: with the same message id, so it
is the same run.

States of a time: pending, fired, failed (the task was refused); buffered (it waits for the end of a
run, and until a paused schedule is resumed), skipped (a run was under way); missed.
"""

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import structlog

from hocket.admin.context import Context
from hocket.admin.queries import QUERY_TIMEOUT_S
from hocket.admin.requests.errors import RunNotOpen
from hocket.admin.requests.identity import Caller, author_of
from hocket.admin.runs import actions
from hocket.admin.schedules import catch_up, store
from hocket.admin.schedules.catch_up import Missed
from hocket.admin.schedules.planned_times import PlannedTimes
from hocket.admin.submission.one import submit
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.postgres.errors import STATEMENT_ERRORS
from hocket.schemas import ids
from hocket.schemas.errors import ErrorClass, HocketError
from hocket.schemas.rest import CancelBody, RunSubmission

LOOK_S = 1.0
"""How often to look for due times."""
DECIDED_AT_ONCE = 20
"""Schedules decided in one transaction."""
MAX_ROUNDS = 10
"""Such transactions in one look."""
LOOKED_AT = 50
"""Schedules with tasks to submit that are handled in one look."""
AT_ONCE = 2
"""Schedules whose tasks one process submits at once; each uses a database connection."""
SUBMITTED_AT_ONCE = 20
"""Times of one schedule that are submitted before other schedules get their turn."""
PUT_OFF = timedelta(minutes=1)
"""When to look again at a schedule whose times cannot be computed."""
UNSEEN_RUN_S = 3_600.0
"""How long a run that is not in the database counts as in progress."""
PAUSED = "the schedule was paused"
"""Why times are left out that had come when somebody paused their schedule."""
CHANGED = "its times were changed"
"""Why times are left out that a change of their schedule's times found, and that were too many."""
UNAVAILABLE = (
    ErrorClass.UNAVAILABLE,
    ErrorClass.TIMEOUT,
    ErrorClass.TRANSIENT,
    ErrorClass.RATE_LIMITED,
)
AWAY: tuple[type[BaseException], ...] = (BusUnavailable, TimeoutError, OSError, *STATEMENT_ERRORS)
"""Errors that mean it has to wait."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Runs:
    """The runs of a schedule that are in progress; `unseen` ones are not in the database yet."""

    seen: list[asyncpg.Record] = field(default_factory=list)
    unseen: int = 0

    def __bool__(self) -> bool:
        return bool(self.seen or self.unseen)


async def run(context: Context) -> None:
    """Submit the tasks of schedules until cancelled."""
    planned_times = PlannedTimes()
    while True:
        context.schedules_asked.clear()
        try:
            await look(context)
            await planned_times.check(context)
        except AWAY as error:
            log.warning("schedules_wait", reason=str(error) or repr(error))
        except Exception:
            log.exception("schedules_failed")
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await context.schedules_asked.wait()


async def look(context: Context) -> None:
    """Decide about all due times, and submit the tasks of those decided."""
    for _ in range(MAX_ROUNDS):
        if not context.bus.connected or context.disk.low:
            break
        if await decide(context) < DECIDED_AT_ONCE:
            break
    unseen = await context.database_now(context.pool) - timedelta(seconds=UNSEEN_RUN_S)
    rows = await context.pool.fetch(store.UNDONE, LOOKED_AT, unseen, timeout=QUERY_TIMEOUT_S)
    turns = asyncio.Semaphore(AT_ONCE)

    async def in_turn(schedule_id: str) -> None:
        async with turns:
            try:
                await submit_pending(context, schedule_id)
            except AWAY as error:
                log.warning(
                    "schedule_waits", schedule=schedule_id, reason=str(error) or repr(error)
                )
            except Exception:
                log.exception("schedule_failed", schedule=schedule_id)

    await asyncio.gather(*(in_turn(row["schedule_id"]) for row in rows))


async def decide(context: Context) -> int:
    """Decide about the schedules that are due by Postgres's clock, skipping those that other processes
    are deciding; return how many were decided."""
    async with (
        context.pool.acquire(timeout=QUERY_TIMEOUT_S) as connection,
        connection.transaction(),
    ):
        now = await context.database_now(connection)
        rows = await connection.fetch(store.DUE, now, DECIDED_AT_ONCE, timeout=QUERY_TIMEOUT_S)
        for row in rows:
            await _decide_one(connection, row, now)
    return len(rows)


async def _decide_one(connection: asyncpg.Connection, row: asyncpg.Record, now: datetime) -> None:
    schedule_id = row["schedule_id"]
    try:
        found, due_at = await asyncio.to_thread(_decision, row, now)
    except Exception as error:  # a zone that this machine does not know: others must not wait
        log.error(
            "schedule_put_off", schedule=schedule_id, reason=repr(error), retry_s=PUT_OFF.seconds
        )
        await connection.execute(store.ADVANCE, schedule_id, row["planned_at"], now + PUT_OFF)
        return
    await _add_decided(connection, row, found, now)
    await connection.execute(store.ADVANCE, schedule_id, found.planned_at, due_at)
    await trim(connection, schedule_id)


async def decide_former(connection: asyncpg.Connection, row: asyncpg.Record, now: datetime) -> None:
    """Decide about all times that have come to a schedule, because it gets other times; `row` is locked,
    and the caller advances it. With what was pending before, at most MAX_AT_ONCE are submitted: the new
    times wait for them, and a pause does not stop them. The rest is left out. If this machine does not
    know the zone, all are lost."""
    former = dict(row)
    pending = await connection.fetchval(store.PENDING, row["schedule_id"])
    room = max(0, catch_up.MAX_AT_ONCE - pending)
    while former["planned_at"] is not None and former["planned_at"] <= now:
        if not room:
            await leave_out_former(connection, former, now, CHANGED)
            return
        try:
            found, _ = await asyncio.to_thread(_decision, former, now)
        except Exception as error:  # the change may be what mends it
            log.error("schedule_time_lost", schedule=row["schedule_id"], reason=repr(error))
            return
        found = _first_of(found, room)
        await _add_decided(connection, former, found, now)
        former["planned_at"] = found.planned_at
        room -= len(found.times)


def _first_of(found: catch_up.Due, room: int) -> catch_up.Due:
    """Return a decision about the first `room` times alone, which goes on from the one after them."""
    if len(found.times) <= room:
        return found
    return replace(found, times=found.times[:room], planned_at=found.times[room])


async def leave_out_former(
    connection: asyncpg.Connection, row: Mapping[str, Any], now: datetime, reason: str
) -> None:
    """Write in the history that the times that have come to a schedule and are not decided are left
    out, and why; `row` is locked."""
    first = row["planned_at"]
    if first is None or first > now:
        return
    try:
        last = await asyncio.to_thread(store.times_of(row).latest, now)
    except Exception:  # a zone that this machine does not know
        last = first
    await _add_missed(connection, row, Missed(first, last or first), reason, now)


async def take_back(connection: asyncpg.Connection, row: asyncpg.Record) -> bool:
    """Delete the line of the history that says that the planned time of a paused schedule, and no other
    one, was left out; return whether there was one."""
    line = _missed_id(row["schedule_id"], row["planned_at"])
    done = await connection.execute(store.TAKE_BACK, line, PAUSED)
    return not done.endswith(" 0")


def _missed_id(schedule_id: str, first: datetime) -> str:
    """Return the id of the line for times that are left out together."""
    return f"{store.firing_id(schedule_id, first)}:missed"


async def _add_decided(
    connection: asyncpg.Connection, row: Mapping[str, Any], found: catch_up.Due, now: datetime
) -> None:
    """Write what was decided about the due times of a schedule."""
    if found.missed is not None:
        await _add_missed(connection, row, found.missed, f"catch_up is `{row['catch_up']}`", now)
    cause = "caught_up" if found.late else "on_time"
    pending = [
        _pending(row, cause, planned_at, now, store.firing_id(row["schedule_id"], planned_at))
        for planned_at in found.times
    ]
    await connection.executemany(store.ADD_FIRING, pending)


async def _add_missed(
    connection: asyncpg.Connection,
    row: Mapping[str, Any],
    missed: Missed,
    reason: str,
    now: datetime,
) -> None:
    """Write the line of the history for times that are left out together."""
    await connection.execute(
        store.ADD_FIRING,
        _missed_id(row["schedule_id"], missed.first),
        row["schedule_id"],
        row["tenant"],
        "on_time",
        "missed",
        missed.first,
        missed.last,
        None,
        reason,
        now,
    )


async def trim(connection: asyncpg.Connection, schedule_id: str) -> None:
    """Delete the oldest firings of a schedule, if it has more than are kept."""
    await connection.execute(store.TRIM, schedule_id, store.KEPT_FIRINGS, store.TRIMMED_AT_ONCE)


def _decision(row: Mapping[str, Any], now: datetime) -> tuple[catch_up.Due, datetime | None]:
    """Return what happens to a schedule's due times, and when its next time is due."""
    times = store.times_of(row)
    found = catch_up.due(times, row["catch_up"], row["catch_up_window_s"], row["planned_at"], now)
    return found, None if found.planned_at is None else times.due_at(found.planned_at)


async def add_pending(
    connection: asyncpg.Connection,
    row: Mapping[str, Any],
    cause: str,
    planned_at: datetime,
    now: datetime,
    firing_id: str,
) -> None:
    """Record that the task of a schedule has to be submitted."""
    pending = _pending(row, cause, planned_at, now, firing_id)
    await connection.execute(store.ADD_FIRING, *pending)


def _pending(
    row: Mapping[str, Any],
    cause: str,
    planned_at: datetime,
    now: datetime,
    firing_id: str,
) -> tuple[Any, ...]:
    """Return the firing of a task that has to be submitted, as `ADD_FIRING` takes it."""
    return (
        firing_id,
        row["schedule_id"],
        row["tenant"],
        cause,
        "pending",
        planned_at,
        None,
        ids.run_id(row["tenant"], key_of(firing_id)),
        "",
        now,
    )


def key_of(firing_id: str) -> str:
    """Return the idempotency key of a firing's task."""
    return f"schedule:{firing_id}"


async def submit_pending(context: Context, schedule_id: str) -> None:
    """Submit a schedule's pending tasks and the buffered ones that need not wait any longer, earliest
    first. Does nothing if another process is doing so."""
    async with (
        context.pool.acquire(timeout=QUERY_TIMEOUT_S) as connection,
        connection.transaction(),
    ):
        row = await connection.fetchrow(store.ONE_LOCKED, schedule_id, timeout=QUERY_TIMEOUT_S)
        if row is None:
            return
        undone = await connection.fetch(store.UNDONE_OF, schedule_id, SUBMITTED_AT_ONCE)
        for firing in undone:
            now = await context.database_now(connection)
            settled = await _settle(context, connection, row, firing, now)
            if not settled:
                break


async def _settle(
    context: Context,
    connection: asyncpg.Connection,
    row: asyncpg.Record,
    firing: asyncpg.Record,
    now: datetime,
) -> bool:
    """Apply the overlap policy to a time; return whether the next one may follow. A buffered time waits
    while its schedule is paused, unless somebody triggered it."""
    if row["paused"] and firing["state"] == "buffered" and firing["cause"] != "triggered":
        return True
    policy = row["overlap"]
    if policy != "allow":
        running = await _running(connection, row["schedule_id"], now)
        if running and policy == "skip":
            await _write(connection, firing, "skipped", reason=_why(running))
            return True
        if running and policy == "buffer_one":
            return await _buffer(connection, row, firing, running)
        if running and not await _cancel(context, row, running):
            return False
    return await _submit(context, connection, row, firing, now)


async def _running(connection: asyncpg.Connection, schedule_id: str, now: datetime) -> Runs:
    """Return the runs of a schedule that are in progress, and mark the finished ones."""
    found, over = Runs(), []
    limit = now - timedelta(seconds=UNSEEN_RUN_S)
    for row in await connection.fetch(store.OPEN, schedule_id, timeout=QUERY_TIMEOUT_S):
        if row["run_id"] is None and row["fired_at"] > limit:
            found.unseen += 1
        elif row["run_id"] is None or row["finished_at"] is not None:
            over.append(row["firing_id"])
        else:
            found.seen.append(row)
    if over:
        await connection.execute(store.CLOSE, over)
    return found


def _why(running: Runs) -> str:
    return f"{running.seen[0]['run_id']} was under way" if running.seen else "a run was under way"


async def _buffer(
    connection: asyncpg.Connection, row: asyncpg.Record, firing: asyncpg.Record, running: Runs
) -> bool:
    """Let a time wait for the end of the run if none is waiting yet; otherwise skip it."""
    if firing["state"] == "buffered":
        return True
    if await connection.fetchval(store.BUFFERED, row["schedule_id"]):
        await _write(connection, firing, "skipped", reason="another one was already waiting")
    else:
        await _write(connection, firing, "buffered", reason=_why(running))
    return True


async def _cancel(context: Context, row: asyncpg.Record, running: Runs) -> bool:
    """Cancel the runs in progress; return whether all of them could be cancelled."""
    body = CancelBody(reason=f"the next run of schedule {row['name']} begins"[:1_000])
    for one in running.seen:
        with suppress(RunNotOpen):
            await actions.cancel(context, caller_of(row), one, body)
    return not running.unseen


async def _submit(
    context: Context,
    connection: asyncpg.Connection,
    row: asyncpg.Record,
    firing: asyncpg.Record,
    now: datetime,
) -> bool:
    """Submit the task of a time and record the outcome; raises an error of AWAY if it has to wait."""
    task = json.loads(row["task"])
    if row["time_field"] is not None:
        local = store.times_of(row).local(firing["planned_at"])
        task["input"] = {**task["input"], row["time_field"]: local}
    body = RunSubmission(**task, idempotency_key=key_of(firing["firing_id"]))
    try:
        receipt = await submit(context, caller_of(row), body, traceparent=None)
    except HocketError as error:
        info = error.info()
        if info.error_class in UNAVAILABLE:
            log.warning("schedule_waits", schedule=row["schedule_id"], reason=info.message)
            return False
        log.info("schedule_task_refused", schedule=row["schedule_id"], code=info.code)
        await _write(connection, firing, "failed", error=info.model_dump_json())
        return True
    await _write(connection, firing, "fired", run_id=receipt.run_id, fired_at=now)
    return True


async def _write(
    connection: asyncpg.Connection,
    firing: asyncpg.Record,
    state: str,
    *,
    run_id: str | None = None,
    error: str | None = None,
    reason: str = "",
    fired_at: datetime | None = None,
) -> None:
    await connection.execute(
        store.SETTLE, firing["firing_id"], state, run_id, error, reason, fired_at
    )


def caller_of(row: Mapping[str, Any]) -> Caller:
    """Return the caller for a schedule's tasks: the author of its last change."""
    return author_of(row["tenant"], row["changed_by"])
