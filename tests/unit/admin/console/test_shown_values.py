"""Values as pages show them: from the beginning of what is stored, without parsing it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from hocket.admin.console.rendering import MAX_SHOWN_CHARS, MORE, cut_after, is_cut, pretty
from hocket.admin.console.run import shown_values
from hocket.admin.console.run.shown_values import _READ_CHARS, indented, of_run, of_step
from hocket.admin.runs.reads import StepUnknown
from hocket.schemas.errors import RunUnknown

VALUES: list[Any] = [
    None,
    True,
    -12.5,
    "",
    'a "quoted" [text], {with}: marks \\ and \\" \n',
    {},
    [],
    [[], {}, [[]], {"a": {}}],
    [{}, [1, []], [], "b", {"c": [], "d, e": [{}]}],
    {"a": [1, 2.5, {"b": None, "c d": "e, f"}], "\N{GREEK SMALL LETTER PI}": "\u2028\x7f"},
]
LONG: list[Any] = [
    list(range(100_000)),
    ["\\" * MAX_SHOWN_CHARS],
    {"a": '"' * MAX_SHOWN_CHARS},
    {f"name {number}": [{}] for number in range(50_000)},
    "x" * MAX_SHOWN_CHARS,
]


def stored(value: Any) -> str:
    """Return a value as Postgres returns it, but for some numbers."""
    return json.dumps(value, ensure_ascii=False)


@pytest.mark.parametrize("value", VALUES)
def test_a_value_is_shown_as_if_it_had_been_parsed(value: Any) -> None:
    assert indented(stored(value)) == pretty(value)


@pytest.mark.parametrize("value", LONG, ids=range(len(LONG)))
def test_the_beginning_of_a_long_value_is_enough(value: Any) -> None:
    text = stored(value)
    assert len(text) > _READ_CHARS
    shown = indented(text[:_READ_CHARS])
    assert is_cut(shown)
    assert shown.removesuffix(MORE) == pretty(value).removesuffix(MORE)


def test_a_value_that_fits_is_not_cut() -> None:
    value = "x" * (MAX_SHOWN_CHARS - 2)
    assert indented(stored(value)[:_READ_CHARS]) == stored(value)


@pytest.mark.parametrize("number", ["0.0000001", "1.50", "1" + "0" * 400, "-0.0"])
def test_numbers_stay_as_stored(number: str) -> None:
    assert indented(f'{{"n": {number}}}') == f'{{\n  "n": {number}\n}}'


def test_a_value_may_be_nested_as_deep_as_any() -> None:
    depth = 300
    shown = indented("[" * depth + "1, 2" + "]" * depth)
    assert shown.count("[") == shown.count("]") == depth
    assert f"\n{'  ' * depth}1,\n{'  ' * depth}2\n" in shown


@pytest.mark.parametrize(
    "text", ["[" * 300 + "1, " * 60_000, "[" * 3_000 + "1, " * 60_000], ids=["far", "too-far"]
)
def test_no_more_is_written_than_is_shown(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    longest = 0

    def noted(pieces: Iterator[str], left: int) -> str:
        nonlocal longest
        taken: list[str] = []
        for piece in pieces:
            longest = max(longest, len(piece))
            taken.append(piece)
            if sum(map(len, taken)) > left:
                break
        return cut_after(taken, left)

    monkeypatch.setattr(shown_values, "cut_after", noted)
    assert len(indented(text)) == MAX_SHOWN_CHARS + len(MORE)
    assert longest < 2 * MAX_SHOWN_CHARS


class EmptyPool:
    """A database without any rows."""

    async def fetchrow(self, query: str, *values: Any, timeout: float) -> None:
        return None


async def test_values_of_what_is_gone_are_not_shown_as_missing() -> None:
    pool: Any = EmptyPool()
    with pytest.raises(RunUnknown):
        await of_run(pool, "acme", "r" + "1" * 24)
    with pytest.raises(StepUnknown):
        await of_step(pool, "r" + "1" * 24, "a")
