"""A schedule's form says the same as the schedule, in both directions."""

from datetime import UTC, datetime
from typing import Any, get_args

import pytest

from hocket.admin.console.creation.choices import time_zones
from hocket.admin.console.creation.schedule_fields import (
    CATCH_UPS,
    LABELS,
    MORE,
    NEW,
    OVERLAPS,
    has_more,
    new_schedule,
    read_schedule,
    typed_of,
)
from hocket.schemas.administration.schedules import (
    CatchUp,
    Overlap,
    Schedule,
    ScheduleBody,
    ScheduleTask,
)

AT = datetime(2026, 1, 1, tzinfo=UTC)
WHOLE: dict[str, Any] = {
    "description": "Every Monday.",
    "cron": "30 6 * * 1",
    "time_zone": "Europe/Berlin",
    "jitter_s": 0.25,
    "catch_up": "all",
    "catch_up_window_s": 604_800,
    "overlap": "buffer_one",
    "time_field": "as_of",
    "task": {
        "pipeline": "report", "input": {"a": [1.5, None, "\u00e9\n"], "b": 2**70}, "version": 3,
        "class": "batch", "deadline_ms": 1_500.5, "budget_usd": "0.000000001",
        "labels": {"customer": "a, b=c"},
    },
}  # fmt: skip
LITTLE: dict[str, Any] = {"cron": "0 2 * * *", "task": {"pipeline": "report"}}


@pytest.mark.parametrize("given", [WHOLE, LITTLE])
def test_a_stored_schedule_is_the_same_after_its_form(given: dict[str, Any]) -> None:
    body = ScheduleBody.model_validate(given)
    task = ScheduleTask(**body.task.model_dump())
    own = {name: getattr(body, name) for name in ScheduleBody.model_fields if name != "task"}
    stored = Schedule(
        **{**own, "paused": False}, name="a", task=task, pause_reason="", revision=1, next=(),
        created_by="", created_at=AT, changed_by="", changed_at=AT,
    )  # fmt: skip
    typed = typed_of(stored)

    assert typed is not None
    assert set(typed.values) == set(LABELS) - {"name", "paused"}
    assert read_schedule(typed, is_new=False) == ("", body)


def test_an_empty_form_says_what_the_api_takes_by_default() -> None:
    body = ScheduleBody.model_validate(LITTLE)

    assert {
        "time_zone": body.time_zone,
        "task.input": "{}",
        "overlap": body.overlap,
        "catch_up": body.catch_up,
        "catch_up_window_s": f"{body.catch_up_window_s:.0f}",
        "jitter_s": f"{body.jitter_s:.0f}",
    } == NEW
    assert not has_more(new_schedule(""))
    assert set(MORE) < set(LABELS)


def test_every_value_that_the_api_knows_can_be_chosen() -> None:
    assert set(OVERLAPS) == set(get_args(Overlap))
    assert set(CATCH_UPS) == set(get_args(CatchUp))


async def test_time_zones_are_those_of_places() -> None:
    zones = await time_zones()

    assert zones[0] == "UTC"
    assert {"Europe/Berlin", "America/Argentina/Buenos_Aires", "Asia/Kolkata"} < set(zones)
    assert not [one for one in zones if one.startswith(("posix/", "right/", "Etc/"))]
