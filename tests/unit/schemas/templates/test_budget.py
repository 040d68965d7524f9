"""What an expression computes, makes and gives has a price, and is refused the same always."""

from typing import Any

import pytest

from hocket.schemas.errors import InvalidInput
from hocket.schemas.pipeline.expressions import (
    ExpressionFailed,
    ExpressionStopped,
    compile_expression,
    compile_head,
    compile_value,
    constant,
    readings,
)
from hocket.schemas.pipeline.plan import compile_pipeline
from hocket.schemas.templates.budget import EVALUATION_OPERATIONS, MAX_VALUE_PARTS, Account, Names
from hocket.schemas.templates.builtins.list_filters import FILTERS
from hocket.schemas.templates.builtins.methods import LIST_METHODS, MAPPING_METHODS, TEXT_METHODS
from hocket.schemas.templates.builtins.template_tests import TESTS
from support.places import ROOT

PAGE = ROOT / "docs/reference/constructs/expressions.md"
NESTED = (
    "{% for a in range(100000) %}{% for b in range(100000) %}{% for c in range(100000) %}"
    "{% endfor %}{% endfor %}{% endfor %}"
)

LOOP_IN_ITSELF = (
    "{% set ns = namespace(x=[]) %}{% set ns.x = [ns] %}"
    "{% for a in ns.x recursive %}{{ loop(a.x) }}{% endfor %}"
)


def reason(text: Any, scope: dict[str, Any] | None = None) -> str:
    with pytest.raises((ExpressionFailed, InvalidInput)) as failed:
        compile_value(text, "nodes.a.with.x")(scope or {})
    assert "nodes.a.with.x" in str(failed.value)
    assert failed.value.fields.get("cure") or isinstance(failed.value, ExpressionFailed)
    return str(failed.value.fields["reason"])


def test_loops_in_loops_are_stopped_by_their_operations() -> None:
    assert reason(NESTED) == "it takes more than 200,000 operations"
    assert compile_head("begin" + NESTED)({}) == ("begin", False)


@pytest.mark.parametrize(
    "text",
    [
        "{{ 'a' | center(2000000000) }}",
        "{{ 'a'.ljust(2000000000) }}",
        "{{ ('a' * 100000) | replace('a', 'a' * 100000) }}",
        "{{ 'x' | indent(1000000000, true) }}",
        "{{ '\t'.expandtabs(1000000000) }}",
        "{% set a = 'a' * 1000000 %}{% set a = a ~ a %}{{ a ~ a }}",
    ],
)
def test_a_text_is_refused_before_it_is_made(text: str) -> None:
    assert "text grows beyond 2,000,000 characters" in reason(text)


def test_a_list_is_refused_before_it_is_made() -> None:
    assert "200,000 operations" in reason("{{ range(3) | batch(2000000000, 1) | list }}")
    assert "200,000 operations" in reason("{{ [1] | slice(2000000000) | list }}")
    assert "100,000 numbers" in reason("{{ range(2000000000) | list }}")


@pytest.mark.parametrize(
    "text", ["{{ '\\ud800' }}", "{{ '\\x00' }}", "a\x00{{ 1 }}", "{{ {'\\udfff': 1} }}"]
)
def test_text_that_no_store_takes_is_refused_when_a_pipeline_is_applied(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        compile_value(text, "output.x")
    assert refused.value.fields["field"] == "output.x"


@pytest.mark.parametrize(
    "text",
    [
        "{{ 10 ** 5000 }}",
        "{{ 9223372036854775807 + 1 }}",
        "{{ '9' * 4000 | int }}{{ ('9' * 4000) | int }}",
        "{{ 1e308 * 10 }}",
        "{{ 'nan' | float }}",
        "{{ (-8) ** 0.5 }}",
    ],
)
def test_a_number_stays_within_64_bits_finite_and_real(text: str) -> None:
    with pytest.raises(ExpressionStopped):
        compile_value(text, "x")({})


def test_a_surrogate_pair_is_the_character_that_it_stands_for() -> None:
    assert compile_value("{{ '\\ud83d\\ude00' }}", "x")({}) == "😀"


@pytest.mark.parametrize(
    ("given", "bound"),
    [
        ("{{ previous ~ previous }}", "text grows beyond"),
        (["{{ previous }}", "{{ previous }}"], "more than"),
        ({"a": "{{ previous }}", "b": "{{ previous }}"}, "more than"),
        (["{{ previous }}"], "nests deeper than 64 levels"),
    ],
)
def test_a_loop_that_grows_its_output_is_refused_at_the_bound(given: Any, bound: str) -> None:
    step = compile_value({"p": given}, "nodes.a.with")

    def rounds(previous: Any) -> None:
        for _ in range(300):
            previous = step({"previous": previous})["p"]

    with pytest.raises(ExpressionStopped, match=bound):
        rounds("ab")


@pytest.mark.parametrize(
    "text",
    [
        "{{ " + "(" * 500 + "1" + ")" * 500 + " }}",
        "{{ " + "[" * 90 + "]" * 90 + " }}",
        "{{ " + "not " * 3000 + "1 }}",
        "{{ " + "-" * 3000 + "1 }}",
        "{{ " + "1 + " * 2000 + "1 }}",
        "{{ " + "1 if 1 else " * 900 + "1 }}",
        "{{ x" + ".a" * 3000 + "() }}",
        "{{ x" + "|e" * 3000 + " }}",
        "{% if 1 %}" * 200 + "{% endif %}" * 200,
        "{{ x }}" * 3000,
        "{{ " + "9" * 5000 + " }}",
    ],
)
def test_a_template_too_large_or_too_deep_is_refused_when_a_pipeline_is_applied(text: str) -> None:
    with pytest.raises(InvalidInput):
        compile_value(text, "x")
    with pytest.raises(InvalidInput):
        list(readings(text, "x"))


def test_recursion_ends_with_an_error_of_the_expression() -> None:
    for text in (
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
        LOOP_IN_ITSELF,
    ):
        assert "call each other too deep" in reason(text)


@pytest.mark.parametrize(
    "end",
    ["{{ ns.a }}", "{{ ns.a == ns.b }}", "{{ ns.a | tojson }}", "{{ [ns.a] | unique | list }}"],
)
def test_a_value_that_holds_itself_many_times_counts_as_often(end: str) -> None:
    text = (
        "{% set ns = namespace(a=(1,), b=(1,)) %}{% for i in range(50) %}"
        "{% set ns.a = (ns.a, ns.a) %}{% set ns.b = (ns.b, ns.b) %}{% endfor %}" + end
    )
    assert "operations" in reason(text)


def test_a_long_list_can_be_given_on_and_mapped() -> None:
    scope = {"input": {"xs": list(range(100_000)), "rows": [{"a": i} for i in range(40_000)]}}
    assert len(compile_expression("input.xs", "over")(scope)) == 100_000
    assert len(compile_expression("range(100000) | list", "over")(scope)) == 100_000
    assert len(compile_expression("input.xs[:50000]", "over")(scope)) == 50_000
    assert compile_expression("input.rows | map(attribute='a') | list", "over")(scope)[-1] == 39_999
    assert (
        len(compile_expression("input.rows[:30000] | selectattr('a', 'lt', 9)", "over")(scope)) == 9
    )


def test_a_constant_is_computed_within_the_same_bounds() -> None:
    assert constant("[1, 2]") == [1, 2]
    assert constant("'a' | center(2000000000)") is not None  # not made, and so not known


@pytest.mark.parametrize(
    "text",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ ''.__class__ }}",
        "{{ [].__class__ | string }}",
        "{{ range.__globals__ }}",
        "{{ [range] }}",
        "{{ namespace.__init__.__globals__ }}",
        "{{ '{0.__class__}'.format(1) }}",
        "{{ '%c' % 0 }}",
        "{{ x | attr('__class__') }}",
        "{{ self.__init__ }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
        "{{ ''.join.__self__ }}",
        "{{ (1).__class__ }}",
        "{{ {}.fromkeys }}",
        "{{ x.format.__globals__ }}",
        "{% set ns = namespace() %}{% set ns.__class__ = 1 %}{{ ns.__init__ }}",
    ],
)
def test_nothing_of_python_is_reached(text: str) -> None:
    assert reason(text, {"x": "text"})


def test_the_same_is_refused_at_the_same_operation() -> None:
    text = "{% for a in input %}{{ a | upper | replace('A', 'bb') | center(40) }}{% endfor %}"
    template = compile_value(text, "x")
    fits = next(n for n in range(80_000, 0, -1_000) if _fits(template, n))
    assert _fits(template, fits)
    assert not _fits(template, fits + 1_000)


def _fits(template: Any, items: int) -> bool:
    try:
        template({"input": ["a"] * items})
    except ExpressionStopped:
        return False
    return True


def test_the_page_names_all_that_expressions_may_use() -> None:
    rows = dict(
        line.strip("| ").split(" | ", 1)
        for line in PAGE.read_text().splitlines()
        if line.startswith("| ")
    )
    tables = {
        "filters": FILTERS,
        "tests": TESTS,
        "methods of text": TEXT_METHODS,
        "methods of lists": LIST_METHODS,
        "methods of mappings": MAPPING_METHODS,
    }
    for title, table in tables.items():
        assert rows[title] == ", ".join(f"`{name}`" for name in sorted(table))


def test_a_pipeline_of_very_many_templates_is_refused_before_they_are_read() -> None:
    given = {f"x{i}": "{{ input.a }}" * 400 for i in range(100)}
    node = {"type": "python", "handler": "hocket.workers.builtin:echo", "with": given}
    with pytest.raises(InvalidInput) as refused:
        compile_pipeline({"pipeline": "p", "nodes": {"a": node}})
    assert "50,000 words and symbols" in refused.value.fields["reason"]


@pytest.mark.parametrize("text", ["xs", "{{ xs }}"])
def test_a_value_that_is_only_read_counts_as_much_as_one_that_is_computed(text: str) -> None:
    xs = [[] for _ in range(20_000)]
    account, other = Account(), Account()
    read = compile_expression(text, "nodes.a.when")
    assert read(Names(account, {"xs": xs})) is xs
    computed = compile_expression("xs and xs", "nodes.a.when")
    computed(Names(other, {"xs": xs}))
    assert abs(account.operations - other.operations) < 10
    assert account.operations > 80_000


def test_a_large_value_that_many_read_together_is_looked_through_once() -> None:
    account = Account()
    names = Names(account, {"xs": [[] for _ in range(20_000)]})
    read = compile_expression("xs", "nodes.a.when")
    read(names)
    before = account.operations
    for _ in range(1_000):
        read(names)
    assert account.operations == before + 1_000


def test_a_value_that_is_too_large_is_refused_every_time() -> None:
    account = Account()
    names = Names(account, {"xs": [0] * (MAX_VALUE_PARTS + 1)})
    read = compile_expression("xs", "nodes.a.when")
    for _ in range(2):
        with pytest.raises(ExpressionStopped):
            read(names)


def test_a_large_value_that_is_made_of_others_counts_and_a_small_one_does_not() -> None:
    xs: list[list[int]] = [[] for _ in range(20_000)]
    whole = compile_value({"a": "{{ xs }}", "b": "{{ 1 + 1 }}"}, "nodes.a.with")
    few, many = Account(), Account()
    assert whole(Names(few, {"xs": xs[:100]})) == {"a": xs[:100], "b": 2}
    assert few.operations < 20 + EVALUATION_OPERATIONS
    assert whole(Names(many, {"xs": xs})) == {"a": xs, "b": 2}
    assert 80_000 - few.operations < many.operations < 90_000


def test_a_value_made_of_others_that_is_too_large_counts_all_the_same() -> None:
    fields = {f"k{i}": "{{ xs }}" for i in range(4)}
    account = Account()
    with pytest.raises(ExpressionStopped):
        compile_value(fields, "nodes.a.with")(Names(account, {"xs": [[]] * 300_000}))
    assert account.operations > 400_000
