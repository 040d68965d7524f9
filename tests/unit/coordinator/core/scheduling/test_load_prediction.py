"""Work ahead of a task, its predicted completion, and what becomes of it."""

from typing import Any

import pytest

from hocket.coordinator.core.scheduling.backlog import (
    ENOUGH_FINISHED,
    MAX_BIASES,
    Backlog,
)
from hocket.coordinator.core.scheduling.load_prediction import (
    LEAST_RETRY_MS,
    UNLOADED,
    PlanPath,
    Prediction,
    Verdict,
    is_lost,
    judge,
    predict,
    retry_after_ms,
    unreachable,
)
from hocket.coordinator.core.scheduling.planned_work import Work, work_of
from hocket.coordinator.core.scheduling.type_queue import Capacity
from hocket.coordinator.core.time.duration_estimates import TAIL_SD, Estimate, outlook
from hocket.schemas.messages import Priority
from hocket.schemas.pipeline.plan import Plan, compile_pipeline
from support.run_player import python

NOW = 1_000_000.0
HOUR = 3_600_000.0
DUE = {"deadline_at_ms": NOW + 10_000, "now_ms": NOW}


def takes(mean_ms: float, sd_ms: float = 0, **fields: Any) -> dict[str, Any]:
    return python(expect={"mean_ms": mean_ms, "sd_ms": sd_ms}, **fields)


def model(mean_ms: float, **fields: Any) -> dict[str, Any]:
    return {"type": "llm", "model": "m", "prompt": "p", "expect": {"mean_ms": mean_ms}} | fields


def plan_of(nodes: dict[str, Any], **spec: Any) -> Plan:
    return compile_pipeline({"pipeline": "p", "nodes": nodes} | spec)


def predicted(plan: Plan, **clear_ms: float) -> Prediction:
    return predict(PlanPath(plan, outlook(plan, {})), lambda name: clear_ms.get(name, 0.0))


# ---- work ahead ----------------------------------------------------------------------------------


def backlog_of(*runs: tuple[str, dict[str, Any]], known: bool = True) -> Backlog:
    """A backlog where steps of `python` take what is expected, with runs of one second of work."""
    backlog = Backlog({"heavy": 4.0})
    if known:
        for _ in range(ENOUGH_FINISHED):
            backlog.finished("nobody", "python", 100.0, 100.0, tenant="t")
    for run_id, fields in runs:
        promised(backlog, run_id, **fields)
    return backlog


def promised(backlog: Backlog, run_id: str, **fields: Any) -> None:
    given: dict[str, Any] = {
        "partition": 0,
        "priority": Priority.STANDARD,
        "tenant": "t",
        "deadline_at_ms": NOW + 10_000,
        "work": Work({"python": 1_000.0}, frozenset({"a"})),
        "now_ms": NOW,
    }
    backlog.promise(run_id, **given | fields)


def clear_ms(backlog: Backlog, *, slots: float = 1.0, out_ms: float = 0.0, **fields: Any) -> float:
    given: dict[str, Any] = {
        "priority": Priority.STANDARD,
        "tenant": "t",
        "deadline_at_ms": NOW + 10_000,
        "capacity": Capacity(slots, out_ms),
    }
    return backlog.clear_ms("python", **given | fields)


def left_ms(backlog: Backlog) -> float:
    return sum(backlog.left("python").due_ms.values())


def test_the_work_ahead_is_shared_among_the_slots() -> None:
    runs = [(f"r{i}", {}) for i in range(6)]
    assert clear_ms(backlog_of(*runs), slots=2) == pytest.approx(3_000)
    assert clear_ms(backlog_of(*runs), slots=6) == pytest.approx(1_000)


def test_where_there_are_more_slots_than_runs_nobody_waits() -> None:
    assert clear_ms(backlog_of(("r1", {}), ("r2", {})), slots=3) == 0.0


def test_half_of_what_is_out_has_been_done() -> None:
    backlog = backlog_of(*[(f"r{i}", {}) for i in range(4)])
    assert clear_ms(backlog, slots=2, out_ms=2_000) == pytest.approx((4_000 - 1_000) / 2)


def test_only_higher_classes_and_earlier_deadlines_are_ahead() -> None:
    backlog = backlog_of(
        ("interactive", {"priority": Priority.INTERACTIVE, "deadline_at_ms": NOW + HOUR}),
        ("earlier", {"deadline_at_ms": NOW + 5_000}),
        ("later", {"deadline_at_ms": NOW + 60_000}),
        ("batch", {"priority": Priority.BATCH, "deadline_at_ms": NOW}),
    )
    assert clear_ms(backlog) == pytest.approx(2_000)
    assert clear_ms(backlog, priority=Priority.INTERACTIVE) == 0.0
    assert clear_ms(backlog, priority=Priority.BATCH) == pytest.approx(4_000)


def test_no_more_is_ahead_than_fair_shares_put_there() -> None:
    flood = [(f"f{i}", {"tenant": "flood"}) for i in range(100)]
    backlog = backlog_of(*flood, ("mine", {}))
    assert clear_ms(backlog, tenant="flood") == pytest.approx(101_000)
    assert clear_ms(backlog, tenant="t") == pytest.approx(2_000)
    assert clear_ms(backlog, tenant="newcomer") == 0.0
    promised(backlog, "h1", tenant="heavy")
    assert clear_ms(backlog, tenant="heavy") == pytest.approx(1_000 * 6 / 4)


@pytest.mark.parametrize("priority", [Priority.STANDARD, Priority.BATCH])
def test_what_another_tenant_claims_of_a_higher_class_is_believed_for_its_turns_only(
    priority: Priority,
) -> None:
    claim = Work({"python": 24 * HOUR}, frozenset({"a"}))
    claims = {"priority": Priority.INTERACTIVE, "tenant": "loud", "work": claim}
    backlog = backlog_of(*[(f"r{i}", claims) for i in range(100)])
    # steps took 100 ms: the first of the class goes after so many of them
    turns = {Priority.STANDARD: 4, Priority.BATCH: 16}[priority]
    assert clear_ms(backlog, priority=priority) == pytest.approx(turns * 100)
    promised(backlog, "mine", priority=priority)
    promised(backlog, "another's", priority=priority, tenant="other")
    fair = 2 * 1_000
    assert clear_ms(backlog, priority=priority) == pytest.approx(fair + turns * 100 * (1 + 2))
    assert clear_ms(backlog, priority=priority, tenant="loud") > HOUR, "its own claims count"


def test_what_others_claim_of_a_higher_class_counts_as_theirs_really_took() -> None:
    claim = Work({"python": 10_000.0}, frozenset({"a"}))
    claims = {"priority": Priority.INTERACTIVE, "tenant": "loud", "work": claim}
    backlog = backlog_of(("r", claims))
    for _ in range(ENOUGH_FINISHED):
        backlog.finished("nobody", "python", 10_000.0, 100.0, tenant="loud")
    assert clear_ms(backlog) == pytest.approx(100.0)


def test_what_is_done_is_ahead_no_more() -> None:
    backlog = backlog_of(("r1", {}), ("r2", {}))
    backlog.finished("r1", "python", 400.0, 0.0, tenant="t")
    assert clear_ms(backlog) == pytest.approx(1_600)
    backlog.forget("r1")
    assert clear_ms(backlog) == pytest.approx(1_000)
    backlog.forget_partition(0)
    assert (clear_ms(backlog), left_ms(backlog), backlog.runs_with("python")) == (0, 0, 0)


def test_a_step_that_the_plan_did_not_tell_of_counts_from_its_dispatch() -> None:
    backlog = backlog_of(("r1", {}))
    backlog.dispatched("r1", "a", "python", 1_000.0, path="a", **DUE)  # the plan told of it
    assert left_ms(backlog) == pytest.approx(1_000)
    backlog.dispatched("r1", "m[3]", "python", 50.0, path="m", **DUE)
    assert left_ms(backlog) == pytest.approx(1_050)


def test_a_type_that_runs_longer_than_expected_is_predicted_so() -> None:
    backlog = backlog_of(("r1", {}), ("r2", {}), known=False)
    for _ in range(ENOUGH_FINISHED):
        backlog.finished("nobody", "python", 100.0, 300.0, tenant="t")
    assert clear_ms(backlog) == pytest.approx(6_000)


def test_steps_that_run_longer_than_expected_make_only_their_own_tenant_wait_longer() -> None:
    backlog = backlog_of(("r1", {}), ("r2", {}))
    for _ in range(10 * ENOUGH_FINISHED):
        backlog.finished("nobody", "python", 50.0, 86_400_000.0, tenant="slow")
    assert clear_ms(backlog) == pytest.approx(2_000)
    assert clear_ms(backlog, tenant="newcomer") == 0.0
    for i in range(2 * MAX_BIASES):
        backlog.finished("nobody", "python", 50.0, 86_400_000.0, tenant=f"t{i}")
    assert clear_ms(backlog) == pytest.approx(2_000)


def test_before_anything_was_measured_or_announced_nobody_is_told_to_wait() -> None:
    runs = [(f"r{i}", {}) for i in range(50)]
    assert clear_ms(backlog_of(*runs, known=False)) == 0.0
    assert clear_ms(backlog_of(*runs), slots=0) == 0.0


def test_a_plans_work_is_what_must_run() -> None:
    plan = plan_of(
        {
            "a": takes(100),
            "sometimes": takes(1_000, needs=["a"], when="input.x"),
            "then": takes(1_000, needs=["sometimes"]),
            "m": takes(1_000, map={"over": "[1, 2]"}),
            "g": {"type": "graph", "nodes": {"x": takes(10), "y": model(20)}},
            "r": {"type": "race", "branches": {"p": takes(1), "q": takes(2)}},
        }
    )
    work = work_of(plan, outlook(plan, {}))
    assert work.by_type == {"python": 113.0, "llm": 20.0}
    assert work.keys == {"a", "g/x", "g/y", "r~p", "r~q"}


# ---- prediction ----------------------------------------------------------------------------------


def test_without_load_nothing_is_predicted() -> None:
    assert predicted(plan_of({"a": takes(100)})) is UNLOADED


def test_a_node_starts_when_its_needs_have_ended_and_the_work_ahead_is_done() -> None:
    plan = plan_of({"a": takes(100), "b": model(1_000, needs=["a"]), "c": takes(10, needs=["b"])})
    assert predicted(plan, llm=400).loaded.mean_ms == pytest.approx(400 + 1_000 + 10)
    assert predicted(plan, llm=50).loaded.mean_ms == pytest.approx(1_110)
    assert predicted(plan, llm=50).wait_ms == 0.0
    assert predicted(plan, python=5_000, llm=400).limited_by == "python"


def test_variances_of_steps_in_a_row_add_and_the_later_branch_counts() -> None:
    plan = plan_of(
        {
            "a": takes(100, 30),
            "short": takes(10, needs=["a"]),
            "long": takes(200, 40, needs=["a"]),
            "end": takes(5, needs=["short", "long"]),
        }
    )
    loaded = predicted(plan, python=1).loaded
    assert loaded.tail_ms() == pytest.approx(1 + 305 + TAIL_SD * 50)


def test_work_inside_a_graph_waits_for_its_own_type() -> None:
    inner = {"x": model(1_000)}
    plan = plan_of({"a": takes(100), "g": {"type": "graph", "nodes": inner, "needs": ["a"]}})
    assert predicted(plan, llm=3_000).loaded.mean_ms == pytest.approx(4_000)


def test_a_pipeline_that_may_degrade_is_predicted_at_its_shortest() -> None:
    nodes = {
        "a": model(2_000, fast=model(300)),
        "extra": takes(1_000, needs=["a"], optional=True),
        "end": takes(100, needs=["extra"]),
    }
    plan = plan_of(nodes, on_infeasible="degrade")
    assert predicted(plan, llm=500).loaded.mean_ms == pytest.approx(500 + 300 + 100)
    without = {**nodes, "a": model(2_000)}
    assert predicted(plan_of(without), llm=500).loaded.mean_ms == pytest.approx(3_600)


# ---- verdicts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("wait_ms", [1.0, 150.0, 5_000.0])
@pytest.mark.parametrize("slow", ["a", "b", "c", "d"])
@pytest.mark.parametrize("pools", [("python",), ("python", "llm")])
def test_a_task_is_admitted_by_a_limit_that_its_end_keeps(
    wait_ms: float, slow: str, pools: tuple[str, ...]
) -> None:
    def node(name: str, **fields: Any) -> dict[str, Any]:
        return takes(400.0 if name == slow else 100.0, 80.0 if name == slow else 10.0, **fields)

    nodes = {
        "a": node("a"),
        "b": node("b", needs=["a"]),
        "c": node("c", needs=["a"]),
        "d": node("d", needs=["b", "c"]),
        "e": model(250.0, needs=["d"]),
    }
    told = predicted(plan_of(nodes), **dict.fromkeys(pools, wait_ms))
    assert told.path.tail_ms() <= told.loaded.tail_ms() <= told.most_ms
    assert told.most_ms <= told.loaded.tail_ms() + wait_ms + 4 * TAIL_SD * 80.0


def a_prediction(path_ms: float, wait_ms: float, sd_ms: float = 0.0) -> Prediction:
    path = Estimate(path_ms, sd_ms**2)
    return Prediction(path, lambda: Estimate(path_ms + wait_ms, sd_ms**2), "llm")


@pytest.mark.parametrize(
    ("path_ms", "wait_ms", "sd_ms", "left_ms", "on_overload", "verdict"),
    [
        (1_000, 0, 0, 500, "reject", "admit"),  # no load: not admission's matter
        (1_000, 500, 0, 2_000, "reject", "admit"),
        (1_000, 1_500, 0, 2_000, "reject", "reject"),
        (1_000, 1_500, 0, 2_000, "queue", "queue"),
        (1_000, 1_500, 0, 2_000, "admit", "admit"),
        (3_000, 1_500, 0, 2_000, "reject", "admit"),  # out of reach anyway: on_infeasible decides
        (1_000, 600, 400, 2_000, "reject", "reject"),  # its tail was safe, and is no more
        (1_000, 600, 800, 2_000, "reject", "admit"),  # its tail was not safe: on average it fits
        (1_000, 1_100, 800, 2_000, "reject", "reject"),
    ],
)
def test_a_task_that_the_load_keeps_from_its_deadline_is_not_begun(
    path_ms: float, wait_ms: float, sd_ms: float, left_ms: float, on_overload: str, verdict: str
) -> None:
    prediction = a_prediction(path_ms, wait_ms, sd_ms)
    assert judge(prediction, left_ms, on_overload) == Verdict(verdict)


def test_a_waiting_task_is_lost_when_not_even_an_idle_platform_could_make_it() -> None:
    assert is_lost(a_prediction(1_000, 0), 999)
    assert not is_lost(a_prediction(1_000, 5_000), 1_000)


def test_a_refusal_says_what_is_in_the_way_and_when_to_come_back() -> None:
    error = unreachable(a_prediction(1_000, 5_000), 2_000).info()
    assert (error.code, error.retryable) == ("deadline_unreachable", True)
    assert error.details == {
        "deadline_ms": 2_000,
        "predicted_ms": 6_000,
        "wait_ms": 5_000,
        "limited_by": "llm",
        "retry_after_ms": 4_000,
    }
    assert retry_after_ms(a_prediction(1_000, 10), 1_005) == LEAST_RETRY_MS
