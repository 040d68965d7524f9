"""A text that is one `{{ ... }}` gives the value itself, whatever is beside or between its braces."""

from typing import Any

import pytest

from hocket.schemas.errors import InvalidInput
from hocket.schemas.pipeline import expressions
from hocket.schemas.pipeline.expressions import (
    NOT_CONSTANT,
    compile_expression,
    compile_value,
    constant,
    readings,
)
from hocket.schemas.templates import parsing
from hocket.schemas.templates.parsing import alone_in

SCOPE = {"input": {"n": 5, "s": "hi", "xs": [1, 2], "k": "a"}, "nodes": {"1a": {"output": 7}}}

WHOLE: list[tuple[str, Any]] = [
    ("{{ input.n }}", 5),
    ("{{- input.n }}", 5),
    ("{{+ input.n }}", 5),
    ("{{ input.n -}}", 5),
    ("{{- input.n -}}", 5),
    ("{{-input.n-}}", 5),
    ("{{--input.n}}", -5),
    ("{{ -input.n }}", -5),
    ("{{+-input.n}}", -5),
    ("{{- -input.n }}", -5),
    ("{{- input.s }}", "hi"),
    ("{{- input.xs -}}", [1, 2]),
    (" \n{{- input.n -}}\n ", 5),
    ("{{ {'a': {'b': 1}} }}", {"a": {"b": 1}}),
    ("{{{'a': {'b': 1}}}}", {"a": {"b": 1}}),
    ("{{- {'a': {'b': input.n}} -}}", {"a": {"b": 5}}),
    ("\t{{ [{'a': {'b': 1}}] }}\n", [{"a": {"b": 1}}]),
    ("{{ {'a': {'b': 1}}['a'] }}", {"b": 1}),
    ("{{ {'a': {'b': 1} } }}", {"a": {"b": 1}}),
    ("{{ ['}}', '{{'] }}", ["}}", "{{"]),
    ("{{ ['{% x %}', '{# y #}'] }}", ["{% x %}", "{# y #}"]),
    ("{{ [\n  input.n,\n] }}", [5]),
]
TEXTS: list[tuple[str, str]] = [
    ("{{ input.n }}{{ input.n }}", "55"),
    ("{{ input.n }} {{- input.n }}", "55"),
    ("{{ input.n }}{{ {'a': {'b': 1}} }}", "5{'a': {'b': 1}}"),
    ("{{ {'a': {'b': 1}} }}.", "{'a': {'b': 1}}."),
    (".{{ {'a': {'b': 1}} }}", ".{'a': {'b': 1}}"),
    ("x {{- input.n }}", "x5"),
    ("{{ input.n -}} x", "5x"),
    ("{{ input.n }}{# a note #}", "5"),
    ("{% if input.n %}{{ input.n }}{% endif %}", "5"),
    ("{{ '{{' }}{{ '}}' }}", "{{}}"),
]


@pytest.mark.parametrize(("text", "expected"), WHOLE)
def test_a_whole_template_gives_the_value_itself(text: str, expected: Any) -> None:
    assert compile_value(text, "f")(SCOPE) == expected
    assert compile_value({"a": [text]}, "f")(SCOPE) == {"a": [expected]}
    assert compile_expression(text, "f")(SCOPE) == expected


@pytest.mark.parametrize(("text", "expected"), TEXTS)
def test_other_templates_are_rendered(text: str, expected: str) -> None:
    assert compile_value(text, "f")(SCOPE) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{'a': {'b': 1}}", {"a": {"b": 1}}),
        ("[{'a': {'b': 1}}]", [{"a": {"b": 1}}]),
        ("'{{' ~ '}}'", "{{}}"),
        ("{{'a': 'k'}['a']: {'c': {'d': 2}}}", {"k": {"c": {"d": 2}}}),
    ],
)
def test_an_expression_needs_no_braces_around_those_it_has(text: str, expected: Any) -> None:
    assert compile_expression(text, "f")(SCOPE) == expected


def test_what_a_whole_template_reads_is_the_path_itself() -> None:
    for text in ("{{ input.n }}", "{{- input.n }}", "{{ input.n -}}", "{{+input.n}}"):
        (reading,) = readings(text, "f")
        assert (reading.only, reading.names) == (("input", "n"), {"input"})
    (reading,) = readings("{{ [{'a': {'b': input.n}}] }}", "f")
    assert (reading.only, reading.paths) == (None, (("input", "n"),))


def test_what_an_expression_reads_within_braces_of_its_own_is_known() -> None:
    (reading,) = readings("{'a': nodes.a.output} == {'a': {'b': input.n}}", "f", expression=True)
    assert (reading.names, reading.nodes) == ({"input", "nodes"}, {"a"})


def test_a_constant_may_have_braces() -> None:
    assert constant("{{ [{'a': {'b': 1}}] }}") == [{"a": {"b": 1}}]
    assert constant("{{- 5 }}") == 5
    assert constant("{{- input.n }}") is NOT_CONSTANT


@pytest.mark.parametrize(
    "text", ["{{ input.n +}}", "{{ {'a': {'b': 1} }}", "{{ }}", "{{-}}", "{{ }} }}"]
)
def test_what_does_not_parse_is_refused(text: str) -> None:
    for compiled in (compile_value, compile_expression):
        with pytest.raises(InvalidInput, match="does not parse"):
            compiled(text, "f")


def test_only_the_tokens_of_the_first_braces_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    tokens = parsing._ENVIRONMENT.lexer.tokeniter

    def counted(*args: Any) -> Any:
        for token in tokens(*args):
            read.append(token[2])
            yield token

    monkeypatch.setattr(parsing._ENVIRONMENT.lexer, "tokeniter", counted)
    assert alone_in("{{ a }}" + "{{ b }}" * 10_000) is None
    assert len(read) < 10
    assert expressions._inside("{{ a }}") == " a "
    assert len(read) < 10


@pytest.mark.parametrize(
    ("text", "cure"),
    [
        ("{{ nodes.1a.output }}", "Write a name that starts with a digit as `nodes['1a']`."),
        ("{{ nodes.1a }}", "Write a name that starts with a digit as `nodes['1a']`."),
        ("a {{ nodes.1-b.output.x }}", "Write a name that starts with a digit as `nodes['1-b']`."),
        ("{{ nodes.1.output }}", "Write a name that starts with a digit as `nodes['1']`."),
        ("{{ nodes.look-.output }}", "Write a name with `-` as `nodes['look-']`."),
        ("{{ nodes.a-1b.output }}", "Write a name with `-` as `nodes['a-1b']`."),
        ("{{ nodes.a.output. }}", "Write Jinja2: `{{ nodes.NAME.output.FIELD }}`."),
        ("{{ nodes.a-nodes.b.output | }}", "Write Jinja2: `{{ nodes.NAME.output.FIELD }}`."),
    ],
)
def test_a_name_that_is_none_in_jinja_is_refused_with_the_way_to_write_it(
    text: str, cure: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        list(readings(text, "f"))
    assert refused.value.fields["cure"] == cure
    assert compile_value("{{ nodes['1a'].output }}", "f")(SCOPE) == 7
