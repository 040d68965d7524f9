"""In what two versions of a pipeline differ."""

from hocket.admin.pipelines.version_diff import changes

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
