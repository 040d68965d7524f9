"""Long values are held as objects only while they are among those read last."""

import json

import pytest

from hocket.coordinator.core.run.run_size import MAX_VALUE_DEPTH, ValueTooDeep
from hocket.coordinator.core.run.state import values
from hocket.coordinator.core.run.state.values import Json, forget_oldest, json_of, json_text

LONG = json.dumps({"rows": ["x" * 100] * 1_000})
"""Some 100 kB."""


@pytest.fixture(autouse=True)
def _room_for_three(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "MAX_READ_CHARS", 3 * len(LONG))
    monkeypatch.setattr(values, "_read", values.ReadValues())


def is_object(value: Json) -> bool:
    return bool(value._is_read)


@pytest.mark.plain
def test_of_long_values_those_read_last_are_held_as_objects() -> None:
    read = [json_text(LONG) for _ in range(10)]
    for value in read:
        assert value.value["rows"]
        value.forget_value()
        forget_oldest()

    assert [is_object(value) for value in read] == [False] * 7 + [True] * 3
    assert all(value.value == json.loads(LONG) for value in read)


@pytest.mark.plain
def test_a_value_that_is_read_again_is_dropped_later() -> None:
    first, *others = [json_text(LONG) for _ in range(4)]
    for value in (first, *others[:2], first, *others[2:]):
        assert value.value["rows"]
        value.forget_value()
        forget_oldest()

    assert [is_object(value) for value in (first, *others)] == [True, False, True, True]


@pytest.mark.plain
def test_none_is_dropped_within_an_event() -> None:
    read = [json_text(LONG) for _ in range(10)]
    for value in read:
        assert value.value["rows"]

    assert all(is_object(value) for value in read)
    forget_oldest()
    assert [is_object(value) for value in read] == [False] * 7 + [True] * 3


@pytest.mark.plain
def test_values_without_a_text_stay_as_they_are() -> None:
    made = [json_of(json.loads(LONG)) for _ in range(10)]
    for value in made:
        value.forget_value()
    forget_oldest()

    assert all(is_object(value) for value in made)
    assert [value.text == made[0].text for value in made] == [True] * 10
    for value in made:
        value.forget_value()
    forget_oldest()
    assert sum(map(is_object, made)) == 3


def test_one_longer_than_all_room_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "MAX_READ_CHARS", 10)
    value = json_text(LONG)
    assert value.value["rows"]
    forget_oldest()

    assert value.value["rows"]


def test_a_value_of_many_lists_is_measured_without_parsing_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    value = json_of([[[]], {"a": []}] * 1_000)
    monkeypatch.setattr(values, "from_json", None)
    assert value.size == len(value.text)


@pytest.mark.parametrize("inner", ["1", '{"a":1}', "[[]]"])
def test_a_value_that_nests_too_deep_for_a_message_is_refused(inner: str) -> None:
    levels = MAX_VALUE_DEPTH - (inner != "1")
    fits = "[" * levels + inner + "]" * levels
    assert json_text(fits).size == json_of(json.loads(fits)).size == len(fits)
    for value in (json_text(f"[{fits}]"), json_of(json.loads(f'{{"a":{fits}}}'))):
        with pytest.raises(ValueTooDeep):
            _ = value.size
