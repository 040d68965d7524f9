"""A planned time with times of the schedule before it is found, and the coming times begin with the
planned one."""

from datetime import UTC, datetime
from typing import Any

import pytest

from hocket.admin.schedules import store
from hocket.admin.schedules.planned_times import _earlier

NOW = datetime(2026, 5, 4, 9, 30, tzinfo=UTC)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def schedule(planned_at: str | None, **other: Any) -> Any:
    return {
        "schedule_id": "s1", "cron": "0 * * * *", "time_zone": "UTC", "jitter_s": 0.0,
        "paused": False, "planned_at": None if planned_at is None else at(planned_at), **other,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("planned_at", "first"),
    [
        ("2026-05-04T10:00", None),
        ("2026-05-07T10:00", "2026-05-04T10:00"),
        ("2026-05-04T11:00", "2026-05-04T10:00"),
    ],
    ids=("next", "days ahead", "one too far"),
)
def test_only_a_time_with_others_before_it_is_put_back(planned_at: str, first: str | None) -> None:
    row = schedule(planned_at)
    found = _earlier([schedule(planned_at, time_zone="Mars/Base"), row], NOW)
    assert found == ([] if first is None else [(row, at(first), at(first))])


def test_what_is_put_back_is_due_with_its_jitter() -> None:
    row = schedule("2026-05-07T10:00", jitter_s=600.0)
    ((_, first, due_at),) = _earlier([row], NOW)
    assert (first, due_at) == (at("2026-05-04T10:00"), store.times_of(row).due_at(first))
    assert first < due_at


@pytest.mark.parametrize(
    ("planned_at", "paused", "hours"),
    [
        ("2026-05-04T10:00", False, [10, 11]),
        ("2026-05-04T20:00", False, [20, 21]),
        ("2026-05-04T20:00", True, [10, 11]),
        ("2026-05-04T09:00", False, [10, 11]),
        (None, False, [10, 11]),
    ],
    ids=("next", "ahead", "ahead and paused", "overdue", "none"),
)
def test_the_first_coming_time_is_the_planned_one(
    planned_at: str | None, paused: bool, hours: list[int]
) -> None:
    row = schedule(planned_at, paused=paused)
    assert [one.hour for one in store.coming(row, NOW, 2)] == hours
