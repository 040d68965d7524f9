"""A fallback without `with` gets the input of its node, also if the node could not begin."""

from typing import Any

import pytest

from hocket.schemas.errors import ErrorClass, ErrorInfo
from hocket.schemas.ids import input_digest
from hocket.schemas.messages import AttemptFinished, HandlerWait, NodeCall
from support.run_player import Play, python

BROKEN = ErrorInfo(code="broken", message="it broke", error_class=ErrorClass.PERMANENT)
INSTEAD = [{"node": python(handler="m:instead")}]
GIVEN = {"q": "{{ input.q }}", "t": 1}
COULD_NOT_BEGIN: dict[str, dict[str, Any]] = {
    "its cache key failed": {"cache": {"ttl_ms": 1_000, "key": "input.nope"}},
    "its condition failed": {"when": "input.nope"},
}


def failing(**fields: Any) -> dict[str, Any]:
    return {"a": python(**({"with": GIVEN, "fallback": INSTEAD} | fields))}


@pytest.mark.parametrize("fields", COULD_NOT_BEGIN.values(), ids=COULD_NOT_BEGIN.keys())
def test_a_fallback_gets_the_input_that_its_node_would_have_had(fields: dict[str, Any]) -> None:
    play = Play(failing(**fields), input={"q": "why"})
    assert play.take("a!1").input == {"q": "why", "t": 1}
    assert play.run.steps["a"].error.code == "expression_failed"  # type: ignore[union-attr]


@pytest.mark.parametrize("fields", COULD_NOT_BEGIN.values(), ids=COULD_NOT_BEGIN.keys())
def test_without_with_that_is_the_default_input(fields: dict[str, Any]) -> None:
    node = python(needs=["b"], fallback=INSTEAD, **fields)
    play = Play({"b": python(), "a": node}, input={"q": "why"})
    play.finish("b", [1, 2])
    assert play.take("a!1").input == {"input": {"q": "why"}, "b": [1, 2]}


@pytest.mark.parametrize(
    "node",
    [
        {"type": "graph", "nodes": {"x": python()}},
        {"type": "race", "branches": {"x": python(), "y": python()}},
        {"type": "pipeline", "pipeline": "other"},
        {"type": "signal", "signal": "go"},
        {
            "type": "agent",
            "model": "m",
            "prompt": "{{ input.q }}",
            "tools": {"t": {"parameters": {"type": "object"}, "node": python()}},
        },
    ],
    ids=lambda node: node["type"],
)
def test_that_is_so_for_nodes_of_every_type(node: dict[str, Any]) -> None:
    spec = node | {"with": GIVEN, "when": "input.nope", "fallback": INSTEAD}
    play = Play({"a": spec}, input={"q": "why"})
    assert play.take("a!1").input == {"q": "why", "t": 1}


def test_a_later_fallback_gets_it_too_also_after_a_restart() -> None:
    first = {"node": python(**{"with": {"other": 1}})}
    play = Play(failing(when="input.nope", fallback=[first, *INSTEAD]), input={"q": "why"})
    play.run = play.read_back()
    play.finish("a!1", error=BROKEN)
    assert play.take("a!2").input == {"q": "why", "t": 1}


def test_a_fallback_after_a_fast_variant_with_its_own_input_gets_that_of_the_node() -> None:
    node = python(
        expect={"mean_ms": 900_000}, fast=python(**{"with": {"quick": True}}), fallback=INSTEAD
    ) | {"with": GIVEN}
    play = Play({"a": node}, input={"q": "why"}, spec={"on_infeasible": "degrade"})
    assert play.take("a!0").input == {"quick": True}
    play = Play({"a": node}, input={"q": "why"}, spec={"on_infeasible": "degrade"})
    play.finish("a!0", error=BROKEN)
    assert play.take("a!1").input == {"q": "why", "t": 1}


@pytest.mark.parametrize(
    "fields",
    [
        {"with": {"q": "{{ input.nope }}"}},
        {"with": {"q": "{{ input.nope }}"}, "when": "input.nope"},
        {"with": {"q": "{{ input.nope }}"}, "cache": {"ttl_ms": 1_000}},
    ],
)
def test_an_input_that_cannot_be_evaluated_is_null(fields: dict[str, Any]) -> None:
    play = Play(failing(**fields), input={"q": "why"})
    assert play.take("a!1").input is None
    play = Play(failing(**fields), input={"q": "why"})
    play.finish("a!1", "served")
    assert (play.run.status, play.run.output.value) == ("degraded", "served")


def test_a_called_node_that_cannot_begin_leaves_its_input_to_its_fallback() -> None:
    reads = {"node": python(**{"with": {"got": "{{ input.n }}"}})}
    called = python(cache={"ttl_ms": 1_000, "key": "input.nope"}, fallback=[reads, *INSTEAD])
    play = Play({"a": python(calls={"ask": called})})
    asked = NodeCall(name="ask", digest=input_digest({"n": 5}), input={"n": 5})
    play.finish("a", waits=(HandlerWait(ordinal=1, call=asked),))
    assert play.take("a/ask-1!1").input == {"got": 5}
    play.send(AttemptFinished(run_id="r1", step="a/ask-1!1", attempt=1, error=BROKEN))
    assert play.take("a/ask-1!2").input == {"n": 5}


@pytest.mark.parametrize("fields", COULD_NOT_BEGIN.values(), ids=COULD_NOT_BEGIN.keys())
def test_a_retry_tries_the_node_again_and_keeps_what_its_fallback_made(
    fields: dict[str, Any],
) -> None:
    """`when` and `cache.key` are no part of what a step does: a step that could not begin because of
    them is not taken over as failed."""
    nodes = failing(**fields) | {"b": python(needs=["a"])}
    first = Play(nodes, input={"q": "why"})
    first.finish("a!1", 7)
    first.finish("b", error=BROKEN)
    again = first.repeat()
    assert again.waiting() == ["b"]
    assert again.run.steps["a!1"].source is not None
    assert again.run.steps["a"].source is None
    corrected = (
        failing(cache={"ttl_ms": 1_000, "key": "input.q"}) if "cache" in fields else failing()
    )
    later = first.repeat(nodes=corrected | {"b": python(needs=["a"])})
    assert not [key for key in later.run.steps if key.startswith("a!")]
