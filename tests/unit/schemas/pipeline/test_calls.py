"""`calls`: what a node's handler may call, as far as a pipeline can be judged before it runs."""

from typing import Any

import pytest

from hocket.schemas.access.grants import GrantMissing, Grants, check_grants
from hocket.schemas.errors import InvalidInput
from hocket.schemas.pipeline.handlers import AllowedHandlers, check_handlers
from hocket.schemas.pipeline.node_parts import PlanPolicy
from hocket.schemas.pipeline.plan import compile_emitted, compile_pipeline
from hocket.schemas.pipeline.policy import PlanRefused
from hocket.schemas.pipeline.spec import parse_pipeline

LOOK: dict[str, Any] = {"type": "crm.lookup", "timeout_ms": 1_000}


def document(**called: Any) -> dict[str, Any]:
    return {"pipeline": "p", "nodes": {"a": {"type": "crm.greet", "calls": called}}}


def test_called_nodes_have_a_place_below_their_callers() -> None:
    graph = {"type": "graph", "nodes": {"inner": LOOK}}
    plan = compile_pipeline(document(look=LOOK, graph=graph))
    assert set(plan.by_path) == {"a", "a/look", "a/graph", "a/graph/inner"}
    assert list(plan.root.nodes["a"].calls) == ["look", "graph"]
    assert plan.by_path["a"].config == {}


@pytest.mark.parametrize(
    ("called", "field"),
    [
        ({"with": {"x": 1}}, "nodes.a.calls.look.with"),
        ({"when": "true"}, "nodes.a.calls.look.when"),
        ({"map": {"over": "input.xs"}}, "nodes.a.calls.look.map"),
        ({"loop": {"until": "output"}}, "nodes.a.calls.look.loop"),
        ({"needs": ["b"]}, "nodes.a.calls.look.needs"),
        ({"optional": True}, "nodes.a.calls.look.optional"),
        ({"timeout_ms": 1e7}, "nodes.a.calls.look.timeout_ms"),
        ({"cache": {"ttl_ms": 1, "key": "nodes.b"}}, "nodes.a.calls.look.cache.key"),
    ],
)
def test_what_a_called_node_cannot_say_is_refused_with_its_place(
    called: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        compile_pipeline(document(look=LOOK | called))
    assert refused.value.fields["field"] == field


def test_a_called_node_reads_the_input_of_its_call_and_no_other_node() -> None:
    prompt = {"type": "llm", "model": "m", "prompt": "Greet {{ input.anything }}."}
    race = {"type": "race", "branches": {"x": prompt, "y": prompt}}
    compile_pipeline(document(write=prompt | {"fallback": [{"node": prompt}]}, race=race))
    with pytest.raises(InvalidInput) as refused:
        compile_pipeline(document(write=prompt | {"prompt": "{{ nodes.a.output }}"}))
    assert refused.value.fields["field"] == "nodes.a.calls.write.prompt"


def test_max_calls_without_calls_is_refused() -> None:
    with pytest.raises(InvalidInput, match="has no nodes to call"):
        compile_pipeline({"pipeline": "p", "nodes": {"a": {"type": "crm.greet", "max_calls": 3}}})


def test_other_types_call_nothing() -> None:
    node = {"type": "llm", "model": "m", "prompt": "x", "calls": {"look": LOOK}}
    with pytest.raises(InvalidInput) as refused:
        compile_pipeline({"pipeline": "p", "nodes": {"a": node}})
    assert refused.value.fields["field"] == "nodes.a.calls"


def test_grants_handlers_and_policies_hold_for_what_is_called() -> None:
    calls = {"look": LOOK, "do": {"type": "python", "handler": "acme.steps:run"}}
    pipeline = parse_pipeline(document(**calls))
    granted = Grants(node_types=("crm.greet", "python"))
    with pytest.raises(GrantMissing, match=r"`crm\.lookup`"):
        check_grants(pipeline, granted, "t")
    with pytest.raises(InvalidInput) as refused:
        check_handlers(pipeline, AllowedHandlers.of(("shop",), "handlers"))
    assert refused.value.fields["field"] == "nodes.a.calls.do.handler"
    policy = PlanPolicy(types=("crm.greet", "crm.lookup"))
    with pytest.raises(PlanRefused, match="what handlers call"):
        compile_emitted({"nodes": document(**calls)["nodes"]}, policy, path="p")


def test_a_pipeline_without_calls_is_the_version_that_it_was() -> None:
    before = {"pipeline": "p", "nodes": {"a": {"type": "python", "handler": "m:f"}}}
    dumped = compile_pipeline(before).pipeline.model_dump(mode="json", by_alias=True)
    assert not {"calls", "max_calls"} & set(dumped["nodes"]["a"])


def test_a_step_whose_node_calls_otherwise_is_another_one() -> None:
    def own_fields(**called: Any) -> Any:
        return compile_pipeline(document(**called)).by_path["a"].own_fields

    assert own_fields(look=LOOK) == own_fields(look=LOOK)
    assert own_fields(look=LOOK) != own_fields(look=LOOK | {"timeout_ms": 2_000})
