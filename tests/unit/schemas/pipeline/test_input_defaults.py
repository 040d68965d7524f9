"""The defaults of a pipeline's input schema stand in the run's input where a task leaves fields out."""

from typing import Any

import pytest

from hocket.schemas.errors import InvalidInput
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
        ({}, {"language": "en", "search": {"top": 5}}),
        ({"language": None}, {"language": None, "search": {"top": 5}}),
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
    assert begun.run.input.value == {"question": "x", "language": "en", "search": {"top": 5}}
    assert begun.take("a").input == {"asked": "en", "top": 5}


def test_defaults_of_one_run_are_not_those_of_another() -> None:
    plan = play({}).plan
    complete_input(plan, {})["search"]["top"] = 99
    assert complete_input(plan, {})["search"] == {"top": 5}


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
