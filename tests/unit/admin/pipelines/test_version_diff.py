"""In what two versions of a pipeline differ."""

from typing import Any

import pytest

from hocket.admin.pipelines.version_diff import as_read, changes, differences

BEFORE = {
    "pipeline": "p",
    "slo_ms": 1_000.0,
    "input": None,
    "nodes": {
        "a": {"type": "llm", "model": "small", "needs": [], "retry": None},
        "b": {"type": "llm", "model": "small", "needs": ["a"]},
    },
}
AFTER = {
    "pipeline": "p",
    "slo_ms": 2_000.0,
    "input": {"type": "object"},
    "nodes": {
        "a": {"type": "llm", "model": "large", "needs": []},
        "c": {"type": "python", "handler": "m:f"},
    },
}


def test_each_place_that_differs_is_named_with_what_was_and_what_is() -> None:
    found = [(one.path, one.kind, one.before, one.after) for one in changes(BEFORE, AFTER)]
    assert found == [
        ("input", "added", None, {"type": "object"}),
        ("nodes.a.model", "changed", "small", "large"),
        ("nodes.b", "removed", {"type": "llm", "model": "small", "needs": ["a"]}, None),
        ("nodes.c", "added", None, {"type": "python", "handler": "m:f"}),
        ("slo_ms", "changed", 1_000.0, 2_000.0),
    ]


def test_a_field_that_is_null_is_one_that_is_not_there() -> None:
    assert list(changes({"a": None}, {})) == []


def test_true_and_one_differ() -> None:
    assert [one.path for one in changes({"a": True}, {"a": 1})] == ["a"]
    for was, now in ((1, True), ([0], [False]), ([{"c": 1}], [{"c": True}])):
        found = list(changes({"a": {"b": was}}, {"a": {"b": now}}))
        assert [(one.path, one.before, one.after) for one in found] == [("a.b", was, now)]


def test_an_object_in_another_order_is_one_change_with_the_keys_of_both() -> None:
    was = {"a": {"x": 1, "y": {"m": 1, "n": 2}, "gone": 0}}
    now = {"a": {"y": {"n": 2, "m": 1}, "new": 0, "x": 1}}
    found = [(one.path, one.kind, one.order, one.before, one.after) for one in changes(was, now)]
    assert found == [
        ("a", "changed", True, ["x", "y"], ["y", "x"]),
        ("a.gone", "removed", False, 0, None),
        ("a.new", "added", False, None, 0),
        ("a.y", "changed", True, ["m", "n"], ["n", "m"]),
    ]


@pytest.mark.parametrize(
    ("was", "now"),
    [(1e22, 10**22), (1, 1.0), ([{"x": 1, "y": 2}], [{"y": 2, "x": 1}])],
    ids=["exponent", "fraction", "order in a list"],
)
def test_values_that_runs_can_tell_apart_differ(was: Any, now: Any) -> None:
    assert [one.kind for one in changes({"a": was}, {"a": now})] == ["changed"]


def test_a_spec_as_postgres_sorted_it_differs_only_in_what_its_author_wrote() -> None:
    node = {"type": "python", "handler": "m:f", "with": {"long": 1, "b": 2}}
    written = as_read({"pipeline": "p", "slo_ms": 1_000, "nodes": {"one": node, "a": node}})

    found = [(one.path, one.order) for one in differences(_sorted(written), written)]
    assert found == [("nodes", True), ("nodes.a.with", True), ("nodes.one.with", True)]


def test_a_spec_that_this_release_cannot_read_is_compared_as_it_is_without_its_order() -> None:
    node = {"type": "python", "handler": "m:f", "with": {"long": [{"z": 1, "a": 2}], "b": 2}}
    written = as_read({"pipeline": "p", "slo_ms": 1_000, "nodes": {"one": node, "a": node}})
    old = _sorted(written) | {"gone": 1}
    assert as_read(old) is old

    for was, now, kind in ((old, written, "removed"), (written, old, "added")):
        assert [(one.path, one.kind) for one in differences(was, now)] == [("gone", kind)]


def _sorted(value: Any) -> Any:
    """Return a value as jsonb gives it back."""
    if isinstance(value, list):
        return [_sorted(part) for part in value]
    if not isinstance(value, dict):
        return value
    keys = sorted(value, key=lambda key: (len(key), key))
    return {key: _sorted(value[key]) for key in keys}
