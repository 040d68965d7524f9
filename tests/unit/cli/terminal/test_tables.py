"""Tables on terminals that are too narrow for them: what is shortened, and what never is."""

import pytest
from rich.console import Console
from rich.text import Text

from hocket.cli.terminal.tables import Table

NAME = "customer-support-triage-europe"
ID = "r55460ab64e0ce37df6445d0a"


def shown(table: Table, width: int | None) -> list[str]:
    lines = [line.plain for line in table.lines(Console(), width)]
    assert width is None or all(len(line) <= width for line in lines), lines
    return lines


COSTS = Table(("RUN", "PIPELINE", "TOKENS"), [(ID, NAME, "3,703,701"), ("r1", "p", "1")], ("TOKENS",),
              ("PIPELINE",))  # fmt: skip


@pytest.mark.parametrize("width", [68, None], ids=["wide enough", "for programs"])
def test_what_fits_is_shown_in_full(width: int | None) -> None:
    assert shown(COSTS, width) == [
        f"RUN                        PIPELINE{22 * ' '}     TOKENS",
        f"{ID}  {NAME}  3,703,701",
        f"r1{23 * ' '}  p{29 * ' '}          1",
    ]


def test_only_texts_are_cut_and_a_sign_tells_it() -> None:
    assert shown(COSTS, 60) == [
        "RUN                        PIPELINE                   TOKENS",
        f"{ID}  customer-suppo…-europe  3,703,701",
        "r1                         p                               1",
    ]


def test_rows_that_are_still_too_wide_continue_below() -> None:
    assert shown(COSTS, 44) == [
        "RUN                        PIPELINE",
        "       TOKENS",
        f"{ID}  customer-s…urope",
        "    3,703,701",
        "r1                         p",
        "            1",
    ]


def test_a_value_wider_than_the_terminal_is_left_to_it() -> None:
    lines = [line.plain for line in COSTS.lines(Console(), 10)]
    assert ID in lines
    assert "    customer-s…urope" in lines, "a name is not made narrower than that"


def test_a_text_wider_than_a_line_is_cut_also_where_that_saves_none() -> None:
    url = f"https://hooks.example.com/{'x' * 60}"
    names = [f"the-webhook-of-team-{one}" for one in ("europe-and-asia", "america")]
    rows = [(names[0], url, ID), (names[1], "https://b.example/", ID)]
    table = Table(("NAME", "URL", "LAST RUN"), rows, (), ("URL",))
    lines = shown(table, 44)
    assert names[0] in lines
    (cut,) = (line for line in lines if "…" in line)
    assert len(cut) == 44


def test_for_programs_a_row_begins_with_its_first_value() -> None:
    """`cut -d' ' -f1` found nothing, for each number that was not the longest one."""
    table = Table(("NUMBER", "CALLS"), [("12345678", "5"), ("3", "10")], ("NUMBER", "CALLS"))
    assert shown(table, None) == ["NUMBER    CALLS", "12345678      5", "3            10"]
    assert shown(table, 80)[2] == "       3     10"


FAILED = "It failed.\nThe server answered 500 three times."
DEAD = Table(("NUMBER", "REASON"), [("12", FAILED), ("3", "")], ("NUMBER",), ("REASON",))


def test_the_last_text_is_folded_and_keeps_its_lines() -> None:
    assert shown(DEAD, 40) == [
        "NUMBER  REASON",
        "    12  It failed.",
        "        The server answered 500 three",
        "        times.",
        "     3",
    ]


def test_the_last_text_is_below_its_row_where_little_is_left() -> None:
    assert shown(DEAD, 30) == [
        "NUMBER",
        "    REASON",
        "    12",
        "    It failed.",
        "    The server answered 500",
        "    three times.",
        "     3",
    ]


def test_for_programs_a_row_is_a_line_of_any_length() -> None:
    long = "word " * 5_000
    (_, line) = shown(Table(("A", "B"), [("a\tb\nc", long)], (), ("B",)), None)
    assert line == f"a b c  {long}".rstrip()


def test_what_would_act_upon_the_terminal_is_measured_as_it_is_shown() -> None:
    table = Table(("NAME", "STATE"), [("\x1b[2J", Text("failed", "red")), ("東京", "ok")])
    assert [line.plain for line in table.lines(Console(), 80)] == [
        "NAME     STATE",
        "\\x1b[2J  failed",
        "東京     ok",
    ]
