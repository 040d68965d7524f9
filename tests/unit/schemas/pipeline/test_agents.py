"""What an `agent` node may not say, and what may not be said of its rounds."""

import copy
from typing import Any

import pytest

from hocket.schemas.access.grants import Grants, missing_at_step
from hocket.schemas.errors import InvalidInput
from hocket.schemas.pipeline.agents.turns import TurnInvalid
from hocket.schemas.pipeline.handlers import AllowedHandlers, check_handlers
from hocket.schemas.pipeline.plan import compile_pipeline, compile_turn
from hocket.schemas.pipeline.spec import AgentNode, Pipeline, parse_pipeline

OPEN = {"type": "object", "properties": {"word": {"type": "string"}}}
CLOSED = OPEN | {"additionalProperties": False}
TOOL = {"parameters": CLOSED, "node": {"type": "python", "handler": "shop:search"}}
MCP = {"node": {"type": "mcp", "server": "library", "tool": "find"}}
AGENT: dict[str, Any] = {
    "type": "agent",
    "model": "writer",
    "with": {"question": "{{ input.question }}"},
    "tools": {"search": TOOL, "find": MCP},
}


def changed(place: str, value: Any) -> dict[str, Any]:
    agent: Any = copy.deepcopy(AGENT)
    *way, last = place.split(".")
    part = agent
    for name in way:
        part = part[name]
    part[last] = value
    return {"pipeline": "help", "nodes": {"ask": agent}}


def pipeline_of(agent: dict[str, Any]) -> dict[str, Any]:
    return {"pipeline": "help", "nodes": {"ask": agent}}


REFUSED = [
    ("tools", {}, "tools", "the number of entries is 0"),
    ("tools.x y", TOOL, "tools.x y", ""),
    (
        "tools.search.parameters",
        None,
        "tools.search.parameters",
        "only tools of MCP servers provide",
    ),
    ("tools.search.parameters", {"type": "array"}, "tools.search.parameters.type", "an object"),
    ("tools.search.parameters", {"type": "objekt"}, "tools.search.parameters.type", ""),
    ("tools.search.node.with", {"a": 1}, "tools.search.node.with", "when it is called"),
    ("tools.search.node.when", "true", "tools.search.node.when", "when it is called"),
    ("tools.search.node.map", {"over": "[1]"}, "tools.search.node.map", "when it is called"),
    ("tools.search.node.loop", {"until": "true"}, "tools.search.node.loop", "when it is called"),
    ("tools.search.node.needs", ["a"], "tools.search.node.needs", "when it is called"),
    ("tools.search.node.optional", True, "tools.search.node.optional", "when it is called"),
    ("tools.search.node.handler", "nothing", "tools.search.node.handler", ""),
    ("tools.search.node", {"type": "wizard"}, "tools.search.node.type", ""),
    (
        "tools.search.node",
        {"type": "llm", "model": "m", "prompt": "{{ input.phrase }}"},
        "tools.search.node.prompt",
        "the input has no `phrase`",
    ),
    (
        "tools.search.node",
        {"type": "llm", "model": "m", "prompt": "{{ nodes.ask.output }}"},
        "tools.search.node.prompt",
        "a worker knows only the step's `input`",
    ),
    (
        "tools.search.node",
        {"type": "graph", "nodes": {"a": {**TOOL["node"], "with": {"x": "{{ nodes.b }}"}}}},
        "tools.search.node.nodes.a.with.x",
        "there is no such node here",
    ),
    (
        "tools.search.node",
        {"type": "llm", "model": "m", "prompt": "{{ input.word"},
        "tools.search.node.prompt",
        "",
    ),
    ("loop", {"until": "true"}, "loop", "an agent has rounds of its own"),
    ("cache", {"ttl_ms": 1_000}, "cache", "are not cached with them"),
    ("with.previous", 1, "with.previous", "this name is reserved for the previous round"),
    ("max_rounds", 51, "max_rounds", ""),
    ("max_calls", 0, "max_calls", ""),
    ("prompt", "{{ input.topic }}", "prompt", "the input has no `topic`"),
    ("prompt", "{{ input.previous }}", "prompt", "the input has no `previous`"),
    ("response_schema", {"type": "objekt"}, "response_schema.type", ""),
]


@pytest.mark.parametrize(("place", "value", "field", "reason"), REFUSED)
def test_what_makes_no_sense_is_refused_with_its_place(
    place: str, value: Any, field: str, reason: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        compile_pipeline(changed(place, value))
    assert refused.value.fields["field"] == f"nodes.ask.{field}", refused.value
    assert reason in refused.value.fields["reason"], refused.value


def test_a_need_with_the_name_of_the_previous_round_is_refused() -> None:
    agent = copy.deepcopy(AGENT)
    agent.pop("with", None)
    document = pipeline_of(agent | {"needs": ["previous"], "prompt": "hi"})
    document["nodes"]["previous"] = {"type": "python", "handler": "m:f"}
    with pytest.raises(InvalidInput, match="would hide the agent's previous round"):
        compile_pipeline(document)
    (name,) = (one for one in document["nodes"] if one != "previous")
    document["nodes"][name]["with"] = {"found": "{{ nodes.previous.output }}"}
    compile_pipeline(document)


def test_planners_write_no_agents() -> None:
    planner = {"type": "planning", "model": "m", "emit": {"types": ["agent"]}}
    with pytest.raises(InvalidInput) as refused:
        compile_pipeline({"pipeline": "p", "nodes": {"plan": planner}})
    assert refused.value.fields["field"] == "nodes.plan.emit.types"


def test_models_handlers_and_grants_of_tools_are_checked() -> None:
    paid = {"parameters": OPEN, "node": {"type": "llm", "model": "dear", "prompt": "hi"}}
    document = pipeline_of(AGENT | {"tools": AGENT["tools"] | {"paid": paid}})
    with pytest.raises(InvalidInput) as unknown:
        compile_pipeline(document, known_models={"writer"})
    assert unknown.value.fields["field"] == "nodes.ask.tools.paid.node.model"
    pipeline: Pipeline = parse_pipeline(document)
    with pytest.raises(InvalidInput) as not_allowed:
        check_handlers(pipeline, AllowedHandlers.of(("acme",), "handlers"))
    assert not_allowed.value.fields["field"] == "nodes.ask.tools.search.node.handler"
    agent = pipeline.nodes["ask"]
    missing = missing_at_step(agent, "ask", Grants(models=("clerk",)), "acme")
    assert missing is not None
    assert missing.fields["field"] == "ask.model"


HOSTILE = [
    (None, "output"),
    ({"calls": []}, "done"),
    ({"done": False, "calls": [{"step": "a", "tool": "drop", "arguments": {}}]}, "calls.0.tool"),
    (
        {"done": False, "calls": [{"step": "../a", "tool": "search", "arguments": {}}]},
        "calls.0.step",
    ),
    (
        {"done": False, "calls": [{"step": "a", "tool": "search", "arguments": [1]}]},
        "calls.0.arguments",
    ),
    (
        {"done": False, "calls": [{"step": "a", "tool": "search", "arguments": {}}] * 2},
        "calls.1.step",
    ),
    ({"done": True, "calls": [{"step": "a", "tool": "search", "arguments": {}}]}, "done"),
    (
        {
            "done": False,
            "calls": [{"step": f"a{i}", "tool": "search", "arguments": {}} for i in range(9)],
        },
        "calls",
    ),
]


@pytest.mark.parametrize(("output", "field"), HOSTILE)
def test_what_a_worker_cannot_say_of_a_round_is_refused(output: Any, field: str) -> None:
    agent = AgentNode.model_validate(AGENT)
    with pytest.raises(TurnInvalid) as refused:
        compile_turn(agent, output, path="ask")
    assert field in refused.value.fields["field"]


def test_a_call_runs_what_the_author_wrote_with_the_arguments_as_data() -> None:
    agent = AgentNode.model_validate(AGENT)
    trap = "{{ nodes.a.output }}"
    calls = [
        {
            "step": "search_1",
            "tool": "search",
            "arguments": {"word": trap},
            "node": {"type": "sql"},
        },
        {"step": "find_2", "tool": "find", "arguments": {"subject": trap}},
    ]
    scope, by_path = compile_turn(agent, {"done": False, "calls": calls}, path="ask")
    assert set(by_path) == {"ask/search_1", "ask/find_2"}
    search, find = (scope.nodes[name] for name in ("search_1", "find_2"))
    assert (search.node.type, dict(search.config)) == ("python", {"handler": "shop:search"})
    assert search.input is not None
    assert search.input({}) == {"word": trap}
    assert find.config["arguments"] == {"subject": '{{ "{{ nodes.a.output }}" }}'}
