"""What the emulator reads from OpenAI bodies, and what it says."""

import json
import math
import time
from typing import Any

import jsonschema
import pytest

from hocket.emulator.core import requests
from hocket.emulator.core.answers import Answer
from hocket.emulator.core.faults import MAX_SCRIPT, Fault, FaultRates, Faults
from hocket.emulator.core.profile import EngineProfile
from hocket.emulator.core.replies import json_of, vector
from hocket.schemas.errors import InvalidInput

PROFILE = EngineProfile.model_validate({"model": "m", "block_tokens": 4, "output_tokens": 8})
TOOL = {
    "type": "function",
    "function": {
        "name": "tide",
        "parameters": {
            "type": "object",
            "properties": {"port": {"type": "string", "enum": ["Brest"]}},
            "required": ["port"],
        },
    },
}


def body(content: str = "x" * 64, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": content}], **fields}


def test_a_reply_has_the_tokens_it_is_counted_with() -> None:
    made = requests.chat(body(), PROFILE)
    assert (made.output_tokens, made.finish_reason, len(made.text)) == (8, "stop", 32)


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_a_limit_cuts_the_reply(name: str) -> None:
    made = requests.chat(body(**{name: 3}), PROFILE)
    assert (made.output_tokens, made.finish_reason, len(made.text)) == (3, "length", 12)


def test_the_same_beginning_gives_the_same_blocks() -> None:
    one = requests.chat(body("a" * 40 + "b" * 24), PROFILE).chain
    two = requests.chat(body("a" * 40 + "c" * 24), PROFILE).chain
    shared = [left == right for left, right in zip(one, two, strict=True)]
    # `<user>` and 40 letters are 46 characters: two blocks of 16 are equal, then none
    assert shared == [True, True, False, False]


def test_a_block_is_not_the_same_behind_another_beginning() -> None:
    one = requests.chat(body("a" * 10 + "z" * 64), PROFILE).chain
    two = requests.chat(body("b" * 10 + "z" * 64), PROFILE).chain
    assert not set(one) & set(two)


def test_token_ids_are_counted_one_by_one() -> None:
    made = requests.completion({"model": "m", "prompt": [5, 6, 7, 8, 9]}, PROFILE)
    assert (made.prompt_tokens, len(made.chain)) == (5, 1)


def test_a_trace_gives_sizes_and_blocks() -> None:
    given = {"prompt_tokens": 6_758, "hash_ids": [46, 47], "output_tokens": 500}
    made = requests.chat(body(emulator=given), PROFILE)
    assert (made.prompt_tokens, made.chain, made.output_tokens) == (6_758, ("46", "47"), 500)


def test_a_tool_is_called_with_arguments_that_fit() -> None:
    made = requests.chat(body(tools=[TOOL]), PROFILE)
    assert (made.tool, made.finish_reason) == ("tide", "tool_calls")
    assert json.loads(made.text) == {"port": "Brest"}


def test_after_a_tool_has_answered_text_follows() -> None:
    request = body(tools=[TOOL])
    request["messages"] += [{"role": "tool", "tool_call_id": "c", "content": "5.1 m"}]
    assert requests.chat(request, PROFILE).tool is None


def test_tools_are_called_in_turn_before_the_answer_where_the_engine_is_told_so() -> None:
    wind = {"type": "function", "function": {"name": "wind", "parameters": {"type": "object"}}}
    engine = PROFILE.model_copy(update={"tool_turns": 3})
    request = body(tools=[TOOL, wind])
    called = []
    while (made := requests.chat(request, engine)).tool is not None:
        called.append(made.tool)
        call = {"id": "c", "type": "function", "function": {"name": made.tool, "arguments": "{}"}}
        request["messages"] += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "5.1 m"},
        ]
    assert called == ["tide", "wind", "tide"]
    request["messages"] += [{"role": "user", "content": "And tomorrow?"}]
    assert requests.chat(request, engine).tool == "tide"
    quiet = PROFILE.model_copy(update={"tool_turns": 0})
    assert requests.chat(body(tools=[TOOL]), quiet).tool is None


def test_an_echo_says_what_the_user_said() -> None:
    echoing = PROFILE.model_copy(update={"reply": "echo"})
    assert requests.chat(body("How high is it?"), echoing).text == "How high is it?"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
        {"type": "array", "items": {"type": "string", "minLength": 5}, "minItems": 3},
        {"type": "number", "minimum": 2.5},
        {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
        {"$defs": {"x": {"const": 4}}, "$ref": "#/$defs/x"},
        {"type": ["string", "null"]},
        {"type": "number", "exclusiveMinimum": 0},
        {"type": "integer", "exclusiveMinimum": 0},
        {"type": "integer", "minimum": 0.5},
        {"type": "integer", "maximum": -1},
        {"type": "integer", "minimum": 7, "multipleOf": 5},
        {"type": "integer", "exclusiveMaximum": -1.5},
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        {"type": "number", "minimum": 0.3, "multipleOf": 0.25},
        {"type": "string", "maxLength": 2},
        {"type": "string", "minLength": 4, "maxLength": 4},
        {
            "allOf": [
                {"properties": {"a": {"type": "number", "minimum": 1.5}}, "required": ["a"]},
                {"properties": {"a": {"type": "integer"}, "b": {"type": "string"}}},
                {"$ref": "#/$defs/more"},
            ],
            "type": "object",
            "required": ["b"],
            "$defs": {"more": {"properties": {"c": {"enum": ["x"]}}, "required": ["c"]}},
        },
        {"type": "object", "anyOf": [{"required": ["a"]}], "properties": {"a": {"const": 3}}},
    ],
)
def test_json_fits_the_schema_it_was_asked_for(schema: dict[str, Any]) -> None:
    jsonschema.validate(json.loads(json_of(schema)), schema)


def test_a_schema_that_contains_itself_ends() -> None:
    schema = {"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#"}}}
    assert json_of(schema).count("a") < 20


NAMES = [str(number) for number in range(10_000)]
ITSELF = {"$ref": "#"}


@pytest.mark.parametrize(
    "schema",
    [
        *({"type": kind, "minimum": 2.0**1023 * 1.9} for kind in ("integer", "number")),
        {"type": "integer", "minimum": math.inf},
        {"type": "integer", "minimum": math.nan, "maximum": "7", "exclusiveMinimum": True},
        {"type": "integer", "minimum": 10**4_299, "exclusiveMinimum": 10**4_299},
        {"type": "number", "minimum": 1e300, "multipleOf": 5e-324},
        {"type": "number", "multipleOf": 0, "maximum": -1},
        {"type": "string", "minLength": 10**400, "maxLength": -3},
        {"type": "array", "minItems": 1e308, "items": 7},
        {"type": [[], {}]},
        {"type": {}, "allOf": {}, "anyOf": 3, "enum": []},
        {"type": "object", "required": [1, {}, "a"], "properties": 3},
        {"type": "array", "minItems": 100, "items": ITSELF},
        {"allOf": [ITSELF] * 100},
        {"type": "object", "required": NAMES, "properties": dict.fromkeys(NAMES, ITSELF)},
        {
            "allOf": [{"$ref": "#/$defs/all"}] * 5_000,
            "$defs": {
                "all": {
                    "type": "object",
                    "required": NAMES,
                    "properties": dict.fromkeys(NAMES, ITSELF),
                }
            },
        },
    ],
)
def test_a_hostile_schema_gets_some_json_soon(schema: dict[str, Any]) -> None:
    began = time.process_time()
    json.loads(json_of(schema))
    assert time.process_time() - began < 2


@pytest.mark.parametrize("text", ["", "one", "one two three"])
def test_a_vector_has_length_one(text: str) -> None:
    assert math.hypot(*vector(text, 16)) == pytest.approx(1)


def test_texts_that_share_words_are_nearer() -> None:
    def nearness(one: str, two: str) -> float:
        return sum(a * b for a, b in zip(vector(one, 256), vector(two, 256), strict=True))

    assert nearness("high tide brest", "tide at brest") > nearness("high tide brest", "wolf snow")


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"messages": []}, "messages"),
        ({"messages": ["hi"]}, r"messages\[0\]"),
        ({"messages": [{"role": "user", "content": 5}]}, r"messages\[0\].content"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"n": 0}, "`n`"),
        ({"n": 129}, "`n`"),
        ({"n": 2, "stream": True}, "`n`"),
        ({"tools": "tide"}, "tools"),
        ({"tools": [TOOL], "tool_choice": {"function": {"name": "wind"}}}, "tool_choice"),
        ({"emulator": {"prompt_tokens": -1}}, "emulator.prompt_tokens"),
        ({"emulator": {"prompt_tokens": 200_000}}, "context"),
        ({"emulator": {"output_tokens": 10**15}}, "context"),
    ],
)
def test_a_bad_request_names_its_field(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(requests.RequestInvalid, match=named):
        requests.chat({**body(), **fields}, PROFILE)


def test_another_model_is_not_served() -> None:
    with pytest.raises(requests.ModelNotServed):
        requests.chat({**body(), "model": "other"}, PROFILE)


def test_rates_are_met_and_repeated_by_their_seed() -> None:
    rates = FaultRates.model_validate({"error_rate": 0.2, "rate_limit_rate": 0.1})
    one, two = Faults(rates, seed=7), Faults(rates, seed=7)
    dealt = [one.deal() for _ in range(10_000)]
    assert dealt == [two.deal() for _ in range(10_000)]
    assert (
        0.18 < sum(fault.status == 500 and fault.kind == "status" for fault in dealt) / 1e4 < 0.22
    )
    assert 0.09 < sum(fault.status == 429 for fault in dealt) / 1e4 < 0.11


def test_a_script_comes_before_the_dice() -> None:
    faults = Faults(FaultRates.model_validate({"error_rate": 1}), seed=0)
    faults.add([Fault(kind="none", count=2), Fault(kind="hang")])
    assert [faults.deal().kind for _ in range(4)] == ["none", "none", "hang", "status"]


def test_a_script_has_a_bound() -> None:
    faults = Faults(FaultRates(), seed=0)
    with pytest.raises(InvalidInput, match="script"):
        faults.add([Fault(count=MAX_SCRIPT), Fault()])


def test_several_choices_are_made_and_counted() -> None:
    made = requests.chat(body(max_tokens=7, n=3), PROFILE)
    answer = Answer("one", "m", 0, chat=True).whole(made, 0)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert answer["usage"]["completion_tokens"] == made.made_tokens == 21
