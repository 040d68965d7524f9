"""What can never work is refused when a pipeline is applied, and only that. The rest of the rules is
tested by the pages of constructs (`test_construct_misuse.py`)."""

from typing import Any

import pytest

from hocket.schemas.errors import InvalidInput
from hocket.schemas.pipeline.contradictions import warnings_of
from hocket.schemas.pipeline.node_parts import PlanPolicy
from hocket.schemas.pipeline.plan import Plan, compile_emitted, compile_pipeline
from hocket.schemas.pipeline.policy import PlanRefused

ECHO = {"type": "python", "handler": "m:f"}
Nodes = dict[str, Any]


def apply(nodes: Nodes, **spec: Any) -> Plan:
    return compile_pipeline({"pipeline": "p", "nodes": nodes} | spec)


def refusal(nodes: Nodes, **spec: Any) -> tuple[str, str, str]:
    with pytest.raises(InvalidInput) as refused:
        apply(nodes, **spec)
    fields = refused.value.fields
    return fields["field"], fields["reason"], fields["cure"]


# ---- fields that workers read by name -------------------------------------------------------

LLM = {"type": "llm", "model": "m", "prompt": "hi"}
PLANNING = {"type": "planning", "model": "m"}
RETRIEVAL = {"type": "retrieval", "collection": "c"}
SQL = {"type": "sql", "database": "d"}
TOOLS = {"t": {"parameters": {"type": "object"}, "node": ECHO}}
AGENT = {"type": "agent", "model": "m", "tools": TOOLS}
Q = {"with": {"q": 1}}


def test_documents_that_the_input_does_not_have_are_refused() -> None:
    node = LLM | {"documents": ["q", "passages.best"]} | Q
    assert refusal({"a": node}) == (
        "nodes.a.documents.1",
        "it reads `input.passages`, but the input has no `passages`",
        "Add `passages` to `nodes.a.with`.",
    )


@pytest.mark.parametrize(
    ("node", "field", "names", "name"),
    [
        (PLANNING, "prompt", "`question`", "question"),
        (AGENT, "prompt", "`question`", "question"),
        (RETRIEVAL, "query", "`query` or `queries`", "query"),
        (SQL, "query", "`sql`", "sql"),
    ],
)
def test_what_a_node_takes_from_its_input_instead_of_a_field_must_be_there(
    node: dict[str, Any], field: str, names: str, name: str
) -> None:
    reason = f"it is missing, and the input has no {names} to use instead"
    cure = f"Set `{field}`, or let the input have `{name}`: "
    assert refusal({"a": node | Q}) == (
        f"nodes.a.{field}",
        reason,
        cure + f"add `{name}` to `nodes.a.with`.",
    )
    assert refusal({"a": node}) == (
        f"nodes.a.{field}",
        reason,
        cure + "without `with`, the input is `input` (the run's) and the outputs of `needs`; add it"
        " there.",
    )
    apply({"a": node | Q | {field: "select 1"}})
    apply({"a": node | {"with": {name: "{{ input.q }}"}}})
    apply({name: ECHO, "a": node | {"needs": [name]}})
    apply({"a": node | {"map": {"over": "input.xs", "as": name}}})
    apply({"a": {"type": "graph", "nodes": {name: ECHO, "b": node | {"needs": [name]}}}})


LEGAL_INPUTS: dict[str, Nodes] = {
    "several queries": {"a": RETRIEVAL | {"with": {"queries": "{{ input.queries }}"}}},
    "documents from a need": {
        "found": ECHO,
        "a": LLM | {"documents": ["found.passages", "input"], "needs": ["found"]},
    },
    "documents from a node that it reads": {
        "found": ECHO,
        "a": LLM | {"documents": ["found"], "when": "nodes.found.output"},
    },
    "a document per item": {"a": LLM | {"documents": ["item"], "map": {"over": "input.xs"}}},
    "documents of the round before": {
        "a": LLM | {"documents": ["previous"], "loop": {"until": "output.done"}}
    },
    "a fallback that takes over an input": {
        "a": ECHO
        | {"with": {"sql": "select 1", "passages": []}}
        | {"fallback": [{"node": SQL}, {"node": LLM | {"documents": ["passages"]}}]}
    },
    "branches of a race": {
        "a": {"type": "race", "with": {"query": "x"}, "branches": {"b": RETRIEVAL, "c": RETRIEVAL}}
    },
    "a called node, whose input its handler gives": {
        "a": ECHO | {"calls": {"find": RETRIEVAL, "ask": SQL, "plan": PLANNING}}
    },
    "a tool that any arguments may be given to": {
        "a": AGENT
        | {"prompt": "hi"}
        | {"tools": {"find": {"parameters": {"type": "object"}, "node": RETRIEVAL}}}
    },
    "a tool whose fallback has an input of its own": {
        "a": AGENT
        | {"prompt": "hi"}
        | {
            "tools": {
                "find": {
                    "parameters": {
                        "type": "object",
                        "properties": {"q": {}},
                        "additionalProperties": False,
                    },
                    "node": RETRIEVAL
                    | {"query": "{{ input.q }}"}
                    | {
                        "fallback": [
                            {"node": LLM | {"prompt": "{{ input.text }}", "with": {"text": "x"}}},
                            {"node": RETRIEVAL | {"with": {"query": "{{ input.q }}"}}},
                        ]
                    },
                }
            }
        }
    },
}


@pytest.mark.parametrize("nodes", LEGAL_INPUTS.values(), ids=LEGAL_INPUTS.keys())
def test_an_input_that_may_have_what_is_read_is_accepted(nodes: Nodes) -> None:
    apply(nodes)


def test_a_tool_that_is_never_given_what_it_needs_is_refused() -> None:
    parameters = {"type": "object", "properties": {"q": {}}, "additionalProperties": False}
    tools = {"find": {"parameters": parameters, "node": RETRIEVAL}}
    place, nothing_else = "`nodes.a.tools.find.parameters.properties`", "which allows nothing else."
    assert refusal({"a": AGENT | {"prompt": "hi", "tools": tools}}) == (
        "nodes.a.tools.find.node.query",
        "it is missing, and the input has no `query` or `queries` to use instead",
        f"Set `query`, or let the input have `query`: add `query` to {place}, {nothing_else}",
    )


def test_inner_nodes_are_held_to_the_inputs_that_they_take_over() -> None:
    race = {"type": "race", "branches": {"b": RETRIEVAL, "c": ECHO}} | Q
    assert refusal({"a": race})[0] == "nodes.a.branches.b.query"
    instead = ECHO | Q | {"fallback": [{"node": SQL}]}
    assert refusal({"a": instead})[0] == "nodes.a.fallback.0.node.query"


# ---- paths, races, maps ---------------------------------------------------------------------

HTTP = {"type": "http", "service": "s"}


def test_a_parameter_of_a_path_needs_a_value() -> None:
    assert refusal({"a": HTTP | {"path": "/x/:id/:part", "params": {"id": 1}}}) == (
        "nodes.a.params",
        "`:part` of the path has no value",
        "Set `params.part`.",
    )
    apply({"a": HTTP | Q | {"path": "/x/:id/:part", "params": {"id": 1, "part": "{{ input.q }}"}}})
    apply({"a": HTTP | {"path": "/x/8:30/:"}})


def race(**fields: Any) -> Nodes:
    return {"a": {"type": "race", "branches": {"x": ECHO, "y": ECHO}} | fields}


@pytest.mark.parametrize("never", ["false", "{{ false }}", "0", "none", "1 > 2"])
def test_a_race_that_nobody_can_win_is_refused(never: str) -> None:
    assert refusal(race(valid=never)) == (
        "nodes.a.valid",
        "it is never true, so no branch can win",
        "Write a condition over `output`, or remove it.",
    )
    apply(race(valid="true"))
    apply(race(valid="output and false"))


@pytest.mark.parametrize("score", ["'5'", "true", "none", "[1]"])
def test_a_score_that_is_never_a_number_is_refused(score: str) -> None:
    assert refusal(race(pick="best", score=score)) == (
        "nodes.a.score",
        f"`{score}` is not a number, so no branch can win",
        'Write an expression over `output`, e.g. `score: "output.points"`.',
    )
    apply(race(pick="best", score="1"))
    apply(race(pick="best", score="output.text | length"))


def test_a_list_that_is_longer_than_the_map_allows_is_refused() -> None:
    node = ECHO | {"map": {"over": "[1, 2, 3]", "max_items": 2}}
    assert refusal({"a": node}) == (
        "nodes.a.map.over",
        "it has 3 items, but `max_items` is 2",
        "Raise `max_items`, or map over fewer.",
    )
    apply({"a": ECHO | {"map": {"over": "[1, 2]", "max_items": 2}}})


# ---- errors and optional nodes --------------------------------------------------------------

OPTIONAL = {"o": ECHO | {"optional": True}, "b": ECHO | {"with": {"v": 1}}}
X = "{{ nodes.o.output.x }}"


def test_an_error_has_the_fields_that_it_has_wherever_it_is_read() -> None:
    field, reason, cure = refusal(OPTIONAL, output={"e": "{{ nodes.o.error.nope }}"})
    assert (field, reason) == (
        "output.e",
        "it reads `nodes.o.error.nope`, but `nodes.o.error` has no `nope`",
    )
    assert cure.startswith("Use one of: ")
    assert "code" in cure
    assert refusal(OPTIONAL | {"c": ECHO | {"when": "nodes['o'].error['no']"}})[0] == "nodes.c.when"
    apply(OPTIONAL, output="{{ nodes.o.error.code if nodes.o.error else none }}")
    apply(OPTIONAL, output="{{ nodes.o.error.details.anything }}")
    apply(OPTIONAL, output="{{ nodes.o.error.nope | default('none') }}")
    apply(OPTIONAL, output="{{ (nodes.o.error or {}).nope is defined }}")
    apply(OPTIONAL, output="{{ (nodes.o.error or {}).items() | list }}")


def test_an_output_that_an_optional_node_would_break_is_refused() -> None:
    reason = (
        "`nodes.o.output.x` fails if the optional node `o` fails, because its output is then null"
    )
    cure = (
        "Provide a default, e.g. `nodes.o.output.x if nodes.o.output else none`, or remove "
        "`optional`."
    )
    assert refusal(OPTIONAL, output=X) == ("output", reason, cure)
    assert refusal(OPTIONAL, output={"l": [X]}) == ("output.l.0", reason, cure)
    graph = {"type": "graph", "nodes": OPTIONAL, "output": {"v": X}}
    assert refusal({"g": graph}) == ("nodes.g.output.v", reason, cure)
    apply(OPTIONAL, output="{{ nodes.o.output }}")
    apply(OPTIONAL, output="{{ nodes.o.output.x if nodes.o.output else none }}")
    apply(OPTIONAL, output="{{ nodes.b.output.x }}")


@pytest.mark.parametrize(
    "fields",
    [
        {"optional": True, "with": {"q": 1}},
        {"fallback": [{"node": ECHO | {"with": {"v": 1}}}]},
        {"fallback": [{"on": ["timeout"], "node": ECHO}, {"on": ["invalid"], "node": ECHO}]},
        {"fallback": [{"on": ["expression_failed"], "node": ECHO}]},
    ],
)
def test_a_failure_that_is_provided_for_may_be_caused_by_an_optional_node(
    fields: dict[str, Any],
) -> None:
    graph = {"type": "graph", "nodes": OPTIONAL, "output": X} | fields
    apply({"g": graph, "z": ECHO | {"needs": ["g"]}})
    apply(OPTIONAL | {"c": ECHO | fields | {"with": {"x": X}}, "z": ECHO | {"needs": ["c"]}})


def test_the_graph_in_a_race_may_fail_because_another_branch_may_win() -> None:
    graph = {"type": "graph", "nodes": OPTIONAL, "output": X}
    apply({"r": {"type": "race", "branches": {"g": graph, "e": ECHO}}})


def test_a_fallback_for_other_errors_does_not_help() -> None:
    for on in (["timeout"], ["invalid_input"], ["permanent", "budget_exhausted"]):
        fields = {"fallback": [{"on": on, "node": ECHO}]}
        assert refusal(OPTIONAL | {"c": ECHO | fields | {"with": {"x": X}}})[0] == "nodes.c.with.x"


def test_a_list_that_an_optional_node_would_break_may_be_replaced() -> None:
    def mapped(over: str, *on: str) -> Nodes:
        instead = {"on": list(on), "node": ECHO | {"with": {"v": 1}}}
        return OPTIONAL | {"c": ECHO | {"map": {"over": over}, "fallback": [instead]}}

    apply(mapped("nodes.o.output", "invalid_input"))
    apply(mapped("nodes.o.output", "invalid"))
    apply(mapped("nodes.o.output.xs", "expression_failed"))
    assert refusal(mapped("nodes.o.output", "expression_failed"))[0] == "nodes.c.map.over"
    assert refusal(mapped("nodes.o.output.xs", "invalid_input"))[0] == "nodes.c.map.over"


def test_the_output_of_emitted_steps_may_fail_only_if_it_does() -> None:
    policy = PlanPolicy.model_validate({"types": ["python"], "handlers": ["m:f"]})
    compile_emitted({"nodes": OPTIONAL, "output": X}, policy, path="plan")


# ---- times ----------------------------------------------------------------------------------

APPROVAL = {"type": "approval"}
SLOW = ECHO | {"timeout_ms": 120_000}
PAUSING: dict[str, Nodes] = {
    "beside it": {"a": APPROVAL},
    "a signal": {"a": {"type": "signal", "signal": "go", "pause_deadline": True}},
    "in a graph": {"g": {"type": "graph", "nodes": {"a": APPROVAL}}},
    "in a race": {"r": {"type": "race", "branches": {"a": APPROVAL, "b": ECHO}}},
    "in a fallback": {"b": ECHO | {"fallback": [{"node": APPROVAL}]}},
    "a tool": {
        "b": {"type": "agent", "model": "m", "prompt": "hi"}
        | {"tools": {"ask": {"parameters": {"type": "object"}, "node": APPROVAL}}}
    },
    "a called node": {"b": ECHO | {"calls": {"ask": APPROVAL}}},
    "what a planner may emit": {
        "b": PLANNING | {"prompt": "hi", "emit": {"types": ["approval"]}},
    },
    "what a planner may emit, too": {
        "b": PLANNING | {"prompt": "hi", "emit": {"types": ["signal"]}},
    },
}


@pytest.mark.parametrize("nodes", PAUSING.values(), ids=PAUSING.keys())
def test_a_timeout_above_the_slo_has_an_effect_if_the_deadline_is_paused(nodes: Nodes) -> None:
    apply(nodes | {"slow": SLOW}, slo_ms=10_000)
    signal = {"type": "signal", "signal": "other", "wait_ms": 120_000}
    apply(nodes | {"waits": signal}, slo_ms=10_000)


def test_it_has_none_otherwise() -> None:
    still = APPROVAL | {"pause_deadline": False, "wait_ms": 5_000}
    for nodes in ({"a": ECHO}, {"a": still}, {"a": {"type": "pipeline", "pipeline": "waits"}}):
        assert refusal(nodes | {"slow": SLOW}, slo_ms=10_000) == (
            "nodes.slow.timeout_ms",
            "it is longer than `slo_ms`, 10000 ms, and has no effect",
            "Lower it, or raise `slo_ms`.",
        )


def retried(**retry: Any) -> dict[str, Any]:
    return ECHO | {"retry": retry}


def test_a_pause_that_never_leaves_time_for_a_second_attempt_is_refused() -> None:
    def around(node: dict[str, Any]) -> dict[str, Any]:
        return {"g": {"type": "graph", "timeout_ms": 5_000, "nodes": {"a": node}}}

    assert refusal(around(retried(backoff_ms=5_000))) == (
        "nodes.g.nodes.a.retry.backoff_ms",
        "it is not shorter than `nodes.g.timeout_ms`, 5000 ms, so there is never a second attempt",
        "Lower it, or raise `nodes.g.timeout_ms`.",
    )
    apply(around(retried(backoff_ms=4_999)))
    apply(around(retried(backoff_ms=5_000, max_attempts=1)))
    spec = {"pipeline": "p", "nodes": around(retried(backoff_ms=5_000))}
    compile_pipeline(spec, applied=True)  # stored by an earlier release
    policy = PlanPolicy(types=["python", "graph"], handlers=["m:f"], max_depth=3)
    compile_emitted(spec, policy, path="plan")  # it may never need a second attempt


def test_what_is_stored_of_a_pipeline_with_a_short_graph_can_be_applied_again() -> None:
    graph = {"type": "graph", "timeout_ms": 200, "nodes": {"a": retried(max_attempts=2)}}
    plan = apply({"g": graph})
    stored = plan.pipeline.model_dump(mode="json", by_alias=True)
    assert stored["nodes"]["g"]["nodes"]["a"]["retry"]["backoff_ms"] == 200
    assert compile_pipeline(stored).spec_hash == plan.spec_hash


def test_a_pause_as_long_as_the_default_deadline_is_told() -> None:
    def told(nodes: dict[str, Any], slo_ms: float) -> list[str]:
        return list(warnings_of(apply(nodes, slo_ms=slo_ms).pipeline))

    never = retried(backoff_ms=10_000)
    for nodes, field in (
        ({"a": never}, "nodes.a"),
        ({"g": {"type": "graph", "nodes": {"a": never}}}, "nodes.g.nodes.a"),
    ):
        (warning,) = told(nodes, 10_000)
        assert warning.startswith(
            f"`{field}.retry.backoff_ms`: with the default deadline of 10000 ms, there is never a "
            "second attempt, unless the task has a longer deadline of its own."
        )
        assert told(nodes, 10_001) == []
    assert told({"a": never, "b": APPROVAL}, 10_000) == []
    assert told({"a": retried(backoff_ms=10_000, max_attempts=1)}, 10_000) == []
    assert told({"a": retried(max_attempts=5)}, 100) == []


@pytest.mark.parametrize("kind", ["signal", "approval"])
@pytest.mark.parametrize("pauses", [True, False])
@pytest.mark.parametrize(
    "layer", [{}, {"map": {"over": "input.xs"}}, {"loop": {"until": "output"}}]
)
def test_a_wait_is_held_to_the_timeout_around_it_whether_it_pauses_the_deadline_or_not(
    kind: str, pauses: bool, layer: dict[str, Any]
) -> None:
    waits = {"type": kind, "wait_ms": 2_000, "pause_deadline": pauses}
    waits |= {"signal": "s"} if kind == "signal" else {}
    graph = {"type": "graph", "timeout_ms": 1_000, "nodes": {"b": waits}} | layer
    around = {"type": "race", "timeout_ms": 1_000, "branches": {"b": waits, "c": ECHO}} | layer
    for node, field in ((graph, "nodes.g.nodes.b"), (around, "nodes.g.branches.b")):
        assert refusal({"g": node}) == (
            f"{field}.wait_ms",
            "it is longer than `nodes.g.timeout_ms`, 1000 ms, and has no effect",
            "Lower it, or raise `nodes.g.timeout_ms`.",
        )
    apply({"g": graph | {"nodes": {"b": waits | {"wait_ms": 1_000}}}})
    del waits["wait_ms"]
    apply({"g": graph | {"nodes": {"b": waits}}})


def test_timeouts_in_a_graph_are_held_to_its_own_also_beside_an_approval() -> None:
    graph = {"type": "graph", "timeout_ms": 60_000, "nodes": {"slow": SLOW}}
    assert refusal({"g": graph, "a": APPROVAL}, slo_ms=10_000)[0] == "nodes.g.nodes.slow.timeout_ms"
    apply({"g": graph | {"timeout_ms": 180_000}, "a": APPROVAL}, slo_ms=10_000)


def test_waits_in_emitted_graphs_are_held_to_their_timeouts() -> None:
    policy = PlanPolicy.model_validate({"types": ["graph", "approval"], "max_depth": 2})
    waits = APPROVAL | {"wait_ms": 2_000}
    nodes = {"g": {"type": "graph", "timeout_ms": 1_000, "nodes": {"b": waits}}}
    with pytest.raises(PlanRefused, match=r"nodes\.g\.nodes\.b\.wait_ms"):
        compile_emitted({"nodes": nodes}, policy, path="plan")


PICTURE = {"type": "python", "handler": "h:f", "optional": True}
READS_IT = {
    "type": "graph",
    "nodes": {"pic": PICTURE, "b": {"type": "python", "handler": "h:f"}},
    "output": "{{ nodes.pic.output.url }}",
}


@pytest.mark.parametrize(
    "node",
    [
        {**READS_IT, "map": {"over": "{{ input.xs }}", "on_item_error": "skip"}},
        {
            "type": "graph",
            "nodes": {"g": READS_IT},
            "fallback": [{"node": {"type": "python", "handler": "h:f"}}],
        },
    ],
    ids=["an item that may fail", "around it is a fallback"],
)
def test_an_output_that_an_optional_node_may_break_is_taken_where_others_survive_it(
    node: dict[str, Any],
) -> None:
    compile_pipeline({"pipeline": "p", "nodes": {"o": node}})


def test_braces_in_a_text_of_an_expression_are_no_template() -> None:
    node = {"type": "python", "handler": "h:f", "when": "'{{' in input.t"}
    compile_pipeline({"pipeline": "p", "nodes": {"a": node}})
