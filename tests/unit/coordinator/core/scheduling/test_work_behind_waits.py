"""What is behind a pause of the deadline: nobody knows when it can run, so it is in nobody's way until
then, and no task is refused because of load on it. Where the deadline may go on, all counts."""

from typing import Any

import pytest

from hocket.coordinator.core.scheduling.backlog import ENOUGH_FINISHED, Backlog
from hocket.coordinator.core.scheduling.load_prediction import (
    UNLOADED,
    PlanPath,
    Prediction,
    Verdict,
    is_lost,
    judge,
    predict,
    unreachable,
)
from hocket.coordinator.core.scheduling.planned_work import Work, work_of
from hocket.coordinator.core.scheduling.type_queue import Capacity
from hocket.coordinator.core.time.duration_estimates import NOTHING, Estimate, outlook
from hocket.schemas.messages import Priority
from hocket.schemas.pipeline.plan import Plan, compile_pipeline
from support.run_player import python

pytestmark = pytest.mark.plain

NOW = 1_000_000.0
DUE = NOW + 10_000.0
HOUR = 3_600_000.0

Nodes = dict[str, Any]


def takes(mean_ms: float, **fields: Any) -> Nodes:
    return python(expect={"mean_ms": mean_ms}, **fields)


def model(mean_ms: float, **fields: Any) -> Nodes:
    return {"type": "llm", "model": "m", "prompt": "p", "expect": {"mean_ms": mean_ms}} | fields


def approval(**fields: Any) -> Nodes:
    return {"type": "approval", "prompt": "May it?"} | fields


def signal(**fields: Any) -> Nodes:
    return {"type": "signal", "signal": "go", "wait_ms": 1_000} | fields


def race(pick: str, **branches: Nodes) -> Nodes:
    score = {"score": "output"} if pick == "best" else {}
    return {"type": "race", "pick": pick, "branches": branches} | score


def graph(nodes: Nodes, **fields: Any) -> Nodes:
    return {"type": "graph", "nodes": nodes} | fields


def plan_of(nodes: Nodes, **spec: Any) -> Plan:
    return compile_pipeline({"pipeline": "p", "nodes": nodes} | spec)


def work_in(nodes: Nodes) -> Work:
    plan = plan_of(nodes)
    return work_of(plan, outlook(plan, {}))


def predicted(nodes: Nodes, *, spec: Nodes | None = None, **clear_ms: float) -> Prediction:
    plan = plan_of(nodes, **spec or {})
    return predict(PlanPath(plan, outlook(plan, {})), lambda name: clear_ms.get(name, 0.0))


PAUSES = {
    "approval": approval(),
    "signal": signal(pause_deadline=True),
    "graph": graph({"x": takes(300), "look": approval(needs=["x"])}),
    "map": graph({"look": approval()}, map={"over": "[1, 2]"}),
    "loop": graph({"look": approval()}, loop={"until": "output.look", "max_rounds": 3}),
    "race": race("first_valid", ask=approval(), tell=signal(pause_deadline=True)),
    "best": race("best", ask=approval(), do=takes(70)),
}
"""Nodes in which the deadline is surely paused."""
GOES_ON = {
    "unpaused": approval(pause_deadline=False, wait_ms=1_000),
    "signal": signal(),
    "sometimes": approval(when="input.x"),
    "graph": graph({"x": takes(300), "look": approval(when="input.input.x")}),
    "race": race("first_valid", ask=approval(), do=takes(300)),
    "call": takes(300, calls={"ask": approval()}),
}
"""Nodes in which it may go on."""


def of(nodes: Nodes) -> Any:
    return pytest.mark.parametrize("node", nodes.values(), ids=list(nodes))


TWO_WAITS = {
    "a": takes(1),
    "look": approval(needs=["a"]),
    "b": takes(10, needs=["look"]),
    "c": model(20, needs=["b"]),
    "go": signal(needs=["c"], pause_deadline=True),
    "d": takes(100, needs=["go"]),
    "e": takes(100, needs=["go", "b"]),
}


# ---- what is promised ----------------------------------------------------------------------------


def test_work_is_told_apart_by_the_pauses_before_it() -> None:
    work = work_in(TWO_WAITS)
    assert (work.by_type, work.keys) == ({"python": 1.0}, {"a"})
    assert set(work.behind) == {"b", "c", "go", "d", "e"}
    assert work.behind["b"] is work.behind["c"] is work.behind["go"]
    assert work.behind["b"].by_type == {"python": 10.0, "llm": 20.0}
    assert work.behind["d"] is work.behind["e"]
    assert work.behind["d"].by_type == {"python": 200.0}


@of(PAUSES)
def test_what_is_behind_a_pause_is_apart(node: Nodes) -> None:
    work = work_in({"a": takes(1), "wait": node, "then": takes(10, needs=["a", "wait"])})
    assert set(work.behind) == {"then"}
    assert work.behind["then"].by_type == {"python": 10.0}


@of(GOES_ON)
def test_where_the_deadline_may_go_on_nothing_is_apart(node: Nodes) -> None:
    work = work_in({"a": takes(1), "wait": node, "then": takes(10, needs=["a", "wait"])})
    assert (work.keys >= {"a", "then"}, dict(work.behind)) == (True, {})


def test_an_approval_that_a_run_in_a_hurry_leaves_out_puts_nothing_off() -> None:
    nodes = {"look": approval(optional=True), "w": takes(9_000, needs=["look"])}
    plan = plan_of(nodes, slo_ms=10_000, on_infeasible="degrade")
    assert work_of(plan, outlook(plan, {})).keys == {"w"}
    assert work_in(nodes).keys == set()
    hurried = predicted(nodes, spec={"slo_ms": 10_000, "on_infeasible": "degrade"}, python=5_000)
    assert hurried.loaded.mean_ms == pytest.approx(14_000)


def test_what_runs_beside_a_wait_is_before_it() -> None:
    work = work_in({"look": approval(), "a": takes(1), "b": takes(2, needs=["a"])})
    assert (work.by_type, dict(work.behind)) == ({"python": 3.0}, {})


# ---- what is counted -----------------------------------------------------------------------------


def counting(nodes: Nodes, *, runs: int = 1, deadline_at_ms: float = DUE) -> Backlog:
    backlog = Backlog()
    for _ in range(ENOUGH_FINISHED):
        backlog.finished("nobody", "python", 100.0, 100.0, tenant="t")
    for number in range(runs):
        backlog.promise(
            f"r{number}",
            partition=0,
            priority=Priority.STANDARD,
            tenant="t",
            deadline_at_ms=deadline_at_ms,
            work=work_in(nodes),
            now_ms=NOW,
        )
    return backlog


def dispatched(backlog: Backlog, key: str, deadline_at_ms: float = DUE) -> dict[str, float]:
    counted = backlog.dispatched(
        "r0",
        key,
        "python",
        5.0,
        path=key.partition("[")[0],
        deadline_at_ms=deadline_at_ms,
        now_ms=deadline_at_ms - 10_000,
    )
    return dict(counted)


def left_ms(backlog: Backlog, node_type: str = "python") -> float:
    return sum(backlog.left(node_type).due_ms.values())


def clear_ms(backlog: Backlog, deadline_at_ms: float) -> float:
    return backlog.clear_ms(
        "python",
        priority=Priority.STANDARD,
        tenant="t",
        deadline_at_ms=deadline_at_ms,
        capacity=Capacity(1.0, 0.0),
    )


def test_runs_that_wait_for_an_approval_are_in_nobodys_way() -> None:
    waiting = {"look": approval(), "w": takes(2_000, needs=["look"])}
    backlog = counting(waiting, runs=400)
    assert (clear_ms(backlog, DUE), left_ms(backlog)) == (0.0, 0.0)


def test_with_the_first_step_behind_a_wait_all_behind_it_counts_once() -> None:
    backlog = counting(TWO_WAITS)
    assert dispatched(backlog, "a") == {}
    assert dispatched(backlog, "b") == {"python": 10.0, "llm": 20.0}
    assert (left_ms(backlog), left_ms(backlog, "llm")) == (11.0, 20.0)
    assert dispatched(backlog, "c") == dispatched(backlog, "b") == {}
    assert dispatched(backlog, "e") == {"python": 200.0}
    assert (left_ms(backlog), left_ms(backlog, "llm")) == (211.0, 20.0)
    assert dispatched(backlog, "unseen[1]") == {"python": 5.0}
    backlog.forget("r0")
    assert (left_ms(backlog), left_ms(backlog, "llm")) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("fields", "key"),
    [({"map": {"over": "[1, 2]"}}, "f[0]"), ({"when": "input.x"}, "f")],
    ids=["map", "when"],
)
def test_a_first_step_that_the_plan_is_not_sure_of_counts_with_all_behind_the_pause(
    fields: Nodes, key: str
) -> None:
    nodes = {
        "look": approval(),
        "f": takes(5, needs=["look"], **fields),
        "c": takes(40_000, needs=["look", "f"]),
    }
    backlog = counting(nodes)
    assert left_ms(backlog) == 0
    assert dispatched(backlog, key) == {"python": 40_005.0}
    assert dispatched(backlog, "c") == {}
    backlog.finished("r0", "python", 5.0, 0.0, tenant="t")
    assert left_ms(backlog) == 40_000


def test_the_first_item_to_go_on_is_not_the_end_of_all_items_pauses() -> None:
    item = {"look": approval(), "x": takes(5, needs=["look"])}
    nodes = {"m": graph(item, map={"over": "[1, 2]"}), "c": takes(40_000, needs=["m"])}
    work = work_in(nodes)
    assert set(work.behind) == {"c"}


def test_what_is_left_counts_for_the_deadline_that_was_moved() -> None:
    nodes = {"look": approval(), "a": takes(1_000), "w": takes(2_000, needs=["look"])}
    backlog = counting(nodes)
    dispatched(backlog, "a")
    assert clear_ms(backlog, DUE) == pytest.approx(1_000)
    dispatched(backlog, "w", DUE + HOUR)
    assert clear_ms(backlog, DUE) == 0.0, "the moved one is later"
    assert clear_ms(backlog, DUE + HOUR) == pytest.approx(3_000)
    assert [second >= (DUE + HOUR) / 1_000 - 1 for second in backlog.left("python").due_ms] == [
        True
    ]
    backlog.finished("r0", "python", 1_000.0, 0.0, tenant="t")
    backlog.finished("r0", "python", 2_000.0, 0.0, tenant="t")
    assert (backlog.left("python").due_ms, backlog.runs_with("python")) == ({}, 0)


# ---- what a task is judged by --------------------------------------------------------------------


ASKED = {"a": takes(100), "look": approval(needs=["a"]), "w": model(9_000, needs=["look"])}


def test_no_task_is_refused_because_of_load_behind_a_pause() -> None:
    told = predicted(ASKED, python=400, llm=60_000)
    assert (told.path.mean_ms, told.loaded.mean_ms) == pytest.approx((9_100, 9_500))
    assert (told.limited_by, told.most_ms) == ("python", 9_500)
    assert predicted(ASKED, llm=60_000) is UNLOADED


def test_load_on_a_type_counts_beside_a_pause_and_not_behind_it() -> None:
    nodes = {"look": approval(), "w": model(9_000, needs=["look"]), "x": model(10)}
    assert predicted(nodes, llm=60_000).loaded.mean_ms == pytest.approx(60_010)


def test_what_is_behind_a_pause_takes_its_time_from_the_same_budget() -> None:
    told = predicted(ASKED, python=5_000)
    assert judge(told, 10_000, "reject") is Verdict.REJECT
    assert is_lost(told, 700)
    assert judge(told, 15_000, "reject") is Verdict.ADMIT


@of(PAUSES)
def test_a_pause_takes_nothing_itself(node: Nodes) -> None:
    before_ms = 300 if "x" in node.get("nodes", ()) else 0
    measured = node | {"needs": ["a"], "expect": {"mean_ms": HOUR}}
    nodes = {"a": takes(100), "wait": measured, "w": model(9_000, needs=["wait"])}
    told = predicted(nodes, python=1, llm=60_000)
    assert told.path.mean_ms == pytest.approx(9_100 + before_ms)
    assert told.loaded.tail_ms() <= told.most_ms < 60_000


@of(GOES_ON)
def test_where_the_deadline_may_go_on_all_steps_wait_for_workers(node: Nodes) -> None:
    nodes = {"a": takes(100), "wait": node, "w": model(9_000, needs=["a", "wait"])}
    assert predicted(nodes, llm=60_000).loaded.mean_ms == pytest.approx(69_000)


@pytest.mark.parametrize(
    "again",
    [{}, {"loop": {"until": "output.look", "max_rounds": 3}}, {"map": {"over": "[1, 2]"}}],
    ids=["graph", "loop", "map"],
)
def test_what_runs_before_the_pause_of_a_first_round_or_item_waits_for_workers(
    again: Nodes,
) -> None:
    inner = {
        "draft": model(9_000),
        "look": approval(needs=["draft"]),
        "last": takes(500, needs=["look"]),
    }
    told = predicted({"g": graph(inner, **again)}, llm=600_000, python=900_000)
    assert told.path.mean_ms == pytest.approx(9_500)
    assert told.loaded.mean_ms == pytest.approx(609_500)
    assert judge(told, 30_000, "reject") is Verdict.REJECT


def test_a_path_beside_a_pausing_wait_counts() -> None:
    nodes = {"look": approval(), "a": takes(100), "b": takes(9_000, needs=["a"])}
    assert predicted(nodes, python=1).path.mean_ms == pytest.approx(9_100)


def test_a_refusal_never_tells_of_less_than_no_time() -> None:
    error = unreachable(Prediction(NOTHING, lambda: Estimate(500.0, 0.0), "python"), -34.4)
    assert "it has 0 ms" in str(error)
