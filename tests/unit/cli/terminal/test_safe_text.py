"""Data on a terminal is shown and does nothing; colours of ours stay."""

import json
from io import StringIO

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from hocket.cli.terminal.safe_text import (
    UNSAFE,
    SafeConsole,
    visible,
    visible_json,
    visible_yaml,
)

HOSTILE = "a\x1b[31mb\x1b]0;title\x07\u202ec\u2066d\x9be\x7f\u200b\ufeff\U000e0041\x00"


@pytest.mark.parametrize("plain", ["", "a b\n\tc", "Grüße, 東京 👩‍👩‍👧", "\\x1b"])
def test_what_is_harmless_stays(plain: str) -> None:
    assert visible(plain) == visible_json(plain) == plain


def test_what_acts_is_an_escape() -> None:
    shown = visible(HOSTILE)

    assert not UNSAFE.search(shown)
    assert "a\\x1b[31mb\\x1b]0;title\\x07\\u202ec" in shown


def test_json_stays_the_same_value() -> None:
    text = visible_json(json.dumps({HOSTILE: HOSTILE}, ensure_ascii=False))

    assert not UNSAFE.search(text)
    assert json.loads(text) == {HOSTILE: HOSTILE}


TEXTS = st.text(
    st.sampled_from("a \n\"'\\#:-\x1b\x85\xad\u200b\u200e\u2028\u202e\u2060\ufeff\U000e0041é👩"),
    max_size=12,
)


@given(st.dictionaries(TEXTS, TEXTS | st.lists(TEXTS, max_size=2), max_size=3))
def test_yaml_stays_the_same_value(document: object) -> None:
    text = visible_yaml(document)

    assert not UNSAFE.search(text)
    assert yaml.safe_load(text) == document


def test_yaml_that_is_harmless_stays_as_it_is_written_anyway() -> None:
    document = {"b": "Grüße, 東京", "a": ["two\nlines", "1", 1]}

    text = visible_yaml(document)

    assert text == yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


def test_a_console_escapes_data_and_keeps_its_own_colours() -> None:
    file = StringIO()
    console = SafeConsole(file=file, force_terminal=True, color_system="standard", width=200)

    console.print(Text(HOSTILE, style="red"))
    console.print(HOSTILE, markup=False)

    shown = file.getvalue()
    assert shown.startswith("\x1b[31m")
    assert "\u202e" not in shown
    assert "\x1b]0;" not in shown
    assert shown.count("\\u202e") == 2


@pytest.mark.parametrize("data", ["[/done] a", "[red]b", "fe80:cd:1", "12:100:3", "[link=x]y"])
def test_a_console_takes_nothing_in_data_for_markup_or_emoji(data: str) -> None:
    file = StringIO()
    SafeConsole(file=file, highlight=False, soft_wrap=True).print(data)

    assert file.getvalue() == f"{data}\n"
