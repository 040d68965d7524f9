"""Tasks that are submitted on a schedule, and the outcome of each scheduled time."""

import re
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from hocket.schemas.errors import ErrorInfo
from hocket.schemas.messages import Priority
from hocket.schemas.pipeline.faults import misuse
from hocket.schemas.rest import (
    BudgetUsd,
    DeadlineMs,
    Key,
    PlainObject,
    Reply,
    Request,
    TaskLabels,
    Text,
    Token,
    Usd,
    Version,
)

MAX_SCHEDULES = 1_000
"""The most schedules of one tenant."""
MAX_CRON_CHARS = 100
MAX_ZONE_CHARS = 64
MAX_JITTER_S = 3_600
MAX_CATCH_UP_WINDOW_S = 7 * 86_400
MAX_NEXT = 20
"""The most coming times in one answer."""
SHOWN_NEXT = 3
"""How many coming times are shown with a schedule."""

CatchUp = Literal["none", "one", "all"]
Overlap = Literal["allow", "skip", "cancel_running", "buffer_one"]
FiringState = Literal["pending", "buffered", "fired", "skipped", "missed", "failed"]
Cause = Literal["on_time", "caught_up", "triggered"]
CRON_FIELDS = "minute, hour, day of the month, month and day of the week, as in `30 6 * * 1-5`"
_FIVE_FIELDS = r"^[0-9A-Za-z*,/#-]+( [0-9A-Za-z*,/#-]+){4}$"


def _five_fields(value: object) -> object:
    if isinstance(value, str) and not re.match(_FIVE_FIELDS, value):
        raise misuse(
            "it does not have the five fields of a cron expression", f"Write {CRON_FIELDS}."
        )
    return value


Cron = Annotated[
    str,
    BeforeValidator(_five_fields),
    Field(min_length=9, max_length=MAX_CRON_CHARS, pattern=_FIVE_FIELDS),
]
"""Cron expression with five fields: minute, hour, day of the month, month, day of the week."""
Zone = Annotated[
    str, Field(min_length=1, max_length=MAX_ZONE_CHARS, pattern=r"^[A-Za-z][A-Za-z0-9_+/-]*$")
]
"""Name of a time zone in the IANA database, such as Europe/Berlin."""

_EXAMPLE: dict[str, Any] = {
    "cron": "30 6 * * 1-5",
    "time_zone": "Europe/Berlin",
    "catch_up": "one",
    "overlap": "skip",
    "jitter_s": 30,
    "task": {"pipeline": "report", "input": {"region": "eu"}, "labels": {"team": "search"}},
    "time_field": "as_of",
}


class Timing(Request):
    """When to run: the times of `cron` in a time zone, each delayed by up to `jitter_s` seconds. The
    delay is always the same for the same schedule and time."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"cron": "30 2 * * *", "time_zone": "Europe/Berlin"}]}
    )

    cron: Cron
    time_zone: Zone = "UTC"
    jitter_s: float = Field(0, ge=0, le=MAX_JITTER_S, strict=True)


class ScheduledTask(Request):
    """The task that is submitted at each time, as accepted by `POST /v1/runs`."""

    pipeline: Token
    input: PlainObject = Field(default_factory=dict)
    deadline_ms: DeadlineMs | None = None
    priority: Priority | None = Field(None, alias="class")
    budget_usd: BudgetUsd | None = None
    version: Version | None = None
    """Defaults to the version that new runs use at each time."""
    labels: TaskLabels = Field(default_factory=dict)


class ScheduleBody(Timing):
    """A schedule. `catch_up` says what to do about times at which nothing could be submitted,
    `overlap` what to do if a run of the schedule is still in progress. If `time_field` is set, that
    field of the task's input is set to the time of each run. If `paused` is omitted, it does not
    change."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    task: ScheduledTask
    time_field: str | None = Field(
        None, min_length=1, max_length=100, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$"
    )
    catch_up: CatchUp = "one"
    catch_up_window_s: float = Field(86_400, gt=0, le=MAX_CATCH_UP_WINDOW_S, strict=True)
    """Seconds; times missed longer ago are not caught up on."""
    overlap: Overlap = "skip"
    description: Text = ""
    paused: Annotated[bool, Field(strict=True)] | None = None


class PauseBody(Request):
    """Why the schedule is paused."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"reason": "the source is being moved"}]}
    )

    reason: Text = ""


class TriggerBody(Request):
    """Run a schedule now. The same `idempotency_key` always means the same run."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"idempotency_key": "by-hand-1"}]})

    idempotency_key: Key | None = None


class ScheduleTask(Reply):
    """The task of a schedule; its input is withheld from keys without `content.read`."""

    pipeline: str
    input: PlainObject | None = None
    deadline_ms: float | None = None
    priority: Priority | None = Field(None, alias="class")
    budget_usd: Usd | None = None
    version: int | None = None
    labels: dict[str, str] = Field(default_factory=dict)


class Schedule(Reply):
    """A schedule; `next` are its upcoming times (in lists only the first), without jitter. `revision`
    is in its ETag."""

    name: str
    description: str
    cron: str
    time_zone: str
    jitter_s: float
    catch_up: CatchUp
    catch_up_window_s: float
    overlap: Overlap
    task: ScheduleTask
    time_field: str | None = None
    paused: bool
    pause_reason: str
    revision: int
    next: tuple[datetime, ...]
    created_by: str
    created_at: datetime
    changed_by: str
    changed_at: datetime


class ScheduleList(Reply):
    """Schedules, newest first; `next` as in RunList."""

    schedules: tuple[Schedule, ...]
    next: str | None = None


class NextTime(Reply):
    """An upcoming time: as scheduled, in UTC and in the schedule's time zone, and including jitter."""

    planned_at: datetime
    local: str
    due_at: datetime


class NextTimes(Reply):
    """The next upcoming times."""

    times: tuple[NextTime, ...]


class Firing(Reply):
    """The outcome of a scheduled time: `fired`, its task was submitted; `pending`, its task is about
    to be submitted; `buffered`, it waits for the previous run to end, and for a paused schedule to be
    resumed; `skipped`, because the previous run was in progress; `failed`, the task was refused, see
    `error`; `missed`, nothing was submitted at that time and at all others until `until`, see
    `reason`."""

    firing_id: str
    cause: Cause
    state: FiringState
    planned_at: datetime
    until: datetime | None = None
    run_id: str | None = None
    run_status: str | None = None
    """Missing until the run is in the database."""
    error: ErrorInfo | None = None
    reason: str
    decided_at: datetime
    fired_at: datetime | None = None


class FiringList(Reply):
    """Past times of a schedule with their outcome, newest first; `next` as in RunList."""

    firings: tuple[Firing, ...]
    next: str | None = None
