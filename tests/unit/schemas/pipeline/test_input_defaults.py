"""The defaults of a pipeline's input schema stand in the run's input where a task leaves fields out."""

from typing import Any

import pytest

from hocket.schemas.errors import InvalidInput
from hocket.schemas.pipeline.input_defaults import with_defaults
from hocket.schemas.pipeline.plan import check_input, complete_input
from support.run_player import Play, python

SCHEMA = {
    "type": "object",
    "required": ["language", "search"],
    "properties": {
        "question": {"type": "string"},
        "language": {"type": "string", "default": "en"},
        "search": {
            "type": "object",
            "default": {"top": 5},
            "properties": {
                "top": {"type": "integer", "maximum": 50, "default": 10},
                "kinds": {"type": "array", "items": {"type": "string"}, "default": ["text"]},
            },
        },
    },
}


def play(given: dict[str, Any]) -> Play:
    node = python(**{"with": {"asked": "{{ input.language }}", "top": "{{ input.search.top }}"}})
    return Play({"a": node}, spec={"input": SCHEMA}, input=given)


@pytest.mark.parametrize(
    ("given", "completed"),
    [
        ({}, {"language": "en", "search": {"top": 5, "kinds": ["text"]}}),
        ({"language": None}, {"language": None, "search": {"top": 5, "kinds": ["text"]}}),
        ({"search": {}}, {"language": "en", "search": {"top": 10, "kinds": ["text"]}}),
        (
            {"search": {"top": 3, "kinds": []}, "language": "de", "more": 1},
            {"search": {"top": 3, "kinds": []}, "language": "de", "more": 1},
        ),
        ({"search": [1]}, {"search": [1], "language": "en"}),
    ],
)
def test_what_a_task_leaves_out_has_its_default(
    given: dict[str, Any], completed: dict[str, Any]
) -> None:
    before = repr(given)
    assert complete_input(play({}).plan, given) == completed
    assert repr(given) == before


def test_the_run_and_its_steps_have_the_defaults() -> None:
    begun = play({"question": "x"})
    search = {"top": 5, "kinds": ["text"]}
    assert begun.run.input.value == {"question": "x", "language": "en", "search": search}
    assert begun.take("a").input == {"asked": "en", "top": 5}


def test_defaults_of_one_run_are_not_those_of_another() -> None:
    plan = play({}).plan
    changed = complete_input(plan, {})["search"]
    changed["top"] = 99
    changed["kinds"].append("image")
    assert complete_input(plan, {})["search"] == {"top": 5, "kinds": ["text"]}
    assert plan.pipeline.input == SCHEMA


OPTIONS = {"type": "object", "default": {}, "properties": {"lang": {"default": "en"}}}


@pytest.mark.parametrize("given", [{}, {"options": {}}, {"more": {"options": {}}}])
def test_an_input_with_its_defaults_gets_no_others_when_it_is_given_again(
    given: dict[str, Any],
) -> None:
    """A retry is given the input of its run, a sub-run's schema may be that of its caller."""
    options = {"options": OPTIONS}
    schema = {"properties": options | {"more": {"default": {"n": 1}, "properties": options}}}
    plan = Play({"a": python()}, spec={"input": schema}).plan
    completed = complete_input(plan, given)
    assert completed["options"] == completed["more"]["options"] == {"lang": "en"}
    assert complete_input(plan, completed) is completed


def test_defaults_inside_a_default_are_checked_together_with_it() -> None:
    broken = OPTIONS | {"properties": {"lang": {"type": "string", "default": 7}}}
    with pytest.raises(InvalidInput, match=r"input\.default\.options\.lang"):
        Play({"a": python()}, spec={"input": {"properties": {"options": broken}}})


def test_defaults_are_filled_in_down_to_a_depth() -> None:
    schema: dict[str, Any] = {"default": 1}
    for _ in range(40):
        schema = {"default": {}, "properties": {"n": schema}}
    filled = with_defaults(schema, {})
    assert with_defaults(schema, filled) is filled
    depth = 0
    while filled:
        filled, depth = filled["n"], depth + 1
    assert depth == 33


def test_a_required_field_with_a_default_need_not_be_sent_and_is_checked_if_it_is() -> None:
    plan = play({}).plan
    check_input(plan, {"question": "x"})
    with pytest.raises(InvalidInput, match=r"input\.search\.top"):
        check_input(plan, {"search": {"top": 51}})


def test_a_default_that_its_schema_refuses_is_named_when_the_pipeline_is_applied() -> None:
    broken = {"properties": {"n": {"type": "integer", "default": "many"}}}
    with pytest.raises(InvalidInput, match=r"input\.default\.n"):
        Play({"a": python()}, spec={"input": broken})


def test_references_are_no_way_to_more_than_the_schema_holds() -> None:
    node = {"properties": {"next": {"$ref": "#/$defs/node"}, "pad": {"default": "x" * 1_000}}}
    schema = {"$defs": {"node": node}, "properties": {"root": {"$ref": "#/$defs/node"}}}
    deep: dict[str, Any] = {}
    for _ in range(40):
        deep = {"next": deep}
    plan = Play({"a": python()}, spec={"input": schema}).plan
    given = {"root": deep}
    assert complete_input(plan, given) is given
