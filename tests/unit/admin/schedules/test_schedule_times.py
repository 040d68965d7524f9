"""The times of schedules, over changes of the clock: what is expected was worked out by hand from the
dates of the changes (Berlin: 29 March 2026, 02:00 to 03:00; 25 October 2026, 03:00 back to 02:00)."""

from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

import pytest

from hocket.admin.schedules import times as times_module
from hocket.admin.schedules.catch_up import due
from hocket.admin.schedules.times import HORIZON, Times
from hocket.schemas.errors import InvalidInput
from hocket.schemas.moments import LocalTimes

BERLIN = "Europe/Berlin"


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def told(cron: str, zone: str, moment: str, count: int) -> list[str]:
    times = Times(cron, zone).coming(at(moment), count)
    return [one.strftime("%d %H:%M") for one in times]


@pytest.mark.parametrize(
    ("cron", "moment", "expected"),
    [
        # a fixed time that the gap leaves out comes right after it, once
        ("30 2 * * *", "2026-03-27T12:00", ["28 01:30", "29 01:00", "30 00:30"]),
        ("0,15,30 2 * * *", "2026-03-28T12:00", ["29 01:00", "30 00:00", "30 00:15"]),
        ("30 2,3 * * *", "2026-03-28T12:00", ["29 01:00", "29 01:30", "30 00:30"]),
        # one that comes twice counts once, at first
        ("30 2 * * *", "2026-10-24T12:00", ["25 00:30", "26 01:30"]),
        ("0 3 * * *", "2026-10-24T12:00", ["25 02:00", "26 02:00"]),
        # after the first of the two hours has begun, the next is that of the next day
        ("10 2 * * *", "2026-10-25T01:05", ["26 01:10"]),
        # what goes by the hour or the minute goes by the time that passes
        ("0 * * * *", "2026-03-28T23:30", ["29 00:00", "29 01:00", "29 02:00"]),
        ("0 * * * *", "2026-10-24T23:30", ["25 00:00", "25 01:00", "25 02:00"]),
        ("*/30 2 * * *", "2026-10-24T12:00", ["25 00:00", "25 00:30", "25 01:00", "25 01:30"]),
        ("*/30 2 * * *", "2026-03-28T12:00", ["30 00:00", "30 00:30"]),
    ],
)
def test_times_over_a_change_of_the_clock(cron: str, moment: str, expected: list[str]) -> None:
    assert told(cron, BERLIN, moment, len(expected)) == expected


@pytest.mark.parametrize("cron", ["30 2 * * *", "*/20 * * * *", "0,30 1-3 * * *", "0 * * * 0"])
@pytest.mark.parametrize("zone", [BERLIN, "America/New_York", "UTC"])
@pytest.mark.parametrize("day", ["2026-03-08", "2026-03-29", "2026-10-25", "2026-11-01"])
def test_asking_again_from_any_moment_tells_the_same_times(cron: str, zone: str, day: str) -> None:
    times, begin = Times(cron, zone), at(f"{day}T00:00") - timedelta(hours=30)
    whole = times.coming(begin, 200)
    for minutes in range(0, 60 * 60, 53):
        moment = begin + timedelta(minutes=minutes)
        assert times.next_after(moment) == next(one for one in whole if one > moment)
        latest = [one for one in whole if one <= moment]
        if latest:
            assert times.latest(moment) == latest[-1]


ELAPSED = (
    "*/10 * * * *",
    "30 * * * *",
    "*/10 2 * * *",
    "*/20 */2 * * *",
    "0 */3 * * *",
    "*/15 1 * * 0,5",
)
"""Expressions that follow elapsed time."""


@pytest.mark.parametrize("cron", ELAPSED)
@pytest.mark.parametrize(
    ("zone", "begin"),
    [
        ("Australia/Lord_Howe", "2026-04-04T00:00"),  # back by half an hour
        ("Australia/Lord_Howe", "2026-10-02T20:00"),
        ("Africa/Cairo", "2026-04-22T12:00"),  # the day begins at 01:00
        ("Africa/Cairo", "2026-10-28T12:00"),
        ("Antarctica/Troll", "2026-10-24T12:00"),  # back by two hours
        (BERLIN, "2026-10-24T12:00"),
    ],
)
def test_elapsed_time_leaves_out_no_minute_that_a_clock_shows(
    cron: str, zone: str, begin: str
) -> None:
    minutes = [at(begin) + timedelta(minutes=one) for one in range(1, 40 * 60)]
    expected = [one for one in minutes if is_named(cron, one.astimezone(ZoneInfo(zone)))]
    times = Times(cron, zone)
    assert times.coming(at(begin), len(expected)) == tuple(expected)
    for former, one in zip([at(begin), *expected], expected, strict=False):
        assert times.next_after(former) == one
        assert times.latest(one) == one
        assert former == at(begin) or times.latest(one - timedelta(microseconds=1)) == former


def is_named(cron: str, local: datetime) -> bool:
    """Tell whether a local time is one of an expression whose days are weekdays."""
    minute, hour, _, _, weekday = cron.split()
    weekdays = range(7) if weekday == "*" else [int(one) for one in weekday.split(",")]
    return (
        is_one_of(minute, local.minute)
        and is_one_of(hour, local.hour)
        and local.isoweekday() % 7 in weekdays
    )


def is_one_of(part: str, number: int) -> bool:
    if part.startswith("*"):
        return number % int(part[2:] or 1) == 0
    return number == int(part)


@pytest.mark.parametrize(
    ("cron", "found"), [("0 0 29 2 *", 13), ("0 0 * 2 1#5", 2), ("*/30 2 * * *", 20)]
)
def test_times_are_searched_once_for_both_columns_and_up_to_a_horizon(
    monkeypatch: pytest.MonkeyPatch, cron: str, found: int
) -> None:
    searches = 0

    class Counted(times_module.CronSim):
        def advance(self) -> None:
            nonlocal searches
            searches += 1
            super().advance()

    monkeypatch.setattr(times_module, "CronSim", Counted)
    times, begin = Times(cron, "UTC", jitter_s=3_600, seed="s1"), at("2026-01-01T00:00")
    listed = times.coming_and_due(begin, 20)
    assert searches <= found + 4, (
        "one each, one beyond the horizon, and those of the last one's delay"
    )
    assert len(listed) == found
    assert listed[-1][0] <= begin + HORIZON
    assert listed == tuple((one, times.due_at(one)) for one in times.coming(begin, 20))


def test_jitter_is_the_same_each_time_and_keeps_the_order() -> None:
    times = Times("* * * * *", "UTC", jitter_s=3_600, seed="s1")
    planned = times.coming(at("2026-01-01T00:00"), 50)
    due_at = [times.due_at(one) for one in planned]
    assert due_at == [times.due_at(one) for one in planned]
    assert due_at == sorted(due_at)
    assert len({one.second for one in due_at}) > 10
    others = Times("* * * * *", "UTC", jitter_s=3_600, seed="s2")
    assert due_at != [others.due_at(one) for one in planned]


@pytest.mark.parametrize(
    ("cron", "zone", "field"),
    [
        ("61 * * * *", "UTC", "cron"),
        ("0 0 30 2 *", "UTC", "cron"),
        ("0 0 * 2 MON#5,X", "UTC", "cron"),
        ("0 0 * * *", "Mars/Olympus", "time_zone"),
        ("0 0 * * *", "localtime", "time_zone"),
        ("0 0 * * *", "right/Europe/Berlin", "time_zone"),
        ("0 0 * * *", "../../etc/passwd", "time_zone"),
    ],
)
def test_what_is_no_time_is_refused_by_its_field(cron: str, zone: str, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Times(cron, zone).check()
    assert refused.value.fields["field"] == field


def test_days_that_there_are_not_are_refused() -> None:
    with pytest.raises(InvalidInput, match="no day matches"):
        Times("0 0 */30 4 1#5", "UTC").check()


NEVER = [("* 2 25-31 3 */7", BERLIN), ("*/30 2 8-14 3 */7", "America/New_York")]
"""Of these days, clocks change at 2 o'clock, and they skip the hour."""


@pytest.mark.parametrize(("cron", "zone"), NEVER, ids=("Berlin", "New York"))
def test_times_that_the_clocks_of_a_zone_skip_are_refused(cron: str, zone: str) -> None:
    with pytest.raises(
        InvalidInput, match=f"the clocks of {zone} skip all of its times"
    ) as refused:
        Times(cron, zone).check("timing.")
    assert refused.value.fields["field"] == "timing.cron"
    Times(cron, "UTC").check()


@pytest.mark.parametrize(("cron", "zone"), NEVER, ids=("Berlin", "New York"))
def test_the_search_for_times_ends_at_its_horizon_though_clocks_skip_all(
    monkeypatch: pytest.MonkeyPatch, cron: str, zone: str
) -> None:
    """In both directions: a schedule may come to have such times by a change of its zone's rules."""
    begin, seen = at("2026-11-30T08:00"), []

    class Seen(times_module.CronSim):
        def __next__(self) -> datetime:
            found: datetime = super().__next__()
            seen.append(found)
            return found

    def skips_all(local_times: LocalTimes, moment: datetime, _zone: tzinfo) -> None:
        for _ in local_times(moment.replace(tzinfo=None)):
            pass

    monkeypatch.setattr(times_module, "CronSim", Seen)
    times = Times(cron, zone)
    assert times.next_after(begin) is None
    assert times.coming_and_due(begin, 5) == ()
    assert max(seen).year <= 2079
    monkeypatch.setattr(times_module, "shown_latest", skips_all)
    assert times.latest(begin) is None
    assert min(seen).year >= 1974


HOURLY = Times("0 * * * *", "UTC")
OUTAGE = (at("2026-01-01T10:00"), at("2026-01-01T13:20"))
"""Nothing was decided from before 10:00 to 13:20."""


def hours(times: tuple[datetime, ...]) -> list[int]:
    return [one.hour for one in times]


def test_each_policy_of_catching_up_after_three_hours() -> None:
    none, one, every = (due(HOURLY, policy, 86_400, *OUTAGE) for policy in ("none", "one", "all"))
    assert (none.times, hours((none.missed.first, none.missed.last))) == ((), [10, 13])  # type: ignore[union-attr]
    assert (hours(one.times), hours((one.missed.first, one.missed.last))) == ([13], [10, 12])  # type: ignore[union-attr]
    assert (hours(every.times), every.missed) == ([10, 11, 12, 13], None)
    assert {found.planned_at for found in (none, one, every)} == {at("2026-01-01T14:00")}
    assert one.late
    assert every.late


def test_what_is_older_than_the_window_is_left_out() -> None:
    every = due(HOURLY, "all", 5_000, *OUTAGE)
    assert hours((every.missed.first, every.missed.last)) == [10, 11]  # type: ignore[union-attr]
    assert (every.times, every.planned_at) == ((), at("2026-01-01T12:00"))
    one = due(HOURLY, "one", 600, *OUTAGE)
    assert hours((one.missed.first, one.missed.last)) == [10, 13]  # type: ignore[union-attr]
    assert one.times == ()


@pytest.mark.parametrize("policy", ["none", "one", "all"])
def test_a_time_that_is_a_moment_overdue_is_on_time(policy: str) -> None:
    now = at("2026-01-01T10:00") + timedelta(seconds=29)
    found = due(HOURLY, policy, 86_400, OUTAGE[0], now)  # type: ignore[arg-type]
    assert (hours(found.times), found.late, found.missed) == ([10], False, None)


def test_what_is_due_right_now_is_on_time_whatever_was_missed() -> None:
    """Back at 13:00:10: 10 to 12 were missed, 13 was not."""
    now = at("2026-01-01T13:00") + timedelta(seconds=10)
    none = due(HOURLY, "none", 86_400, OUTAGE[0], now)
    assert hours((none.missed.first, none.missed.last)) == [10, 12]  # type: ignore[union-attr]
    assert none.planned_at == at("2026-01-01T13:00")
    one = due(HOURLY, "one", 86_400, OUTAGE[0], now)
    assert (hours(one.times), one.late) == ([13], False)
    every = due(HOURLY, "all", 86_400, OUTAGE[0], now)
    assert (hours(every.times), every.planned_at) == ([10, 11, 12], at("2026-01-01T13:00"))


def test_many_times_are_caught_up_with_a_part_at_a_time() -> None:
    minutely = Times("* * * * *", "UTC")
    first = due(minutely, "all", 86_400, *OUTAGE)
    assert len(first.times) == 100
    assert first.planned_at == at("2026-01-01T11:40")


def test_times_are_those_of_the_zone_at_that_day() -> None:
    times = Times("0 9 * * 1-5", "America/New_York")
    shown = [times.local(one) for one in times.coming(at("2026-03-06T20:00"), 1)]
    assert shown == ["2026-03-09T09:00:00-04:00"]
    assert ZoneInfo("America/New_York")


def test_the_time_of_a_task_is_said_to_the_second_when_it_is_triggered_by_hand_too() -> None:
    moment = at("2026-03-06T20:00:01.234567")
    assert Times("0 9 * * 1-5", "America/New_York").local(moment) == "2026-03-06T15:00:01-05:00"
