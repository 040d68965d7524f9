"""Which models a run is said to need, and when."""

from typing import Any

from hocket.coordinator.core.time.duration_estimates import Estimate, outlook
from hocket.coordinator.core.time.model_demand import expected_nodes, needs_models
from hocket.schemas.pipeline.plan import Plan, compile_pipeline


def planned(**nodes: dict[str, Any]) -> Plan:
    return compile_pipeline({"pipeline": "p", "nodes": nodes})


def llm(model: str, **fields: Any) -> dict[str, Any]:
    return {"type": "llm", "model": model, "prompt": "x", **fields}


def told(plan: Plan, **durations_ms: float) -> dict[str, tuple[str | None, float]]:
    measured = {path: Estimate(ms, 0.0, 10.0) for path, ms in durations_ms.items()}
    nodes = expected_nodes(plan, outlook(plan, measured))
    return {node.node: (node.model, node.after_ms) for node in nodes}


def test_a_model_is_needed_when_the_longest_way_to_it_is_done() -> None:
    plan = planned(
        embed=llm("embedder"),
        classify=llm("classifier"),
        answer=llm("writer", needs=["embed", "classify"]),
    )
    assert told(plan, embed=30_000.0, classify=20_000.0) == {
        "embed": ("embedder", 0.0),
        "classify": ("classifier", 0.0),
        "answer": ("writer", 30_000.0),
    }


def test_what_nobody_has_measured_is_no_reason_to_start_a_model_later() -> None:
    plan = planned(embed=llm("embedder"), answer=llm("writer", needs=["embed"]))
    assert told(plan)["answer"] == ("writer", 0.0)


def test_a_step_of_uncertain_length_is_taken_at_its_shortest() -> None:
    plan = planned(embed=llm("embedder"), answer=llm("writer", needs=["embed"]))
    uneven = {"embed": Estimate(10_000.0, 4_000_000.0, 10.0)}  # a deviation of 2,000 ms
    (_, answer) = expected_nodes(plan, outlook(plan, uneven))
    assert answer.after_ms == 6_000.0


def test_nodes_inside_graphs_and_branches_of_races_are_told_of() -> None:
    plan = planned(
        first={"type": "python", "handler": "a:b"},
        inner={"type": "graph", "needs": ["first"], "nodes": {"read": llm("reader")}},
        either={"type": "race", "branches": {"a": llm("small"), "b": llm("large")}},
    )
    assert told(plan, first=500.0) == {
        "first": (None, 0.0),
        "inner/read": ("reader", 500.0),
        "either~a": ("small", 0.0),
        "either~b": ("large", 0.0),
    }


def test_a_pipeline_without_model_nodes_is_not_told_of() -> None:
    assert not needs_models(planned(q={"type": "signal", "signal": "go"}))
