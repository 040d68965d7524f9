"""Which lane is asked for steps, and which fetched step starts first."""

import pytest

from hocket.schemas.messages import Priority
from hocket.schemas.structs.steps import RequestedStep
from hocket.schemas.subjects import LANES
from hocket.workers.runtime.transport.lanes import (
    Demand,
    ReadyQueue,
    allot,
    held,
    latest_start_ms,
    standing,
)


def demands(**lanes: Demand) -> dict[str, Demand]:
    return {lane: lanes.get(lane, Demand()) for lane in LANES}


def ask(slots: int, busy: int, lanes: dict[str, Demand]) -> dict[str, int]:
    """Allot as a worker does: what is given is asked."""
    given = allot(slots, busy, lanes)
    for name, count in given.items():
        lanes[name].asked += count
        lanes[name].batch = count
    return given


def fill(lanes: dict[str, Demand], name: str, *, left: int) -> None:
    """One step of a lane comes, `left` remain there."""
    lanes[name].asked -= 1
    lanes[name].pending = left
    lanes[name].active = True


def test_an_idle_worker_keeps_a_small_request_in_every_lane() -> None:
    assert allot(64, 0, demands()) == {"urgent": 2, "normal": 2, "batch": 2}


def test_nothing_more_is_asked_while_half_of_the_standing_requests_are_there() -> None:
    lanes = demands(**{lane: Demand(asked=standing(64)) for lane in LANES})
    assert allot(64, 0, lanes) == {}


@pytest.mark.parametrize("slots", [3, 4, 8, 64, 500])
@pytest.mark.parametrize("busy", [0, 1, 2])
def test_what_is_asked_never_exceeds_the_free_slots(slots: int, busy: int) -> None:
    lanes = demands(**{lane: Demand(pending=10_000, active=True) for lane in LANES})
    ask(slots, busy, lanes)
    assert sum(demand.asked for demand in lanes.values()) <= slots - busy


def test_a_full_worker_asks_for_nothing() -> None:
    lanes = demands(urgent=Demand(pending=50, active=True))
    assert allot(8, 8, lanes) == {}


@pytest.mark.parametrize("slots", [1, 2, 4, 64])
def test_a_backlog_gets_every_slot_although_quiet_lanes_are_listened_to(slots: int) -> None:
    lanes = demands()
    ask(slots, 0, lanes)
    fill(lanes, "normal", left=500)
    ask(slots, 1, lanes)
    assert 1 + lanes["normal"].asked == slots
    assert (lanes["urgent"].asked, lanes["batch"].asked) == (standing(slots), standing(slots))
    assert ask(slots, slots, lanes) == {}


def test_slots_are_shared_by_weight_while_every_lane_has_a_backlog() -> None:
    lanes = demands(**{lane: Demand(pending=10_000, active=True) for lane in LANES})
    served = dict.fromkeys(LANES, 0)
    for _ in range(1_300):
        ((name, count),) = allot(64, 63, lanes).items()
        served[name] += count
    assert served == {"urgent": 800, "normal": 400, "batch": 100}


def test_batch_is_served_while_urgent_never_runs_dry() -> None:
    lanes = demands(
        urgent=Demand(pending=10_000, active=True), batch=Demand(pending=10, active=True)
    )
    lanes["normal"].asked = standing(64)
    turns = [next(iter(allot(64, 63, lanes))) for _ in range(9)]
    assert "batch" in turns


def test_a_worker_with_one_slot_still_listens_to_every_lane() -> None:
    assert allot(1, 0, demands()) == {"urgent": 1, "normal": 1, "batch": 1}


def test_a_worker_with_one_busy_slot_asks_for_nothing() -> None:
    assert allot(1, 1, demands()) == {}


def test_requests_that_find_no_step_hold_no_slot_and_those_for_waiting_steps_do() -> None:
    assert held(64, Demand(asked=2)) == 0
    assert held(64, Demand(asked=12, pending=500)) == 12
    assert held(64, Demand(asked=12, pending=3)) == 10


def test_steps_on_their_way_are_not_asked_for_again() -> None:
    lanes = demands(
        urgent=Demand(asked=2), batch=Demand(asked=2), normal=Demand(asked=10, pending=90, batch=12)
    )
    assert allot(64, 30, lanes) == {}


def step(slack_ms: float) -> RequestedStep:
    return RequestedStep(
        run_id="r1",
        tenant="t",
        pipeline="p",
        version=1,
        step="s",
        node="s",
        type="python",
        attempt=1,
        input={},
        config={},
        deadline_at_ms=0,
        slack_ms=slack_ms,
        timeout_ms=1,
        priority=Priority.STANDARD,
        partition=0,
        epoch=0,
    )


def test_the_step_with_the_least_slack_starts_first() -> None:
    ready: ReadyQueue[str] = ReadyQueue()
    for name, sent_at_ms, slack_ms in (("late", 0, 900), ("tight", 100, 50), ("middle", 50, 400)):
        ready.push(latest_start_ms(step(slack_ms), sent_at_ms), name)
    assert [ready.pop() for _ in range(3)] == ["tight", "middle", "late"]


def test_slack_shrinks_while_a_step_waits_in_its_lane() -> None:
    ready: ReadyQueue[str] = ReadyQueue()
    ready.push(latest_start_ms(step(100), sent_at_ms=1_000), "new")
    ready.push(latest_start_ms(step(500), sent_at_ms=0), "waiting")
    assert ready.pop() == "waiting"


def test_steps_with_the_same_slack_start_in_the_order_they_came() -> None:
    ready: ReadyQueue[int] = ReadyQueue()
    for number in range(20):
        ready.push(7.0, number)
    assert [ready.pop() for _ in range(20)] == list(range(20))
