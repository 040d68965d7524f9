"""An input without its defaults gives the same run again, and is found in one pass."""

import json
from random import Random
from typing import Any

import pytest

from hocket.admin.submission import bare_input
from hocket.admin.submission.bare_input import without_defaults
from hocket.schemas.pipeline.input_defaults import with_defaults

STYLE = "s" * 100
SCHEMA: dict[str, Any] = {
    "properties": {
        "text": {"type": "string"},
        "style": {"default": STYLE},
        "yes": {"default": True},
        "options": {"properties": {"deep": {"default": [1, 2]}}},
        "more": {
            "default": {"a": 1},
            "properties": {"b": {"default": 2}, "c": {"properties": {"d": {"default": 3}}}},
        },
        "any": True,
    },
}
ATOMS: tuple[Any, ...] = (
    0,
    0.0,
    -0.0,
    1,
    1.0,
    True,
    False,
    None,
    "",
    "a",
    1e22,
    "é",
    [],
    [1],
    {},
    {"a": 1},
)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"text": "t"}, {"text": "t"}),
        ({"style": STYLE, "options": {}}, {"options": {}}),
        ({"options": {"deep": [1, 2], "own": 1}}, {"options": {"own": 1}}),
        ({"options": {"deep": [1]}}, {"options": {"deep": [1]}}),
        ({"options": {"deep": [1, 2.0]}}, {"options": {"deep": [1, 2.0]}}),
        ({"more": {"a": 1, "b": 2}}, {}),
        ({"more": {"a": 1, "b": 4}}, {"more": {"a": 1, "b": 4}}),
        ({"more": {"a": 2}}, {"more": {"a": 2}}),
        ({"more": {"a": 1, "c": {"d": 3}}}, {"more": {"a": 1, "c": {}}}),
        ({"style": "other", "yes": 1}, {"style": "other", "yes": 1}),
        ({"unknown": {"style": STYLE}, "any": 1}, {"unknown": {"style": STYLE}, "any": 1}),
    ],
)
def test_the_defaults_are_left_out(given: dict[str, Any], expected: dict[str, Any]) -> None:
    stored = with_defaults(SCHEMA, given)
    bare = without_defaults(SCHEMA, stored)
    assert bare == expected
    assert text_of(with_defaults(SCHEMA, bare)) == text_of(stored)


def test_an_input_of_a_version_with_fewer_defaults_gets_the_others() -> None:
    assert without_defaults(SCHEMA, {"text": "t", "style": STYLE}) == {"text": "t"}


@pytest.mark.parametrize("seed", range(5))
def test_whatever_the_schema_the_run_gets_the_same_input(seed: int) -> None:
    chance = Random(seed)
    for _ in range(300):
        schema, other = schema_by(chance, 0), schema_by(chance, 0)
        stored = with_defaults(schema, object_by(chance, 0))
        for one in (schema, other):
            bare = without_defaults(one, stored)
            assert text_of(with_defaults(one, bare)) == text_of(with_defaults(one, stored))
            assert len(text_of(bare)) <= len(text_of(stored))


def test_each_value_is_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[object] = []
    compare = bare_input._is_same

    def noted(one: object, other: object) -> bool:
        compared.append(one)
        return compare(one, other)

    monkeypatch.setattr(bare_input, "_is_same", noted)
    large = [1] * 1_000
    schema: dict[str, Any] = {"default": {}, "properties": {"large": {"default": large}}}
    value: dict[str, Any] = {"own": 1}
    for _ in range(20):
        schema = {"default": {}, "properties": {"a": schema}}
        value = {"a": value}
    stored = with_defaults(schema, value)
    assert without_defaults(schema, stored) == value
    assert len(compared) == 1 + len(large)

    compared.clear()
    assert without_defaults(schema, with_defaults(schema, {})) == {}
    assert len(compared) == 1 + len(large)


def text_of(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def object_by(chance: Random, depth: int) -> dict[str, Any]:
    return {chance.choice("abc"): value_by(chance, depth + 1) for _ in range(chance.randint(0, 3))}


def value_by(chance: Random, depth: int) -> Any:
    if depth < 3 and chance.random() < 0.5:
        return object_by(chance, depth)
    return chance.choice(ATOMS)


def schema_by(chance: Random, depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    if depth < 4 and chance.random() < 0.7:
        names = [chance.choice("abc") for _ in range(chance.randint(0, 3))]
        schema["properties"] = {name: schema_by(chance, depth + 1) for name in names}
    if depth and chance.random() < 0.6:
        schema["default"] = value_by(chance, depth)
    return schema
