"""Expressions give what Jinja2's sandbox gives, on a table of honest ones and on generated ones."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.schemas.errors import HocketError
from hocket.schemas.pipeline.expressions import compile_expression, compile_value
from support.templates import reference
from support.templates.legitimate import EXPRESSIONS, SCOPE, TEMPLATES


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_an_expression_gives_what_jinja_gives(text: str) -> None:
    given = compile_expression(text, "field")(SCOPE)
    expected = reference.expression(text, SCOPE)
    assert (given, _types(given)) == (expected, _types(expected))


@pytest.mark.parametrize("text", TEMPLATES)
def test_a_template_gives_what_jinja_gives(text: str) -> None:
    assert compile_value(text, "field")(SCOPE) == reference.template(text, SCOPE)


def test_the_tables_are_broad() -> None:
    assert len(set(EXPRESSIONS)) >= 250
    assert len(set(TEMPLATES)) >= 50


NAMES = ["a", "b", "xs", "d", "t"]
values = st.fixed_dictionaries(
    {
        "a": st.integers(-50, 50),
        "b": st.floats(-50, 50).map(lambda x: round(x, 3)),
        "xs": st.lists(st.integers(-9, 9), max_size=5),
        "d": st.dictionaries(st.sampled_from(["k", "m"]), st.integers(0, 9), min_size=1),
        "t": st.text("aB é<&\n", max_size=12),
    }
)


def _deeper(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operators = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", ">=", "and", "or", "in"]
    filters = [
        "abs",
        "length",
        "string",
        "list",
        "first",
        "last",
        "sort",
        "unique | list",
        "sum",
        "min",
        "max",
        "join(',')",
        "upper",
        "title",
        "trim",
        "int",
        "float",
        "round(1)",
        "tojson",
        "e",
        "default(3)",
        "replace('a', 'bb')",
        "batch(2) | list",
        "map('string') | list",
        "select('odd') | list",
        "reverse | list",
        "center(9)",
        "indent",
        "wordcount",
        "truncate(5, true, '.', 0)",
    ]
    tests = [
        "odd",
        "even",
        "defined",
        "none",
        "string",
        "number",
        "mapping",
        "sequence",
        "iterable",
    ]
    return st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from(operators), inner),
        st.builds("({} | {})".format, inner, st.sampled_from(filters)),
        st.builds("({} is {})".format, inner, st.sampled_from(tests)),
        st.builds("({} if {} else {})".format, inner, inner, inner),
        st.builds("[{}, {}]".format, inner, inner),
        st.builds("{{'k': {}}}".format, inner),
        st.builds("(not {})".format, inner),
        st.builds("(-{})".format, inner),
        st.builds("{}[{}]".format, inner, st.integers(-2, 3)),
        st.builds("{}[{}:{}]".format, inner, st.integers(-2, 2), st.integers(-2, 3)),
        st.builds("{}.k".format, inner),
    )


expressions = st.recursive(
    st.sampled_from([*NAMES, "1", "2.5", "'x'", "none", "true", "missing"]), _deeper, max_leaves=8
)


@settings(max_examples=400, deadline=None)
@given(expressions, values)
def test_what_is_generated_gives_what_jinja_gives(text: str, scope: dict[str, Any]) -> None:
    try:
        expected = reference.expression(text, scope)
        json.dumps(expected, allow_nan=False)
    except Exception:
        return  # what Jinja refuses, ours may refuse or allow: `map` and `select` give lists, e.g.
    try:
        found = compile_expression(text, "field")(scope)
    except HocketError as error:
        raise AssertionError(f"{text} gives {expected!r} in Jinja2 and {error}") from None
    assert (found, _types(found)) == (expected, _types(expected))


def _types(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _types(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_types(part) for part in value]
    if isinstance(value, str):
        return str
    return type(value)
