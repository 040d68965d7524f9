"""A run is sent what its steps can wait for, by every name that answers one of them, and no more."""

from typing import Any

import pytest

from hocket.admin.pipelines.awaited_names import awaited_by, in_order
from hocket.schemas.pipeline.plan import compile_pipeline
from hocket.testing import Play

LOOK: dict[str, Any] = {"type": "approval", "prompt": "?"}
ITEMS = {"map": {"over": "[1, 2]"}}
ROUNDS = {"loop": {"until": "round == 2", "max_rounds": 2}}
INSTEAD = {"fallback": [{"node": LOOK | {"with": {"n": 1}}}]}


def graph(nodes: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"type": "graph", "nodes": nodes} | fields


@pytest.mark.parametrize(
    ("nodes", "names", "keys", "others"),
    [
        ({"x": LOOK}, ["x"], ["x"], ["x[0]", "x#1", "y"]),
        ({"x": LOOK | ITEMS}, ["x", "x[N]"], ["x[0]", "x[11]"], ["x[01]", "x[N]", "x#1", "x[-1]"]),
        ({"x": LOOK | ROUNDS}, ["x", "x#N"], ["x#1", "x#2"], ["x#0", "x#N", "x[1]"]),
        (
            {"x": LOOK | ITEMS | ROUNDS},
            ["x", "x[N]#N"],
            ["x[0]#1"],
            ["x[0]", "x#1", "x#1[0]", "x[N]#1"],
        ),
        (
            {"m": graph({"ok": LOOK}, **ITEMS)},
            ["m[N]/ok", "ok"],
            ["m[0]/ok", "m[99]/ok"],
            ["m/ok", "m", "m/ok[0]", "m[0]/ok[0]", "m[N]/ok", "m[0].ok"],
        ),
        (
            {"m": graph({"g": graph({"ok": LOOK}, **ROUNDS)}, **ITEMS)},
            ["m[N]/g#N/ok", "ok"],
            ["m[0]/g#2/ok"],
            ["m/g/ok", "m[0]/g/ok", "m/g#1/ok"],
        ),
        (
            {"r": {"type": "race", "branches": {"a": LOOK, "b": LOOK | ITEMS}} | ITEMS},
            ["a", "b", "r[N]~a", "r[N]~b[N]"],
            ["r[0]~a", "r[1]~b[0]"],
            ["r~a", "r[0]~b"],
        ),
        (
            {"g": graph({"ok": LOOK}, **ITEMS) | INSTEAD},
            ["g!1", "g[N]/ok", "ok"],
            ["g!1", "g[0]/ok"],
            ["g[0]!1", "g/ok"],
        ),
        ({"p": {"type": "planning", "model": "m", "prompt": "p"}}, [], [], ["p"]),
    ],
    ids=["one", "map", "loop", "both", "inside", "deeper", "race", "fallback", "nothing"],
)
def test_keys_have_items_and_rounds_where_their_nodes_repeat(
    nodes: dict[str, Any], names: list[str], keys: list[str], others: list[str]
) -> None:
    found = awaited_by(compile_pipeline({"pipeline": "p", "nodes": nodes}))
    assert found.names == frozenset(names)
    assert [name for name in keys if not found.has(name)] == []
    assert [name for name in others if found.has(name)] == []


@pytest.mark.parametrize(
    ("nodes", "came"),
    [
        ({"x": LOOK | ITEMS}, {"x[0]", "x[1]"}),
        ({"x": LOOK | ITEMS | ROUNDS}, {"x[0]#1", "x[1]#2"}),
        ({"m": graph({"g": graph({"x": LOOK}, **ROUNDS)}, **ITEMS)}, {"m[1]/g#2/x"}),
        ({"r": {"type": "race", "branches": {"x": LOOK, "y": LOOK}} | ITEMS}, {"r[0]~x", "r[1]~y"}),
        (
            {"m": graph({"f": graph({"no": LOOK}, **ITEMS) | INSTEAD}, **ITEMS)},
            {"m[0]/f[0]/no", "m[0]/f!1", "m[1]/f!1"},
        ),
    ],
    ids=["map", "both", "deeper", "race", "fallback"],
)
def test_every_key_under_which_a_run_waits_is_known(nodes: dict[str, Any], came: set[str]) -> None:
    document = {"pipeline": "p", "slo_ms": 60_000, "nodes": nodes}
    awaited, play = awaited_by(compile_pipeline(document)), Play(document)
    names = [name for name in awaited.names or () if awaited.has(name)]
    for name in names * 4:
        (play.refuses if name == "no" else play.approves)(name)
    lines = [line.split(" ms  ")[1].split(": ") for line in play.run({}).trace]
    waited = {line[0] for line in lines if line[1] == "waiting"}
    assert came <= waited
    assert [key for key in waited if not awaited.has(key)] == []


def test_handlers_wait_for_anything() -> None:
    nodes = {"x": LOOK, "work": {"type": "python", "handler": "m:f", "calls": {"ask": LOOK}}}
    assert awaited_by(compile_pipeline({"pipeline": "p", "nodes": nodes})).has("whatever")


def test_numbers_in_names_are_in_order() -> None:
    assert in_order({"n10", "n2", "n", "2n", "n2/ok"}) == ["2n", "n", "n2", "n2/ok", "n10"]
