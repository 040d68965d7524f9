"""How many items of a map run at once in a run with a budget, by what an item charges."""

from decimal import Decimal
from typing import Any

import pytest

from hocket.coordinator.core.run.constructs.containers.item_prices import MAX_UNPRICED
from hocket.schemas.errors import ErrorClass, ErrorInfo
from hocket.schemas.messages import Spend
from support.run_player import Play, python

OVER = {"over": "input.xs"}
XS = {"xs": list(range(60))}
BROKEN = ErrorInfo(code="broken", message="it broke", error_class=ErrorClass.PERMANENT)


def played(budget: Any = "1", node: dict[str, Any] | None = None, **over: Any) -> Play:
    spec = {} if budget is None else {"budget_usd": budget}
    node = python() if node is None else node
    return Play({"m": node | {"map": OVER | over}}, input=XS, spec=spec)


def ends(play: Play, usd: str = "0.05", *, error: ErrorInfo | None = None, key: str = "") -> None:
    """End the first item that waits."""
    charged = Spend(cost_usd=Decimal(usd), charged_usd=Decimal(usd))
    key = key or play.dispatched[0].step
    play.finish(key, None if error else 1, error, spend=charged)


def test_no_more_than_a_few_items_run_before_one_has_told_what_it_charges() -> None:
    play = played("0.05")
    assert len(play.dispatched) == MAX_UNPRICED
    while play.dispatched:
        ends(play)
    assert play.run.error is not None
    assert play.run.error.code == "budget_exhausted"
    assert play.run.spent_usd <= MAX_UNPRICED * Decimal("0.05")


def test_then_as_many_run_as_what_is_left_pays_for() -> None:
    play = played("1")
    most = 0
    while play.dispatched:
        ends(play)
        in_flight = len(play.dispatched)
        most = max(most, in_flight)
        if not play.run.has_ended:
            assert play.run.spent_usd + in_flight * Decimal("0.05") <= 1
    assert most == 19
    assert (play.run.status, play.run.spent_usd) == ("failed", 1)
    assert len(play.seen) == 20


def test_one_item_always_runs_however_much_the_others_charged() -> None:
    play = played("1")
    ends(play, "0.9")
    while len(play.dispatched) > 1:
        ends(play, "0")
    assert len(play.dispatched) == 1
    ends(play, "0")
    assert len(play.dispatched) >= 1
    assert play.run.status == "running"


def test_skipped_items_fail_once_the_budget_is_spent() -> None:
    play = played("0.05", on_item_error="skip")
    while play.dispatched:
        ends(play)
    assert play.run.status == "degraded"
    assert len(play.run.steps) == 61
    assert len(play.seen) == MAX_UNPRICED


@pytest.mark.parametrize("budget", [0, "1"])
def test_items_that_charge_nothing_all_run(budget: Any) -> None:
    play = played(budget)
    assert len(play.dispatched) == MAX_UNPRICED
    ends(play, "0")
    assert len(play.dispatched) == 59
    while play.dispatched:
        ends(play, "0")
    assert play.run.status == "succeeded"


def test_an_item_that_failed_before_it_charged_tells_nothing() -> None:
    play = played(on_item_error="skip")
    ends(play, "0", error=BROKEN)
    assert len(play.dispatched) == MAX_UNPRICED
    ends(play, "0.3", error=BROKEN)
    assert len(play.dispatched) == 3


def test_the_concurrency_stays_the_bound() -> None:
    play = played("1", concurrency=2)
    assert len(play.dispatched) == 2
    ends(play, "0")
    assert len(play.dispatched) == 2
    without = played(None, concurrency=7)
    assert len(without.dispatched) == 7


@pytest.mark.parametrize(
    "node",
    [
        {"type": "llm", "model": "m", "prompt": "?"},
        {"type": "graph", "nodes": {"a": {"type": "llm", "model": "m", "prompt": "?"}}},
        {"type": "pipeline", "pipeline": "other"},
    ],
    ids=lambda node: node["type"],
)
def test_items_that_only_call_models_and_sub_runs_are_not_held(node: dict[str, Any]) -> None:
    play = played("1", node)
    assert len(play.dispatched) + len(play.subruns()) == 60


def test_what_steps_inside_an_item_charge_is_its_price() -> None:
    play = played("0.5", {"type": "graph", "nodes": {"a": python(), "b": python(needs=["a"])}})
    assert len(play.dispatched) == MAX_UNPRICED
    ends(play, "0.1", key="m[0]/a")
    assert len(play.dispatched) == MAX_UNPRICED
    ends(play, "0.1", key="m[0]/b")
    assert play.waiting() == ["m[1]/a", "m[2]/a", "m[3]/a"]


def test_the_budget_of_a_planner_holds_its_maps() -> None:
    emit = {"types": ["python"], "handlers": ["m:f"], "budget_usd": "0.1", "max_steps": 100}
    given = {"question": "?", **XS}
    planner = {"type": "planning", "model": "m", "with": given, "emit": emit | {"max_items": 60}}
    play = Play({"p": planner})
    play.finish("p", {"nodes": {"m": python(map=OVER, **{"with": {"x": "?"}})}, "output": 1})
    assert len(play.dispatched) == MAX_UNPRICED


def test_a_map_goes_on_in_the_same_way_after_a_takeover() -> None:
    one, other = played("1"), played("1")
    for play in (one, other):
        while play.dispatched:
            ends(play)
            if play is other:
                play.run = play.read_back()
    assert one.seen == other.seen
    assert one.run.spent_usd == other.run.spent_usd == 1


def test_items_that_wait_for_a_person_are_not_held_back() -> None:
    inside = {"a": python(), "ok": {"type": "approval", "needs": ["a"]}}
    play = played("1", {"type": "graph", "nodes": inside})
    assert len(play.dispatched) == len(XS["xs"])
