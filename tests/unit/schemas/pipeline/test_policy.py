"""What a model that plans steps can make of them: nothing that its policy does not name, no program."""

import inspect
from typing import Any

import pytest

from hocket.schemas.pipeline import expressions, names
from hocket.schemas.pipeline.emitted import TEMPLATES, as_data
from hocket.schemas.pipeline.expressions import compile_value
from hocket.schemas.pipeline.node_parts import PlanPolicy
from hocket.schemas.pipeline.plan import compile_emitted
from hocket.schemas.pipeline.policy import PlanRefused
from hocket.schemas.templates.literals import literal, text_of
from hocket.schemas.templates.parsing import count_tokens, parse_expression

ALL: dict[str, Any] = {
    "types": ["python", "llm", "sql", "retrieval", "pipeline", "planning", "graph", "race"],
    "handlers": ["m:f"],
    "models": ["small"],
    "databases": ["shop"],
    "collections": ["texts"],
    "pipelines": ["child"],
    "max_depth": 3,
    "budget_usd": "0.5",
}
PYTHON = {"type": "python", "handler": "m:f"}
PLANNER = {"type": "planning", "model": "small", "with": {"question": "?"}}


def emit(node: dict[str, Any], **policy: Any) -> Any:
    allowed = PlanPolicy.model_validate(ALL | policy)
    return compile_emitted({"nodes": {"a": node}}, allowed, path="plan")


def narrower(**fields: Any) -> dict[str, Any]:
    policy = {"types": ["python"], "handlers": ["m:f"], "max_depth": 1}
    return PLANNER | {"emit": policy | fields}


@pytest.mark.parametrize(
    ("node", "field"),
    [
        ({"type": "python", "handler": "subprocess:getoutput"}, "nodes.a.handler"),
        ({"type": "python", "handler": "m:g"}, "nodes.a.handler"),
        ({"type": "llm", "model": "large", "prompt": "x"}, "nodes.a.model"),
        (PLANNER | {"model": "large"}, "nodes.a.model"),
        (PLANNER | {"database": "private"}, "nodes.a.database"),
        ({"type": "sql", "database": "private", "query": "SELECT 1"}, "nodes.a.database"),
        ({"type": "retrieval", "collection": "secrets", "query": "x"}, "nodes.a.collection"),
        ({"type": "pipeline", "pipeline": "other"}, "nodes.a.pipeline"),
        ({"type": "approval"}, "nodes.a.type"),
        ({"type": "graph", "nodes": {"x": PYTHON | {"handler": "m:g"}}}, "nodes.a.nodes.x.handler"),
        ({"type": "race", "branches": {"x": PYTHON, "y": PYTHON | {"handler": "m:g"}}},
         "nodes.a.branches.y.handler"),
        (PYTHON | {"fallback": [{"node": PYTHON | {"handler": "os:system"}}]},
         "nodes.a.fallback.0.node.handler"),
        (PYTHON | {"fast": PYTHON | {"handler": "os:system"}}, "nodes.a.fast.handler"),
        (PYTHON | {"retry": {"max_attempts": 20}}, "nodes.a.retry.max_attempts"),
        (PYTHON | {"cache": {"ttl_ms": 1, "key": "input.x"}}, "nodes.a.cache.key"),
        (narrower(types=["python", "approval"]), "nodes.a.emit.types"),
        (narrower(handlers=["m:f", "os:system"]), "nodes.a.emit.handlers"),
        (narrower(models=["large"]), "nodes.a.emit.models"),
        (narrower(databases=["private"]), "nodes.a.emit.databases"),
        (narrower(collections=["secrets"]), "nodes.a.emit.collections"),
        (narrower(pipelines=["other"]), "nodes.a.emit.pipelines"),
        (narrower(max_steps=21), "nodes.a.emit.max_steps"),
        (narrower(max_items=21), "nodes.a.emit.max_items"),
        (narrower(max_attempts=4), "nodes.a.emit.max_attempts"),
        (narrower(max_depth=3), "nodes.a.emit.max_depth"),
        (narrower(budget_usd="0.51"), "nodes.a.emit.budget_usd"),
    ],
)  # fmt: skip
def test_what_the_policy_does_not_name_is_refused(node: dict[str, Any], field: str) -> None:
    with pytest.raises(PlanRefused) as refused:
        emit(node)
    assert refused.value.fields["field"] == field


def test_a_policy_without_names_allows_none() -> None:
    for node in (PYTHON, PLANNER, {"type": "sql", "database": "shop", "query": "SELECT 1"}):
        with pytest.raises(PlanRefused):
            emit(node, handlers=[], models=[], databases=[])


def test_what_the_policy_names_may_be_emitted() -> None:
    emit(PYTHON)
    emit(narrower())
    emit(narrower(budget_usd="0.5", max_steps=20))
    emit({"type": "graph", "nodes": {"x": narrower()}})
    emit({"type": "llm", "model": "small", "prompt": "x"})
    emit({"type": "retrieval", "collection": "texts", "query": "x"})


PROGRAMS = [
    "{{ 6 * 7 }}",
    "{{ input.secret ~ input.other }}",
    "Sum up: {{ input.text }}",
    "{% for x in range(100000) %}{{ x }}{% endfor %}",
    "{{ input | tojson }}",
    "{{ input.__class__.__mro__ }} {{ 1 }}",
    "{{ ''.__class__ }}",
    "{{ nodes['a'].output }}",
    "{{ input['x'] }}",
    "{{ range(100000)|list }}",
    "{# hidden #}",
    "a{{{ 1 }}}b",
    "{{", "{%", "{#", "{{{{", "}}", "{", "{ {", "{%%}", "{{}}",
    "\r\n{{ 1 }}\r\n", "{{ 1 }}\n", "\n\n{{1}}\n\n", "{% raw %}{{ 1 }}{% endraw %}", "{{ '{' }}",
    "{{ 1 }}\\n'\"", "-{%- if 1 -%} x {%- endif -%}",
]  # fmt: skip


@pytest.mark.parametrize("text", PROGRAMS)
def test_text_that_a_model_emits_is_taken_as_it_is_written(text: str) -> None:
    scope = {"input": {"secret": "s", "other": "o", "text": "t", "x": 1}, "nodes": {}}
    assert compile_value(literal(text), "f")(scope) == text
    given = {"plain": text, "list": [text, {"deep": text}], "n": 1}
    assert compile_value(as_data(given), "f")(scope) == given


@pytest.mark.parametrize(
    "text", [*PROGRAMS, *"\\\"'\t\x85\u2028\U0001f600", r"\n", r"\"", '"', "\\"]
)
def test_a_literal_is_read_as_the_parser_reads_it(text: str) -> None:
    template = literal("{{" + text)
    assert text_of(template) == "{{" + text
    assert parse_expression(template[2:-2]).as_const() == "{{" + text


@pytest.mark.parametrize(
    "text",
    ['{{ "a" ~ "b" }}', "{{ 'a' }}", '{{ "a\nb" }}', r'{{ "\x41" }}', '{{ "a" }} ', '{{ "a\\" }}'],
)
def test_what_may_be_more_than_a_literal_is_parsed(text: str) -> None:
    assert text_of(text) is None


def test_a_path_is_known_without_parsing_as_it_would_be_by_parsing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paths = [
        "input",
        "nodes.a",
        "nodes.a.output.b",
        "input.x.y",
        "range",
        "loop.a",
        "a._b",
        "or_.x",
    ]
    plain = [expressions._read.__wrapped__("{{ " + path + " }}") for path in paths]
    monkeypatch.setattr(expressions, "_MAX_PLAIN_PATH", 0)
    assert plain == [expressions._read.__wrapped__("{{ " + path + " }}") for path in paths]


def test_what_a_model_emits_is_never_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(text: str) -> Any:
        raise AssertionError(f"`{text}` is parsed")

    monkeypatch.setattr(expressions, "parse_template", parse)
    monkeypatch.setattr(expressions, "parse_expression", parse)
    texts = [f"{{{{ {number} \n" for number in range(100)]
    read = [f"{{{{ input.never_read_{number} }}}}" for number in range(100)]
    _, by_path = emit({**PYTHON, "with": {"texts": texts, "read": read}})
    node = by_path["plan/a"]
    assert node.input is not None
    names = {f"never_read_{number}": number for number in range(100)}
    made = node.input({"input": names, "nodes": {}})
    assert made == {"texts": texts, "read": list(range(100))}


@pytest.mark.parametrize("text", PROGRAMS)
def test_a_node_s_own_texts_are_literal_too(text: str) -> None:
    prompts = {"type": "llm", "model": "small", "prompt": text, "system": text, "with": {"x": text}}
    _, by_path = emit(prompts)
    node = by_path["plan/a"]
    for field in ("prompt", "system"):
        assert compile_value(node.config[field], field)({"input": {"x": 1}}) == text
    assert node.input is not None
    assert node.input({"input": {}, "nodes": {}}) == {"x": text}
    _, by_path = emit({"type": "sql", "database": "shop", "query": text, "params": {"p": text}})
    assert by_path["plan/a"].config["query"] == text
    assert compile_value(by_path["plan/a"].config["params"], "p")({"input": {}}) == {"p": text}
    scope, _ = compile_emitted(
        {"nodes": {"a": PYTHON}, "output": {"o": text}}, PlanPolicy.model_validate(ALL), path="p"
    )
    assert scope.output is not None
    assert scope.output({"input": {}, "nodes": {}}) == {"o": text}


def test_every_template_that_a_worker_renders_is_known_here() -> None:
    """The linter of names knows them too: what it reads as a template must be literal when emitted."""
    text = inspect.getsource(names._worker_readings)
    for fields in TEMPLATES.values():
        for field in set(fields) - {"output"}:
            assert f'"{field}": node.{field}' in text
    assert text.count(": node.") == sum(len(f) for f in TEMPLATES.values()) - 1


def test_a_value_that_is_one_reference_stands_for_what_it_names() -> None:
    _, by_path = emit(PYTHON | {"with": {"x": " {{ input.a.b }} ", "y": "{{input}}"}})
    given = {"a": {"b": ["{{ 6 * 7 }}"]}}
    node = by_path["plan/a"]
    assert node.input is not None
    assert node.input({"input": given, "nodes": {}}) == {"x": ["{{ 6 * 7 }}"], "y": given}


@pytest.mark.parametrize(
    "fields",
    [
        {"when": "input.x > 3"},
        {"when": "{{ input.x | length }}"},
        {"map": {"over": "range(100000)"}},
        {"map": {"over": "[1, 2]"}},
        {"loop": {"until": "output.n + 1"}},
        {"loop": {"until": "lipsum()"}},
    ],
)
def test_a_condition_that_is_more_than_a_reference_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(PlanRefused, match="more than a reference"):
        emit(PYTHON | fields)


def test_a_race_s_tests_are_references() -> None:
    race = {"type": "race", "branches": {"x": PYTHON, "y": PYTHON}}
    emit(race | {"valid": "not output.failed"})
    emit(race | {"pick": "best", "score": "output.points"})
    for field in ("valid", "score"):
        with pytest.raises(PlanRefused, match="more than a reference"):
            emit(race | {"pick": "best", "score": "output.x", field: "output.x * 2"})


def test_conditions_may_be_paths() -> None:
    emit(PYTHON | {"when": "not input.x"})
    emit(PYTHON | {"map": {"over": "{{ input.xs }}"}, "loop": {"until": "output.done"}})


def test_a_text_of_nothing_but_marks_is_read_at_once() -> None:
    """A coordinator reads it while it does nothing else: 240,000 marks took it 40 s."""
    for mark in ("{%", "{{", "{#", "\r\n{{"):
        text = mark * 100_000
        assert count_tokens(literal(text), 100) <= 3
        assert compile_value(literal(text), "f")({}) == text


@pytest.mark.parametrize(
    "node",
    [
        PYTHON | {"retry": {"on": ["x" * 400_000]}},
        PYTHON | {"retry": {"on": [f"transien{n}" for n in range(40_000)]}},
        PYTHON | {"fallback": [{"on": ["x" * 400_000], "node": PYTHON}]},
        PYTHON | {"with": {f"k{n}": "{{ input.x }}" for n in range(20_000)}},
        {"type": "llm", "model": "small", "prompt": "x", "response_schema": {
            "patternProperties": {f"[a-z]{{1,900}}x{n}": True for n in range(1_000)}
        }},
    ],
)  # fmt: skip
def test_steps_that_take_long_to_read_are_refused(node: dict[str, Any]) -> None:
    with pytest.raises(PlanRefused, match=r"more than|characters"):
        emit(node)


def test_an_answer_to_an_emitted_approval_cannot_go_to_a_signal() -> None:
    nodes = {"look": {"type": "approval"}, "later": {"type": "signal", "signal": "look"}}
    with pytest.raises(PlanRefused) as refused:
        emit({"type": "graph", "nodes": nodes}, types=["graph", "approval", "signal"])
    assert refused.value.fields["field"] == "nodes.a.nodes.later.signal"
