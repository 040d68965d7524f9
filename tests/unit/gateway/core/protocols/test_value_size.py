"""Sizes of JSON values, of which only few are looked at."""

from typing import Any

import pytest
from pydantic_core import to_json

from hocket.gateway.core.protocols import value_size
from hocket.gateway.core.protocols.value_size import (
    FEW_VALUES,
    MOST_SEEN,
    SHORT_CHARS,
    SHORT_ITEMS,
    estimated,
    held_if_short,
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
    assert least_written(value, least - 1) == least
    assert least_written([value] * 100, 10) > 10


@pytest.mark.parametrize("what", ["numbers", "texts", "vectors", "deep"])
def test_a_large_value_is_judged_by_a_sample(what: str) -> None:
    value = VALUES[what]
    assert held_if_short(value) == 0
    assert len(to_json(value)) == pytest.approx(estimated(value).written, rel=0.5)


def test_an_estimate_looks_at_few_values(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def counted(one: Any) -> int:
        seen.append(one)
        return 64

    monkeypatch.setattr(value_size, "getsizeof", counted)
    value: Any = 1
    for _ in range(6):
        value = [value] * 8
    assert estimated(value).held > 0
    assert len(seen) < 2 * MOST_SEEN


def test_a_short_value_has_few_short_ones() -> None:
    assert held_if_short({"choices": [{"message": {"content": "tide"}}]}) > 0
    assert held_if_short(["tide"] * SHORT_ITEMS) > held_if_short(["tide"]) > 0
    for long in (["tide"] * (SHORT_ITEMS + 1), "x" * (SHORT_CHARS + 1), [[[1] * 16] * 16] * 2):
        assert held_if_short({"a": long}) == 0
    assert held_if_short([[1] * (FEW_VALUES // 8)] * 9) == 0
