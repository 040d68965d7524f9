"""Sizes of JSON values, found out at a bounded cost."""

from typing import Any

import pytest
from pydantic_core import to_json

from hocket.gateway.core.protocols.json_size import held_bytes
from hocket.gateway.core.protocols.value_size import (
    MOST_SEEN,
    held_if_few,
    least_written,
)

VECTORS = [{"index": number, "embedding": [0.123456789] * 500} for number in range(100)]
VALUES: dict[str, Any] = {
    "numbers": [0.0] * 10_000,
    "texts": ["tide"] * 1_000,
    "quotes": ['"' * 10] * 1_000,
    "mixed": [1, "tide" * 100, None, [True, {"a": {}}]] * 100,
    "vectors": {"data": VECTORS},
    "deep": {"a": [{"b": [{"c": [1, 2, 3]}] * 20}] * 20},
    "nothing": {"a": [], "b": {}, "c": ""},
    "names": {"a": {1: 2, 3: "tide"}, "b" * 100: 2},
}


@pytest.mark.parametrize("what", VALUES)
def test_no_value_takes_less_than_the_least(what: str) -> None:
    value = VALUES[what]
    whole = len(to_json(value))
    least = least_written(value, whole)
    assert 0 < least <= whole
    assert least_written([value] * 100, 10) > 10


@pytest.mark.parametrize("value", [[1, 2], ["a", [], {}], {"a": {"b": "c"}}, {}, [], "tide", 7])
def test_what_is_looked_at_counts_as_it_is_written(value: Any) -> None:
    assert least_written(value, 1_000) == len(to_json(value))


@pytest.mark.parametrize("chars", [10, 200])
def test_few_values_are_looked_at(chars: int) -> None:
    """Looking at all of them would take longer than writing them does."""
    texts = ["x" * chars] * (10 * MOST_SEEN)
    looked_at = MOST_SEEN if chars == 200 else MOST_SEEN // 10
    least = least_written(texts, 220 * MOST_SEEN)
    assert 2 * len(texts) < least < 2 * len(texts) + looked_at * (chars + 3)


@pytest.mark.parametrize("what", VALUES)
def test_all_of_a_value_counts_in_memory(what: str) -> None:
    assert held_if_few(VALUES[what], 1_000_000) == held_bytes(VALUES[what])


@pytest.mark.parametrize("value", [["a"] * 10, dict.fromkeys("abcde"), ["a", ["b"] * 8]])
def test_a_value_with_too_many_within_is_not_counted(value: Any) -> None:
    assert held_if_few(value, 11) is not None
    assert held_if_few(value, 10) is None


def test_a_value_that_holds_itself_is_not_counted() -> None:
    value: list[Any] = []
    value.append(value)
    assert held_if_few(value, 100) is None
