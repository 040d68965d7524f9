"""What leases want of a replica; when a run is expected; what a time of holding is worth."""

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from math import inf

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hocket.gateway.core.warming.forecast import Forecast
from hocket.gateway.core.warming.schedule import Schedule
from hocket.gateway.core.warming.warm_leases import ColdStart, Lease, Level, Startup, wanted
from hocket.gateway.core.warming.warm_time import WarmTime, price

STARTUP = Startup(85_000.0, 65_000.0)
COLD, PROVISIONED, READY = Level
HOUR_MS = 3_600_000.0


def lease(level: Level, from_ms: float, until_ms: float, reason: str = "x") -> Lease:
    return Lease(reason, level, from_ms, until_ms)


def test_a_cold_model_is_started_as_much_earlier_as_it_takes() -> None:
    due = [lease(READY, 200_000.0, 300_000.0)]
    early = wanted(due, COLD, STARTUP, 49_999.0)
    assert (early.level, early.changes_at_ms) == (COLD, 50_000.0)
    assert wanted(due, COLD, STARTUP, 50_000.0).level is READY


def test_with_a_machine_only_the_load_is_begun_early() -> None:
    due = [lease(PROVISIONED, -inf, inf, "tier"), lease(READY, 200_000.0, 300_000.0)]
    want = wanted(due, PROVISIONED, STARTUP, 134_999.0)
    assert (want.level, want.reason, want.changes_at_ms) == (PROVISIONED, "tier", 135_000.0)
    assert wanted(due, PROVISIONED, STARTUP, 135_000.0).level is READY


def test_nothing_goes_down_while_any_lease_holds() -> None:
    held = [lease(READY, 0.0, 10.0), lease(READY, 5.0, 20.0)]
    assert wanted(held, READY, STARTUP, 19.9).level is READY
    assert wanted(held, READY, STARTUP, 20.0) == wanted([], READY, STARTUP, 20.0)


@given(
    st.lists(st.tuples(st.sampled_from(Level), st.floats(0, 100), st.floats(0, 100)), max_size=6),
    st.sampled_from(Level),
    st.floats(0, 100),
)
def test_what_is_wanted_stays_so_until_it_is_said_to_change(
    given_leases: list[tuple[Level, float, float]], level: Level, now_ms: float
) -> None:
    startup = Startup(10.0, 5.0)
    leases = [lease(one, begin, begin + for_ms) for one, begin, for_ms in given_leases]
    want = wanted(leases, level, startup, now_ms)
    assert want.changes_at_ms > now_ms
    between = now_ms + (min(want.changes_at_ms, now_ms + 50.0) - now_ms) * 0.5
    assume(between < want.changes_at_ms)  # not where there is no float between them
    assert wanted(leases, level, startup, between).level is want.level


def test_a_start_that_takes_longer_than_expected_is_never_due_in_the_past() -> None:
    assert ColdStart(65_000.0, ready_at_ms=1_000.0).expected_ms(5_000.0) > 5_000.0
    assert ColdStart(65_000.0).expected_ms(5_000.0) == 70_000.0


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000


def test_a_schedule_gives_the_window_that_is_open_and_the_next() -> None:
    mornings = Schedule("0 8 * * 1-5", 2 * HOUR_MS)  # 2026-11-20 was a Friday
    found = mornings.leases(at("2026-11-20T09:00"))
    assert [(one.from_ms, one.until_ms) for one in found] == [
        (at("2026-11-20T08:00"), at("2026-11-20T10:00")),
        (at("2026-11-23T08:00"), at("2026-11-23T10:00")),
    ]


def test_a_clock_that_goes_back_by_half_an_hour_leaves_out_no_window() -> None:
    """On Lord Howe, 02:00 of 5 April 2026 is 01:30 again: 15:00 UTC of the day before."""
    half_hours = Schedule("*/30 2 * * *", HOUR_MS / 4, zone="Australia/Lord_Howe")
    (first,) = half_hours.leases(at("2026-04-04T15:10"))
    assert first.from_ms == at("2026-04-04T15:30")


def test_of_a_time_that_the_clock_shows_twice_the_next_window_is_the_next_days() -> None:
    (following,) = Schedule("10 2 * * *", HOUR_MS / 4, zone="Europe/Berlin").leases(
        at("2026-10-25T01:05")
    )
    assert following.from_ms == at("2026-10-26T01:10")


def test_a_schedule_is_in_its_own_time_zone() -> None:
    (berlin,) = Schedule("0 8 * * *", HOUR_MS, zone="Europe/Berlin").leases(at("2026-07-01T00:00"))
    assert berlin.from_ms == at("2026-07-01T06:00")


@pytest.mark.parametrize("cron", ["", "0 8 * *", "61 * * * *", "0 8 31 2 *", "soon"])
def test_what_is_no_cron_expression_is_told(cron: str) -> None:
    fault = Schedule(cron, HOUR_MS).fault()
    assert fault is not None
    assert fault[1].startswith("Write five fields")


def test_times_that_the_clocks_of_a_zone_skip_are_told_and_not_searched_for_ever() -> None:
    """It was accepted, and each look at it took seconds and ended in an error."""
    skipped = Schedule("* 2 25-31 3 */7", HOUR_MS, zone="Europe/Berlin")
    assert skipped.leases(at("2026-07-01T00:00")) == ()
    assert skipped.fault() == (
        "the clocks of Europe/Berlin skip all of its times",
        "Choose an hour that they do not skip, or another time zone.",
    )
    assert replace(skipped, zone="UTC").fault() is None


def test_days_that_there_are_not_are_told() -> None:
    fault = Schedule("0 0 */30 4 1#5", HOUR_MS).fault()
    assert fault == ("no day matches it", "Choose a day that exists.")


def test_runs_at_even_gaps_are_expected_again_after_the_same_gap() -> None:
    forecast = Forecast(quiet_ms=60_000.0)
    for hour in range(5):
        forecast.record_arrival(hour * HOUR_MS)
        forecast.record_arrival(hour * HOUR_MS + 30_000.0)  # the same episode
    window = forecast.window()
    assert window is not None
    assert window.from_ms < 5 * HOUR_MS < window.until_ms
    assert window.until_ms - window.from_ms < 0.1 * HOUR_MS


def test_of_runs_at_odd_gaps_nothing_is_said() -> None:
    forecast = Forecast(quiet_ms=1.0)
    for at_ms in (0.0, 100.0, 900.0, 1_000.0, 4_000.0, 4_200.0):
        forecast.record_arrival(at_ms)
    assert forecast.window() is None


def test_two_runs_are_no_pattern() -> None:
    forecast = Forecast(quiet_ms=1.0)
    for at_ms in (0.0, 100.0, 200.0):
        forecast.record_arrival(at_ms)
    assert forecast.window() is None


def test_idle_and_provisioned_time_is_wasted_and_starting_and_busy_time_is_not() -> None:
    time = WarmTime()
    time = time.passed(COLD, starting=True, ms=150.0, busy_ms=0.0)
    time = time.passed(READY, starting=False, ms=100.0, busy_ms=30.0)
    time = time.passed(PROVISIONED, starting=False, ms=20.0, busy_ms=0.0)
    time = time.passed(COLD, starting=False, ms=1_000.0, busy_ms=0.0)
    assert time == WarmTime(starting_ms=150.0, busy_ms=30.0, idle_ms=70.0, provisioned_ms=20.0)
    assert (time.held_ms, time.wasted_ms) == (270.0, 90.0)


def test_calls_at_several_gateways_make_no_more_than_all_of_the_time_busy() -> None:
    time = WarmTime().passed(READY, starting=False, ms=100.0, busy_ms=180.0)
    assert time == WarmTime(busy_ms=100.0)


def test_a_time_costs_its_share_of_an_hour() -> None:
    assert price(900_000.0, Decimal("4.00")) == Decimal("1.000000000")
