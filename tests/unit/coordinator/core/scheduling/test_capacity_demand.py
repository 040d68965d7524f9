"""How many slots a node type is said to need."""

import math

import pytest

from hocket.coordinator.core.scheduling.capacity_demand import (
    SPREAD,
    CapacityDemand,
    WorkLeft,
)

HORIZON_MS = 60_000.0
NOW = 1_700_000_000_000.0
HOUR_MS = 3_600_000.0


def demand_of(
    busy_slots: float, left_ms: float, minutes: float = 10.0, every_ms: float = 250.0
) -> CapacityDemand:
    """Let work come that keeps so many slots busy."""
    demand = CapacityDemand(HORIZON_MS)
    demand.tick(0.0)
    for tick in range(1, int(minutes * 60_000 / every_ms) + 1):
        demand.arrived({"python": busy_slots * every_ms}, left_ms)
        demand.tick(tick * every_ms)
    return demand


def slots(
    demand: CapacityDemand, *due: tuple[float, float], out_ms: float = 0.0, bias: float = 1.0
) -> float:
    """`due`: seconds from now, and the slot-seconds due by then."""
    due_ms = {int(NOW / 1_000 + in_s): 1_000 * work_s for in_s, work_s in due}
    return demand.slots("python", WorkLeft(due_ms, bias), now_ms=NOW, out_ms=out_ms)


def test_what_may_wait_needs_as_many_slots_as_it_keeps_busy() -> None:
    assert slots(demand_of(30.0, HOUR_MS)) == pytest.approx(30.0, rel=0.01)


def test_what_cannot_wait_for_a_further_worker_needs_room_for_how_unevenly_it_comes() -> None:
    assert slots(demand_of(25.0, HORIZON_MS)) == pytest.approx(25 + SPREAD * 5, rel=0.01)


def test_a_rate_is_known_after_a_moment_and_not_at_once() -> None:
    assert slots(demand_of(30.0, HOUR_MS, minutes=0.5)) == pytest.approx(30.0, rel=0.05)
    assert slots(demand_of(30.0, HOUR_MS, minutes=0.01)) < 3.0


def test_a_type_of_which_nothing_comes_any_more_needs_nothing() -> None:
    demand = demand_of(30.0, HOUR_MS)
    for minute in range(1, 60):
        demand.tick((10 + minute) * 60_000.0)
    assert slots(demand) == 0.0


def test_what_waits_needs_the_slots_that_end_it_a_horizon_before_its_deadlines() -> None:
    nothing = CapacityDemand(HORIZON_MS)
    assert slots(nothing, (3_660, 7_200)) == pytest.approx(2.0, rel=0.01)
    assert slots(nothing, (3_660, 7_200), (660, 6_000)) == pytest.approx(10.0, rel=0.01)
    assert slots(nothing, (61, 120)) == pytest.approx(2.0), "no time is shorter than the horizon"
    assert slots(nothing, (-30, 120)) == pytest.approx(2.0), "what is late is due at once"


def test_what_waits_needs_the_slots_of_what_can_wait_before_it_needs_more() -> None:
    patient = demand_of(30.0, HOUR_MS)
    assert slots(patient, (660, 6_000)) == pytest.approx(30.0, rel=0.01)
    assert slots(patient, (660, 24_000)) == pytest.approx(40.0, rel=0.01)


def test_what_waits_needs_more_than_what_cannot_wait() -> None:
    pressing = demand_of(25.0, HORIZON_MS)
    assert slots(pressing, (660, 6_000)) == pytest.approx(25.0 + 10.0, rel=0.01)
    assert slots(pressing, (660, 24_000)) == pytest.approx(25.0 + 40.0, rel=0.01)


def test_what_workers_have_waits_no_more() -> None:
    assert slots(CapacityDemand(HORIZON_MS), (60, 120), out_ms=60_000) == pytest.approx(1.0)
    assert slots(CapacityDemand(HORIZON_MS), (60, 120), out_ms=500_000) == 0.0


def test_steps_that_take_longer_than_expected_need_more() -> None:
    assert slots(demand_of(10.0, HOUR_MS), bias=1.5) == pytest.approx(15, rel=0.01)
    assert slots(CapacityDemand(HORIZON_MS), (660, 6_000), bias=1.5) == pytest.approx(15, rel=0.01)


def test_an_unknown_type_needs_nothing() -> None:
    found = demand_of(30.0, HOUR_MS).slots("other", WorkLeft({}), now_ms=NOW, out_ms=0.0)
    assert found == 0.0
    assert not math.isnan(found)
