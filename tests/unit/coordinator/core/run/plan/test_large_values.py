"""A coordinator has only references to large values: it passes them on, and never computes with them."""

from typing import Any

import pytest

from support.run_player import Play, python

REFERENCE = {"$blob": "ab" * 32, "size": 2_100_000, "type": "text"}
NAMED = "`nodes.a.output.x` is a large value, which only workers can read"


def after(given: Any) -> Play:
    """Return a run in which a node with this `with` begins after one with a large output."""
    play = Play({"a": python(), "b": python(**{"with": {"p": given}})})
    play.finish("a", {"x": REFERENCE, "y": 1})
    return play


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("{{ nodes.a.output.x }}", REFERENCE),
        ("{{ nodes.a.output }}", {"x": REFERENCE, "y": 1}),
        (["{{ nodes.a.output.x }}", "{{ 1 + 1 }}"], [REFERENCE, 2]),
        ("{{ nodes.a.output.x is defined }}", True),
    ],
)
def test_a_reference_is_passed_on(given: Any, expected: Any) -> None:
    assert after(given).take("b").input == {"p": expected}


@pytest.mark.parametrize(
    "given",
    [
        "{{ nodes.a.output.x.size }}",
        "{{ nodes.a.output.x.type }}",
        ["{{ nodes.a.output.x.size }}"],
        "{{ nodes.a.output.x.title }}",
        "{{ nodes.a.output.x | length }}",
        "Summarize: {{ nodes.a.output.x }}",
    ],
)
def test_what_would_read_it_fails_its_step(given: Any) -> None:
    error = after(given).run.error
    assert error is not None
    assert (error.code, NAMED in error.message) == ("expression_failed", True)


@pytest.mark.parametrize("path", ["size", "type", "x.size"])
def test_such_names_are_read_from_any_other_value(path: str) -> None:
    play = Play({"a": python(), "b": python(**{"with": {"p": f"{{{{ nodes.a.output.{path} }}}}"}})})
    play.finish("a", {"size": 1, "type": 1, "x": {"size": 1}})
    assert play.take("b").input == {"p": 1}


def test_a_loop_does_not_end_by_what_a_reference_looks_like() -> None:
    play = Play({"a": python(loop={"until": "output.x | length == 3", "max_rounds": 3})})
    play.finish("a#1", {"x": REFERENCE})
    assert play.run.error is not None
    assert "`output.x` is a large value" in play.run.error.message


def test_a_branch_whose_score_would_read_it_does_not_compete() -> None:
    race = {"type": "race", "pick": "best", "score": "output.x | length", "branches": {}}
    race["branches"] = {"long": python(), "short": python()}
    play = Play({"r": race})
    play.finish("r~long", {"x": REFERENCE})
    play.finish("r~short", {"x": "1"})
    assert play.run.output.value == {"x": "1"}


def test_a_map_over_references_gives_each_item_its_own() -> None:
    mapped = python(map={"over": "nodes.a.output", "concurrency": 2})
    play = Play({"a": python(), "m": mapped})
    play.finish("a", [REFERENCE, "short"])
    assert play.take("m[0]").input == {"item": REFERENCE, "index": 0}
