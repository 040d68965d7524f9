"""A schema that takes unbounded time is refused when a pipeline is applied, or the value is."""

import json
from typing import Any

import pytest

from hocket.schemas.errors import InvalidInput
from hocket.schemas.json_schema.patterns import compile_pattern
from hocket.schemas.json_schema.schema import compile_schema
from hocket.schemas.messages import CallReply
from hocket.schemas.pipeline.plan import check_input, compile_pipeline
from hocket.workers.errors import ModelReplyInvalid
from hocket.workers.nodes.prompts.structured import data_of


def pipeline(schema: Any, **node: Any) -> dict[str, Any]:
    step = {"type": "python", "handler": "hocket.workers.builtin:echo", **node}
    return {"pipeline": "p", "input": {"type": "object", **schema}, "nodes": {"a": step}}


def refused(schema: Any) -> dict[str, Any]:
    with pytest.raises(InvalidInput) as error:
        compile_pipeline(pipeline(schema))
    return error.value.fields


def test_a_pattern_that_backtracks_elsewhere_takes_linear_time() -> None:
    plan = compile_pipeline(pipeline({"properties": {"s": {"pattern": "^(a+)+$"}}}))
    check_input(plan, {"s": "a" * 1_000})
    with pytest.raises(InvalidInput, match=r"`input\.s` is not valid"):
        check_input(plan, {"s": "a" * 1_000 + "!"})


@pytest.mark.parametrize("pattern", [r"(?=a)b", r"(a)\1", "a{1,5000}", "[", "a" * 2_000])
def test_a_pattern_that_needs_backtracking_is_refused_with_field_and_cure(pattern: str) -> None:
    fields = refused({"properties": {"s": {"pattern": pattern}}})
    assert fields["field"] == "input.properties.s.pattern"
    assert fields["cure"]


@pytest.mark.parametrize(
    "reference", ["#/$defs/missing", "#gone", "http://127.0.0.1/x", "file:///etc/passwd", "other"]
)
def test_a_reference_that_leads_nowhere_is_refused_when_applied(reference: str) -> None:
    fields = refused({"properties": {"s": {"$ref": reference}}})
    assert fields["field"] == "input.properties.s.$ref"
    assert reference in fields["reason"]


def test_a_schema_that_refers_to_itself_for_the_same_value_is_refused() -> None:
    assert "itself" in refused({"allOf": [{"$ref": "#"}]})["reason"]


def test_a_schema_that_refers_to_itself_for_what_is_inside_works() -> None:
    tree = {"type": "object", "properties": {"children": {"items": {"$ref": "#/$defs/tree"}}}}
    plan = compile_pipeline(pipeline({"$ref": "#/$defs/tree", "$defs": {"tree": tree}}))
    check_input(plan, {"children": [{"children": []}]})
    with pytest.raises(InvalidInput, match=r"input\.children\.0\.children\.0"):
        check_input(plan, {"children": [{"children": [1]}]})


def test_thirty_forks_in_a_row_end_with_an_error_of_the_task() -> None:
    forks: dict[str, Any] = {
        f"n{i}": {"anyOf": [{"$ref": f"#/$defs/n{i + 1}"}, {"$ref": f"#/$defs/n{i + 1}"}]}
        for i in range(30)
    }
    schema = {"$ref": "#/$defs/n0", "$defs": {**forks, "n30": {"type": "string"}}}
    plan = compile_pipeline(pipeline({"properties": {"s": schema["$defs"]}, **schema}))
    with pytest.raises(InvalidInput, match="more than 100,024 operations"):
        check_input(plan, {"s": 1})


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {f"p{i}": {} for i in range(6_000)}},
        {"$defs": {"a": json.loads('{"not":' * 60 + "{}" + "}" * 60)}},
    ],
)
def test_a_schema_too_large_or_too_deep_is_refused(schema: Any) -> None:
    assert refused(schema)["field"] == "input"


def test_a_response_schema_is_checked_when_a_pipeline_is_applied() -> None:
    with pytest.raises(InvalidInput) as error:
        compile_pipeline(
            {
                "pipeline": "p",
                "nodes": {
                    "a": {
                        "type": "llm",
                        "model": "m",
                        "prompt": "p",
                        "response_schema": {"properties": {"x": {"pattern": "(?=x)"}}},
                    }
                },
            }
        )
    assert error.value.fields["field"] == "nodes.a.response_schema.properties.x.pattern"


def test_a_models_answer_cannot_stop_its_worker() -> None:
    schema = {"properties": {"s": {"pattern": "^(a+)+$"}, "u": {"uniqueItems": True}}}
    reply = CallReply(call_id="c", model="m", text=json.dumps({"s": "a" * 5_000 + "!"}))
    with pytest.raises(ModelReplyInvalid, match="does not match"):
        data_of(reply, schema)
    big = json.dumps({"u": [{"a": [i]} for i in range(40_000)]})
    with pytest.raises(ModelReplyInvalid, match=r"operations|bytes"):
        data_of(CallReply(call_id="c", model="m", text=big), schema)


def test_a_pipeline_applied_earlier_is_loaded_and_fails_where_it_is_used() -> None:
    stored = pipeline({}, **{"with": {"a": "{{ input.x | pprint }}", "b": "{{ '\\ud800' }}"}})
    with pytest.raises(InvalidInput):
        compile_pipeline(stored)
    plan = compile_pipeline(stored, applied=True)
    evaluate = plan.root.nodes["a"].input
    assert evaluate is not None
    with pytest.raises(Exception, match=r"nodes\.a\.with"):
        evaluate({"input": {"x": 1}})


@pytest.mark.parametrize(
    ("value", "of", "allowed"),
    [
        (19.99, 0.01, True),
        (0.3, 0.1, True),
        (-1.1, 0.1, True),
        (1e-9, 1e-10, True),
        (19.995, 0.01, False),
        (1e300, 0.3, True),
        (1e308, 0.123456789, False),
        (7, 0.1, True),
        (10**300, 0.1, True),
        (1.5, 10**400, False),
        (4.0, 2, True),
    ],
)
def test_a_multiple_is_one_of_the_decimals_that_are_written(
    value: float, of: float, allowed: bool
) -> None:
    """Prices are multiples of 0.01, although no binary fraction is."""
    assert (compile_schema({"multipleOf": of}, "input").fault(value) is None) is allowed


@pytest.mark.parametrize(
    ("values", "allowed"),
    [
        ([1, 1.0], False),
        ([2**60, 2.0**60], False),
        ([2**60, 2**60 + 1], True),
        ([0, -0.0], False),
        ([[1], [True]], True),
        ([{"a": 1.0}, {"a": 1}], False),
        ([1, "1"], True),
        ([1, ["number", "1"]], True),
        (["number", "1"], True),
    ],
)
def test_numbers_are_equal_however_they_are_written(values: list[Any], allowed: bool) -> None:
    assert (compile_schema({"uniqueItems": True}, "input").fault(values) is None) is allowed


def test_many_prices_are_checked_as_decimals() -> None:
    schema = compile_schema({"items": {"multipleOf": 0.01}}, "input")
    schema.check([n / 100 for n in range(20_000)], "input", "")


def test_a_large_honest_value_may_take_more_than_a_small_one() -> None:
    """40,000 numbers are checked; a small value gets no such budget, whatever its schema asks."""
    schema = compile_schema({"items": {"type": "integer", "minimum": 0}}, "input")
    schema.check(list(range(40_000)), "input", "")


MANY_PATTERNS = {f"[a-z]{{1,900}}x{n}": True for n in range(1_000)}


def test_patterns_that_take_long_to_compile_are_refused() -> None:
    """2 ms each, on the event loop of the coordinator that checks the first task."""
    values = {f"k{n}": {"pattern": pattern} for n, pattern in enumerate(MANY_PATTERNS)}
    for schema in ({"patternProperties": MANY_PATTERNS}, {"properties": values}):
        fields = refused(schema)
        assert "instructions" in fields["reason"]
        assert fields["cure"]
    usual = {f"^[a-z0-9_-]{{1,64}}-{n}$": True for n in range(300)}
    compile_schema({"patternProperties": usual}, "input")


def test_all_answers_of_a_pipeline_together_have_a_bound_for_their_patterns() -> None:
    some = dict(list(MANY_PATTERNS.items())[:40])
    step = {"type": "llm", "model": "m", "prompt": "x"}
    nodes = {f"a{n}": step | {"response_schema": {"patternProperties": some}} for n in range(40)}
    compile_pipeline({"pipeline": "p", "nodes": dict(list(nodes.items())[:5])})
    with pytest.raises(InvalidInput, match="instructions"):
        compile_pipeline({"pipeline": "p", "nodes": nodes})


def test_unevaluated_properties_do_not_compile_patterns_with_each_value() -> None:
    patterns = {f"^k{n}$": True for n in range(1_000)}
    schema = compile_schema(
        {"patternProperties": patterns, "unevaluatedProperties": False}, "input"
    )
    compile_pattern.cache_clear()
    schema.check({"k1": 1}, "input", "")
    assert compile_pattern.cache_info().misses == 0


@pytest.mark.parametrize("part", [{"type": "foo"}, {"$ref": 5}, {"minLength": "a"}, {"items": 1}])
@pytest.mark.parametrize("named", ["#/x", "#here"])
def test_a_part_below_an_unknown_keyword_is_checked_when_something_refers_to_it(
    part: dict[str, Any], named: str
) -> None:
    fields = refused({"$ref": named, "x": part | {"$anchor": "here"}})
    assert fields["cure"]
