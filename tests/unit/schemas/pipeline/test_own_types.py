"""Node types of somebody's own, and queues, as a pipeline names them."""

from typing import Any

import pytest

from hocket.coordinator.core.scheduling.load_prediction import types_of
from hocket.schemas import subjects
from hocket.schemas.errors import InvalidInput
from hocket.schemas.pipeline.plan import compile_pipeline

PYTHON = {"type": "python", "handler": "m:f"}


def plan_of(**nodes: Any) -> Any:
    return compile_pipeline({"pipeline": "p", "nodes": nodes})


def test_an_own_type_is_a_node_whose_config_goes_to_its_worker() -> None:
    plan = plan_of(x={"type": "crm.lookup", "config": {"region": "eu"}, "timeout_ms": 50})
    assert plan.by_path["x"].config == {"region": "eu"}


def test_steps_of_a_queue_and_of_own_types_are_counted_by_themselves() -> None:
    plan = plan_of(a={"type": "crm.lookup"}, b={"type": "crm.lookup", "queue": "gpu"}, c=PYTHON)
    assert types_of(plan) == ("crm.lookup", "crm.lookup@gpu", "python")


def test_a_node_without_a_queue_keeps_the_hash_that_it_had_before_there_were_queues() -> None:
    plan = compile_pipeline({"pipeline": "a", "nodes": {"y": {"type": "python", "handler": "a:b"}}})
    assert plan.spec_hash == "41b9b309d4db17b5a4a179f5741ebb976997d5f39097dad87da4a9a8fa06f44d"


@pytest.mark.parametrize(
    ("node", "field", "reason"),
    [
        ({"type": "crm"}, "type", "`crm` is not a node type"),
        ({"type": "Crm.x"}, "type", "`Crm.x` is not a node type"),
        ({"type": "a.b-c"}, "type", "`a.b-c` is not a node type"),
        ({"type": "a.b.c.d.e"}, "type", "`a.b.c.d.e` is not a node type"),
        ({"type": "a." + "b" * 32}, "type", f"`a.{'b' * 32}` is not a node type"),
        ({"type": f"{'a' * 31}.{'b' * 31}.c"}, "type", f"`{'a' * 31}.{'b' * 31}.c` is not a node"),
        ({"type": "a.b", "configs": {}}, "configs", "there is no such field"),
        ({"type": "a.b", "queue": "G P U"}, "queue", "`G P U` is not a queue"),
        ({"type": "signal", "signal": "s", "queue": "q"}, "queue", "a `signal` node is not run"),
    ],
)
def test_what_cannot_be_is_refused_with_its_field(
    node: dict[str, Any], field: str, reason: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        plan_of(x=node)
    assert refused.value.fields["field"] == f"nodes.x.{field}"
    assert str(refused.value.fields["reason"]).startswith(reason)


@pytest.mark.parametrize(
    ("written", "meant"),
    [("retreival", "retrieval"), ("LLM", "llm"), ("Pyton", "python"), ("planner", "planning")],
)
def test_a_misspelt_type_is_told_the_nearest_one(written: str, meant: str) -> None:
    emit = {"types": [written]}
    for node in (
        {"type": written},
        {"type": "planning", "model": "m", "prompt": "p", "emit": emit},
    ):
        with pytest.raises(InvalidInput) as refused:
            plan_of(x=node)
        assert refused.value.fields["reason"] == f"`{written}` is not a node type"
        assert refused.value.fields["cure"].startswith(f"Did you mean `{meant}`? Use one of: ")


@pytest.mark.parametrize("written", ["wizard", "x" * 1_000_000])
def test_a_type_that_is_like_none_is_told_only_what_there_is(written: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        plan_of(x={"type": written})
    assert refused.value.fields["cure"].startswith("Use one of: agent, ")


def test_no_two_pools_share_a_subject() -> None:
    names = ["python", "a.b", "a.b.urgent", "a.b@urgent", "a.b_c", "a_b.c", "a.b.c", "python@a"]
    assert all(subjects.is_pool(name) for name in names)
    assert len({subjects.step(name, "batch") for name in names}) == len(names)
    assert subjects.step("crm.lookup@gpu", "urgent") == "hocket.step.crm-lookup@gpu.urgent"


@pytest.mark.parametrize(
    "name", ["", "a.b@", "a@b@c", "a.b.c.d.e", "python@G", "a..b", "a.b\n", "*"]
)
def test_what_is_no_pool_is_told_apart(name: str) -> None:
    assert not subjects.is_pool(name)
