"""Values take the form in which Postgres gives them back when they become part of a run."""

import json

import pytest
from pydantic_core import to_json

from hocket.coordinator.core.run.state.stored_form import row_text, stored_form
from support.run_player import Play, python


@pytest.mark.parametrize(
    ("value", "form"),
    [
        ({"standard": 1, "gold": 2, "vip": 3}, {"vip": 3, "gold": 2, "standard": 1}),
        ({"b": 1, "a": 2, "Z": 3, "": 4}, {"": 4, "Z": 3, "a": 2, "b": 1}),
        ({"abc": 1, "é": 2, "z": 3, "€": 4}, {"z": 3, "é": 2, "abc": 1, "€": 4}),
        ([{"bb": [{"d": 1, "c": -0.0}], "a": None}], [{"a": None, "bb": [{"c": 0.0, "d": 1}]}]),
        ([True, False, "é", 7], [True, False, "é", 7]),
        ([[], {}, None, 0, -0.0, "", [[-0.0]]], [[], {}, None, 0, 0.0, "", [[0.0]]]),
        ({"zz": "\0", "\0": ["a\0"]}, {"zz": "\ufffd", "\ufffd": ["a\ufffd"]}),
    ],
)
def test_keys_are_sorted_and_numbers_written_as_postgres_does(value: object, form: object) -> None:
    assert repr(stored_form(value)) == repr(form)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e16, "10000000000000000.0"),
        (
            [-1.5e16, 1e15, 1e-7, 10**16],
            "[-15000000000000000.0,1000000000000000.0,1e-7,10000000000000000]",
        ),
        (
            {"1e+16": "2e+20 \\ 3e+20", "a": 6.02e23},
            '{"1e+16":"2e+20 \\\\ 3e+20","a":602000000000000000000000.0}',
        ),
    ],
)
def test_a_large_double_is_written_out_and_stays_a_double(value: object, text: str) -> None:
    assert row_text(to_json(value).decode()) == text
    assert repr(json.loads(text)) == repr(value)


def test_a_value_that_has_the_form_is_returned_itself_and_no_other_is_changed() -> None:
    value = {"a": [1, {"b": 2.5, "cc": "x"}], "bb": {}}
    assert stored_form(value) is value
    other = {"bb": [1e16], "a": value}
    formed = stored_form(other)
    assert (list(other), other["bb"], formed["a"]) == (["bb", "a"], [1e16], value)
    assert formed["a"] is value


def test_a_deep_value_is_left_to_those_who_measure_it() -> None:
    value: object = {"b": 1, "a": 2}
    for _ in range(5_000):
        value = [value]
    stored_form(value)


def test_expressions_see_the_same_order_before_a_run_is_parked_and_after() -> None:
    nodes = {
        "a": python(),
        "b": python(needs=["a"], **{"with": {"x": "{{ input.prices | first }}"}}),
        "c": python(
            needs=["a"], **{"with": {"y": 1, "x": "{{ nodes.a.output }}", "of": {"q": 1, "p": 2}}}
        ),
    }
    play = Play(nodes, input={"prices": {"standard": 1, "gold": 2, "vip": 3}})
    play.finish("a", {"second": 1, "one": 2})
    assert play.run.steps["b"].input.value == {"x": "vip"}
    given = '{"x":{"one":2,"second":1},"y":1,"of":{"p":2,"q":1}}'
    assert play.run.steps["c"].input.text == given
