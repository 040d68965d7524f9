"""JSON that is written in parts is what pydantic writes at once."""

from typing import Any

import pytest
from pydantic_core import to_json

from hocket.gateway.core.protocols import json_parts
from hocket.gateway.core.protocols.json_parts import PART_CHARS, PART_ITEMS, written_in_parts

VECTOR = [0.5, -1.25e-7, 3, float("inf"), float("nan")] * PART_ITEMS


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        None,
        "tide",
        {"a": {}, "b": [], "c": None, 'quoted "name"': True},
        {"data": [{"index": at, "embedding": VECTOR} for at in range(3)], "model": "m"},
        {"data": [{"index": at, "embedding": (1, 2)} for at in range(2 * PART_ITEMS + 1)]},
        {"logprobs": [[]] * (PART_ITEMS + 1)},
        [[[[[[[[[{"deep": [1, "2"]}]]]]]]]]],
        {"text": 'é\n"\\' * PART_CHARS},
        ["x" * PART_CHARS, "x" * (PART_CHARS + 1), "\U0001f30a" * (PART_CHARS + 1)],
    ],
    ids=("object list null text names vectors many lists deep escapes long".split()),
)
def test_parts_make_the_same_json(value: Any) -> None:
    assert written_in_parts(value) == to_json(value, inf_nan_mode="null")


def test_no_part_of_a_large_value_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def written(value: Any, **options: Any) -> bytes:
        content = to_json(value, **options)
        sizes.append(len(content))
        return content

    monkeypatch.setattr(json_parts, "to_json", written)
    vectors = [{"embedding": [0.25] * 10_000}] * 20
    assert len(written_in_parts({"data": vectors, "text": "x" * 4 * PART_CHARS})) > 2_000_000
    assert max(sizes) <= PART_CHARS + 2
