"""A reference to a large value is passed on whole; whatever would read it fails and names the value."""

import json
import re
from typing import Any

import pytest

from hocket.schemas.pipeline.expressions import (
    ExpressionFailed,
    ExpressionStopped,
    compile_expression,
    compile_head,
    compile_value,
)
from hocket.schemas.templates.budget import Account, Names
from hocket.workers.nodes.prompts.templates import render

REFERENCE = {"$blob": "ab" * 32, "size": 2_100_000, "type": "text"}
OUTPUT: dict[str, Any] = {
    "x": REFERENCE,
    "docs": [{"id": 1, "body": "short"}, {"id": 2, "body": REFERENCE}],
    "all": [REFERENCE],
    "deep": [["short"], [REFERENCE]],
    "map": {"k": REFERENCE},
    "pairs": [REFERENCE, ["a", 1]],
    "text": "abc",
}
OUTPUT = json.loads(json.dumps(OUTPUT))  # each reference is an object of its own, as in messages
SCOPE: dict[str, Any] = {"nodes": {"a": {"output": OUTPUT, "error": None, "state": "succeeded"}}}


def full(text: str) -> str:
    """Return a template in which `o` is written out."""
    return re.sub(r"\bo\b", "nodes.a.output", text)


def reason(text: str, *, scope: dict[str, Any] | None = None) -> str:
    with pytest.raises(ExpressionStopped) as stopped:
        compile_value(text, "nodes.b.with.x")(SCOPE if scope is None else scope)
    assert stopped.value.code == "expression_failed"
    return str(stopped.value.fields["reason"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ o.x }}", REFERENCE),
        ("{{ (o).x }}", REFERENCE),
        ("{{ [o.x, 1] }}", [REFERENCE, 1]),
        ("{{ {'a': {'b': o.x}} }}", {"a": {"b": REFERENCE}}),
        ("{{ dict(a=o.x) }}", {"a": REFERENCE}),
        ("{{ o }}", OUTPUT),
        ("{{ o.x if o.x else 1 }}", REFERENCE),
        ("{{ o.x or 1 }}", REFERENCE),
        ("{{ o.x and 1 }}", 1),
        ("{{ not o.x }}", False),
        ("{{ o.x | default('none') }}", REFERENCE),
        ("{{ o.y | default(o.x) }}", REFERENCE),
        ("{{ o.x | d('none', true) }}", REFERENCE),
        ("{{ o.x is defined }}", True),
        ("{{ o.x is undefined }}", False),
        ("{{ o.x is none }}", False),
        ("{{ o.x is not none }}", True),
        ("{{ o.all | length }}", 1),
        ("{{ o.all | first }}", REFERENCE),
        ("{{ o.all[0] }}", REFERENCE),
        ("{{ o.map.get('k') }}", REFERENCE),
        ("{{ o.all | map('default', 1) | list }}", [REFERENCE]),
        ("{{ o.all | select('defined') | list }}", [REFERENCE]),
        ("{{ o.all | select | list }}", [REFERENCE]),
        ("{{ o.docs | map(attribute='body') | list }}", ["short", REFERENCE]),
        ("{{ (o.docs | selectattr('id', 'eq', 2) | first).body }}", REFERENCE),
        ("{{ (o.docs | sort(attribute='id', reverse=true))[0].body }}", REFERENCE),
        ("{% for one in o.docs %}{{ one.id }}{% endfor %}", "12"),
        ("{% if o.x %}yes{% endif %}", "yes"),
        ("{% macro m(v) %}{{ v is defined }}{% endmacro %}{{ m(o.x) }}", "True"),
        ("{% set y = o.x %}{{ y is none }}", "False"),
        ("{{ 'k' in o.map }}", True),
        ("{{ 1 in [o.all, 2] }}", False),
        ("{{ [1] in o.pairs[1:] }}", False),
        ("{{ o.map == {'a': 1, 'b': 2} }}", False),
    ],
)
def test_a_reference_is_passed_on_like_any_value(text: str, expected: Any) -> None:
    assert compile_value(full(text), "f")(SCOPE) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Summarize: {{ o.x }}",
        "{{ o.x | length }}",
        "{{ o.x | upper }}",
        "{{ o.x | tojson }}",
        "{{ o.x | list }}",
        "{{ o.x | first }}",
        "{{ o.x | int }}",
        "{{ o.x | items | list }}",
        "{{ o.x | urlencode }}",
        "{{ o.x | xmlattr }}",
        "{{ o.x | dictsort }}",
        "{{ o.x | join }}",
        "{{ o.x | sum(start=1) }}",
        "{{ o.text | replace('a', o.x) }}",
        "{{ o.text | join(o.x) }}",
        "{{ o.x is string }}",
        "{{ o.x is mapping }}",
        "{{ o.x is sameas(1) }}",
        "{{ 1 is in(o.x) }}",
        "{{ 'abc' in o.x }}",
        "{{ 'abc' not in o.x }}",
        "{{ o.x in 'abc' }}",
        "{{ o.x in o.map }}",
        "{{ o.x == 'abc' }}",
        "{{ 'abc' == o.x }}",
        "{{ o.x != 'abc' }}",
        "{{ o.x == {} }}",
        "{{ o.x < 1 }}",
        "{{ 1 < 2 < o.x }}",
        "{{ o.x[0] }}",
        "{{ o.x[:3] }}",
        "{{ o.x['size'] }}",
        "{{ o.x.size }}",
        "{{ (o.x).size }}",
        "{{ o.x.type | upper }}",
        "{{ o.x.title }}",
        "{{ o.x.title | default('none') }}",
        "{{ o.text[o.x] | default(1) }}",
        "{{ o.text[o.x:] | default(1) }}",
        "{{ o.map[o.x] }}",
        "{{ o.x + 1 }}",
        "{{ 1 + o.x }}",
        "{{ o.x * 2 }}",
        "{{ -o.x }}",
        "{{ +o.x }}",
        "{{ '%(size)s' % o.x }}",
        "{{ '%s' % o.x }}",
        "{{ o.x ~ 'a' }}",
        "{{ o.x.upper() }}",
        "{{ o.x.get('size') }}",
        "{{ o.x.items() | list }}",
        "{{ ','.join(o.x) }}",
        "{{ '{}'.format(o.x) }}",
        "{{ '{a.size}'.format(a=o.x) }}",
        "{{ '{size}'.format_map(o.x) }}",
        "{{ o.text.startswith(o.x) }}",
        "{{ dict(o.x) }}",
        "{{ dict(**o.x) }}",
        "{% for c in o.x %}{{ c }}{% endfor %}",
        "{% set a, b, c = o.x %}{{ a }}",
        "{% if o.x > 1 %}{% endif %}",
        "{% filter replace('a', o.x) %}a{% endfilter %}",
    ],
)
def test_what_would_read_a_reference_fails_and_names_the_value(text: str) -> None:
    said = reason(full(text))
    assert said == "`nodes.a.output.x` is a large value, which only workers can read"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("{{ o | tojson }}", "nodes.a.output.x"),
        ("All: {{ o }}", "nodes.a.output.x"),
        ("{{ o ~ '' }}", "nodes.a.output.x"),
        ("{{ o.all | string }}", "nodes.a.output.all[0]"),
        ("{{ o.all == [1] }}", "nodes.a.output.all[0]"),
        ("{{ 'a' in o.all }}", "nodes.a.output.all[0]"),
        ("{{ ['a'] in o.deep }}", "nodes.a.output.deep[1][0]"),
        ("{{ {'k': 1} in [o.map] }}", "nodes.a.output.map.k"),
        ("{{ o.all.index('a') }}", "nodes.a.output.all[0]"),
        ("{{ o.all | map('upper') | list }}", "nodes.a.output.all[0]"),
        ("{{ o.all | map('length') | list }}", "nodes.a.output.all[0]"),
        ("{{ o.all | map(attribute='size') | list }}", "nodes.a.output.all[0]"),
        ("{{ o.all | map(attribute='size.a', default=1) | list }}", "nodes.a.output.all[0]"),
        ("{{ o.all | select('string') | list }}", "nodes.a.output.all[0]"),
        ("{{ o.docs | selectattr('body', 'eq', 'b') | list }}", "nodes.a.output.docs[1].body"),
        ("{{ o.docs[1:] | rejectattr('body.size') | list }}", "nodes.a.output.docs[1].body"),
        ("{{ o.docs | map(attribute='body') | join }}", "nodes.a.output.docs[1].body"),
        ("{{ o.docs | sort(attribute='body') }}", "nodes.a.output.docs[1].body"),
        ("{{ o.docs | groupby('body') }}", "nodes.a.output.docs[1].body"),
        ("{{ o.docs | max(attribute='body') }}", "nodes.a.output.docs[1].body"),
        ("{{ o.docs | unique(attribute='body') | list }}", "nodes.a.output.docs[1].body"),
        ("{{ o.docs[1:] | sum(attribute='body') }}", "nodes.a.output.docs[1].body"),
        ("{{ o.map | dictsort(by='value') }}", "nodes.a.output.map.k"),
        ("{{ o.map | xmlattr }}", "nodes.a.output.map.k"),
        ("{{ o.map | urlencode }}", "nodes.a.output.map.k"),
        ("{{ o.pairs | urlencode }}", "nodes.a.output.pairs[0]"),
        ("{{ dict(o.pairs) }}", "nodes.a.output.pairs[0]"),
        ("{% for d in o.docs %}{{ d.body }}{% endfor %}", "nodes.a.output.docs[1].body"),
        (
            "{% for d in [o.map, o.map] %}{{ loop.changed(d) }}{% endfor %}",
            "nodes.a.output.map.k",
        ),
    ],
)
def test_a_reference_deep_in_what_is_read_is_named(text: str, name: str) -> None:
    said = reason(full(text))
    assert said == f"`{name}` is a large value, which only workers can read"


def test_the_cure_can_be_copied() -> None:
    scope = {"nodes": {"look-up": {"output": {"a b": REFERENCE}}}}
    read = compile_expression("nodes['look-up'].output['a b'] | length", "nodes.b.when")
    with pytest.raises(ExpressionStopped) as stopped:
        read(scope)
    name = "nodes['look-up'].output['a b']"
    assert stopped.value.fields["cure"] == (
        f"Pass it on whole (`{{{{ {name} }}}}`), and let the node that gets it read it."
    )
    assert compile_expression(name, "f")(scope) == REFERENCE


def test_a_whole_output_may_be_a_reference() -> None:
    scope = {"nodes": {"a": {"output": REFERENCE}}}
    name = "`nodes.a.output` is a large value, which only workers can read"
    assert reason("{{ nodes.a.output.size }}", scope=scope) == name
    assert reason("{{ nodes.a.output.x }}", scope=scope) == name
    assert reason("{{ nodes.a.output.x | upper }}", scope=scope) == name


def test_a_reference_far_behind_is_not_looked_for_for_long() -> None:
    account = Account()
    many = [{"i": i} for i in range(100_000)]
    scope = Names(account, {"input": {"many": many, "x": [*range(30_000), REFERENCE]}})
    assert reason("{{ input.x[30000] | upper }}", scope=scope) == (
        "it reads a large value, which only workers can read"
    )
    assert 0 < account.operations < 50_000


def test_every_template_in_a_value_is_checked() -> None:
    evaluate = compile_value({"a": "{{ nodes.a.output.x }}", "b": "{{ nodes.a.output.x }}!"}, "w")
    with pytest.raises(ExpressionFailed, match=r"`nodes\.a\.output\.x` is a large value"):
        evaluate(SCOPE)


@pytest.mark.parametrize("data", [{"$blob": 5, "size": 3}, {"$blob": None}, {"size": 3}, "$blob"])
def test_what_is_no_reference_is_data(data: Any) -> None:
    scope = {"input": {"x": data}}
    assert compile_value("{{ input.x | length }}", "f")(scope) == len(data)
    assert compile_value("{{ input.x == 1 }}", "f")(scope) is False
    assert "size" not in data or compile_value("{{ input.x.size }}", "f")(scope) == 3


def test_a_known_beginning_of_a_prompt_ends_before_a_large_value() -> None:
    scope = {"input": {"a": "1", "x": REFERENCE}}
    assert compile_head("{{ input.a }}, {{ input.x }}")(scope) == ("1, ", False)


def test_workers_read_the_value_that_has_taken_the_place_of_the_reference() -> None:
    text = "y" * 300_000
    assert render("Summarize: {{ input.x }}", {"x": text}, "prompt") == f"Summarize: {text}"
    assert render("{{ input.x | length }}", {"x": text}, "prompt") == "300000"
