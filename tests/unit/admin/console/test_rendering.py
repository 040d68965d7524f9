"""Figures as people read them, and documents as pages show them."""

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from hocket.admin.console import rendering
from hocket.admin.console.assets import NAMES, assets
from hocket.admin.console.documents import as_yaml, short_spec, without_nulls
from hocket.admin.console.rendering import (
    MAX_SHOWN_CHARS,
    MORE,
    duration,
    is_cut,
    marked,
    pretty,
    share,
    size,
    usd,
)
from hocket.cli.drawing import amounts
from hocket.schemas.pipeline.document import parse_document
from hocket.schemas.pipeline.spec import parse_pipeline


@pytest.mark.parametrize(
    ("ms", "said"),
    [
        (None, "\N{EN DASH}"),
        (0.04, "0.0 ms"),
        (38.2, "38 ms"),
        (1_240, "1.24 s"),
        (-1_240, "-1.24 s"),
        (200_000, "3 min 20 s"),
        (185_000, "3 min 05 s"),
        (7_500_000, "2 h 05 min"),
        (90_000_000, "1 d 01 h"),
    ],
)
def test_a_duration_is_said_with_the_unit_that_fits(ms: float | None, said: str) -> None:
    assert duration(ms) == said


@pytest.mark.parametrize("exponent", range(-2, 10))
@pytest.mark.parametrize("digits", [1, 3.14159, 5.99996, 9.96, 9.9996])
def test_a_duration_is_said_as_the_command_line_says_it(digits: float, exponent: int) -> None:
    ms = digits * 10.0**exponent

    assert (duration(ms), duration(-ms)) == (amounts.duration(ms), amounts.duration(-ms))


@pytest.mark.parametrize(
    ("number", "said"),
    [(0, "0 B"), (1_023, "1,023 B"), (4_096, "4.0 KiB"), (1_288_490_189, "1.2 GiB")],
)
def test_a_size_is_said_in_the_unit_that_fits(number: int, said: str) -> None:
    assert size(number) == said


def test_a_specification_is_shown_without_what_it_would_be_anyway() -> None:
    written = {
        "pipeline": "greet", "slo_ms": 8000,
        "nodes": {
            "hello": {"type": "python", "handler": "greet:hello"},
            "bye": {"type": "python", "needs": ["hello"], "handler": "greet:bye", "optional": True},
        },
    }  # fmt: skip
    stored = parse_pipeline(written).model_dump(mode="json", by_alias=True)

    assert stored["nodes"]["hello"]["optional"] is False
    assert short_spec(stored) == written
    assert short_spec({"pipeline": "old", "gone": None, "kept": 1}) == {
        "pipeline": "old",
        "kept": 1,
    }


def test_nodes_are_in_the_order_in_which_runs_use_them() -> None:
    node = {"type": "python", "handler": "greet:hello"}
    written = {"pipeline": "greet", "nodes": {"bye": node | {"needs": ["hello"]}, "hello": node}}
    stored = parse_pipeline(written).model_dump(mode="json", by_alias=True)
    by_postgres = dict(sorted(stored.items(), key=lambda item: (len(item[0]), item[0])))

    assert list(short_spec(stored)["nodes"]) == ["bye", "hello"]
    by_postgres["nodes"] = dict(reversed(stored["nodes"].items()))
    assert list(short_spec(by_postgres)["nodes"]) == ["hello", "bye"]


def test_a_text_that_is_not_edited_is_the_same_specification_with_its_order_and_numbers() -> None:
    schema = {"type": "object", "properties": {"reasoning": {}, "answer": {}}}
    ask = {"type": "llm", "model": "m", "prompt": "?", "response_schema": schema}
    echo = {"type": "python", "handler": "m:f", "with": {"long": 1e22, "b": 10**22, "a": 1.0}}
    written = {"pipeline": "p", "nodes": {"z": echo | {"needs": ["ask"]}, "ask": ask}}
    stored = parse_pipeline(written).model_dump(mode="json", by_alias=True)

    edited = parse_pipeline(parse_document(as_yaml(stored))).model_dump(mode="json", by_alias=True)
    assert json.dumps(edited) == json.dumps(stored)


@pytest.mark.parametrize(
    "text", ["1234e56", "1e3", "-1E3", "1e-7", "1.e5", "1.5", "12", "true", "no"]
)
def test_text_that_looks_like_a_number_stays_text_in_the_editor(text: str) -> None:
    values = {"a": text, text: [text], "b": {text: 1e-7}}
    node = {"type": "python", "handler": "greet:hello", "with": values}
    stored = parse_pipeline({"pipeline": "greet", "nodes": {"hello": node}})

    edited = parse_document(as_yaml(stored.model_dump(mode="json", by_alias=True)))
    assert edited["nodes"]["hello"]["with"] == values


@pytest.mark.parametrize(
    ("amount", "said"),
    [
        (Decimal(0), "$0"),
        (Decimal("0.0000012"), "$0.0000012"),
        (Decimal("0.00000001"), "$0.00000001"),
        (Decimal("0.000000003"), "<$0.00000001"),
        (Decimal("0.05"), "$0.05"),
        (Decimal("0.5"), "$0.50"),
        (Decimal("0.06849"), "$0.0685"),
        (Decimal("0.007"), "$0.0070"),
        (Decimal("1234.5"), "$1,234.50"),
        (None, "\N{EN DASH}"),
    ],
)
def test_dollars_have_the_digits_that_tell_something(amount: Decimal | None, said: str) -> None:
    assert usd(amount) == said


@pytest.mark.parametrize(
    ("part", "whole", "said"),
    [
        (0, 10_000, "0"),
        (1, 10_000, "<1"),
        (50, 10_000, "<1"),
        (51, 10_000, "1"),
        (1, 3, "33"),
        (9_949, 10_000, "99"),
        (9_960, 10_000, ">99"),
        (9_999_999, 10_000_000, ">99"),
        (10_000, 10_000, "100"),
        (0.1 + 0.7, 0.8, "100"),
        (12_000, 10_000, "120"),
        (1, 0, "0"),
    ],
)
def test_a_share_is_all_only_of_all_and_none_only_of_none(
    part: float, whole: float, said: str
) -> None:
    assert share(part, whole) == f"{said}\N{NO-BREAK SPACE}%"


@pytest.mark.parametrize(
    "value", [None, True, 3, 1.5, 'a\n"ö\N{SNOWMAN}', [], {}, {"a": [1, {"b": None}], "ö": [[]]}]
)
def test_a_value_is_shown_as_indented_json(value: Any) -> None:
    shown = pretty(value)

    assert shown == json.dumps(value, indent=2, ensure_ascii=False)
    assert not is_cut(shown)


@pytest.mark.parametrize(
    "value", ["x" * (MAX_SHOWN_CHARS - 1), ["x" * MAX_SHOWN_CHARS], list(range(MAX_SHOWN_CHARS))]
)
def test_a_value_too_long_for_a_page_says_that_more_follows(value: Any) -> None:
    shown = pretty(value)

    whole = json.dumps(value, indent=2, ensure_ascii=False)
    assert shown == whole[:MAX_SHOWN_CHARS] + MORE
    assert is_cut(shown)
    assert not is_cut(pretty("x" * (MAX_SHOWN_CHARS - 2)))
    assert not is_cut(pretty(MORE))


def test_no_more_of_a_value_is_written_than_a_page_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value in 62 lists has about 64 times as many characters with its indentation."""
    value: Any = [0] * 250_000
    for _ in range(61):
        value = [value]
    written = 0

    class Counting(json.JSONEncoder):
        def iterencode(self, o: Any, _one_shot: bool = False) -> Iterator[str]:
            nonlocal written
            for piece in super().iterencode(o, _one_shot):
                written += len(piece)
                yield piece

    monkeypatch.setattr(rendering, "INDENTED", Counting(indent=2, ensure_ascii=False))

    assert is_cut(pretty(value))
    assert MAX_SHOWN_CHARS <= written < MAX_SHOWN_CHARS + 1_000


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("There is no run `<b>`. `hocket runs list` has all.",
         "There is no run <code>&lt;b&gt;</code>. <code>hocket runs list</code> has all."),
        ("There is no run `a`b`.", "There is no run `a`b`."),
        ("<i>plain</i>", "&lt;i&gt;plain&lt;/i&gt;"),
    ],
)  # fmt: skip
def test_what_a_message_quotes_is_shown_as_code_and_nothing_else_is_markup(
    text: str, shown: str
) -> None:
    assert str(marked(text)) == shown


def test_fields_that_say_nothing_are_left_out() -> None:
    assert without_nulls({"a": None, "b": {"c": None, "d": 0}}) == {"b": {"d": 0}}


def test_all_scripts_together_stay_small() -> None:
    import gzip

    scripts = b"".join(asset.body for name, asset in assets().items() if name.endswith(".js"))

    assert len(gzip.compress(scripts)) <= 70_000
    assert set(assets()) == set(NAMES)
