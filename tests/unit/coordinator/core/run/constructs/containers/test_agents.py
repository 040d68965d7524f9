"""Rounds of agents in the coordinator: read back at every moment, repeated, bounded."""

from decimal import Decimal
from typing import Any

import pytest

from hocket.schemas.errors import ErrorClass, ErrorInfo
from hocket.schemas.messages import AttemptFinished, Spend
from support.run_player import Play, python
from support.runs.infeasible import DEGRADE, draft, pass_to, takes
from support.runs.stored import assert_same, read_back

AGENT: dict[str, Any] = {
    "type": "agent",
    "model": "m",
    "prompt": "?",
    "max_rounds": 3,
    "max_steps": 4,
    "tools": {
        "look": {"parameters": {"type": "object"}, "node": python(handler="m:look")},
        "many": {
            "parameters": {"type": "object"},
            "node": {
                "type": "graph",
                "nodes": {"each": python(map={"over": "{{ input.items }}"})},
            },
        },
    },
}
BROKEN = ErrorInfo(code="broken", message="it broke", error_class=ErrorClass.PERMANENT)


def calls(*tools: str, arguments: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return what a worker says of a round whose model calls tools."""
    made = [
        {"step": f"{tool}_{i}", "tool": tool, "arguments": arguments or {"n": i}}
        for i, tool in enumerate(tools, start=1)
    ]
    return {"done": False, "rounds": 1, "calls": made}


DONE = {"done": True, "text": "so"}


def paid(play: Play, key: str, output: Any, usd: str) -> None:
    play.finish(key, output, spend=Spend(calls=1, cost_usd=Decimal(usd)))


def test_an_agent_is_read_back_at_every_moment() -> None:
    play = Play({"ask": AGENT, "then": python(needs=["ask"])})
    steps: list[tuple[str, Any, ErrorInfo | None]] = [
        ("ask#1", calls("look", "look"), None),
        ("ask#1/look_2", None, BROKEN),
        ("ask#1/look_1", {"found": 1}, None),
        ("ask#2", {"done": False, "calls": []}, None),
        ("ask#3", DONE, None),
    ]
    for key, output, error in steps:
        assert_same(read_back(play), play.run)
        play.finish(key, output, error)
    assert_same(read_back(play), play.run)
    assert play.run.steps["ask"].output.value == DONE
    assert not play.run.steps["ask"].degraded
    play.finish("then", {})
    assert play.run.status == "succeeded"


def test_the_next_round_gets_what_the_tools_gave_and_their_errors() -> None:
    play = Play({"ask": AGENT})
    turn = calls("look", "look")
    play.finish("ask#1", turn)
    play.finish("ask#1/look_1", {"found": 1})
    play.finish("ask#1/look_2", None, BROKEN)
    given = play.take("ask#2").input
    previous = given["previous"]
    assert given.keys() == {"input", "previous"}
    assert {name: previous[name] for name in turn} == turn
    assert previous["results"]["look_1"] == {"output": {"found": 1}, "error": None}
    assert previous["results"]["look_2"]["output"] is None
    assert previous["results"]["look_2"]["error"]["code"] == "broken"


def test_an_agent_that_stands_for_a_node_has_its_input_in_every_round() -> None:
    asks = {"with": {"question": "{{ input.q }}"}}
    tried = python(fallback=[{"node": AGENT}]) | asks
    raced = {"type": "race", "branches": {"a": AGENT, "b": python()}} | asks
    play = Play({"tried": tried, "raced": raced}, input={"q": "why"})
    play.finish("tried", None, BROKEN)
    play.run = play.read_back()
    for key in ("tried!1", "raced~a"):
        assert play.take(f"{key}#1").input == {"question": "why", "previous": None}
        play.send(AttemptFinished(run_id="r1", step=f"{key}#1", attempt=1, output=calls("look")))
        play.finish(f"{key}#1/look_1", {"found": 1})
        second = play.take(f"{key}#2").input
        assert (second["question"], second["previous"]["rounds"]) == ("why", 1)


def test_what_stands_for_an_agent_that_failed_has_its_input() -> None:
    asks = {"with": {"question": "{{ input.q }}"}, "fallback": [{"node": python()}]}
    play = Play({"ask": AGENT | asks}, input={"q": "why"})
    play.finish("ask#1", calls("look"))
    play.finish("ask#1/look_1", {"found": 1})
    play.finish("ask#2", None, BROKEN)
    assert play.take("ask!1").input == {"question": "why"}


@pytest.mark.parametrize("fast_key", ["draft!0", "draft!0#1"])
def test_an_agent_has_a_fast_variant_and_may_be_one(fast_key: str) -> None:
    agent = AGENT | {"expect": {"mean_ms": 500, "sd_ms": 100}}
    nodes = draft(fast=agent, **{"with": {"question": "{{ input.q }}"}})
    if fast_key == "draft!0":
        slow = {"expect": {"mean_ms": 4_000, "sd_ms": 100}, "fast": takes(500)}
        nodes["draft"] = AGENT | {"needs": ["a"], "with": nodes["draft"]["with"]} | slow
    play = Play(nodes, input={"q": "why"}, spec=DEGRADE)
    pass_to(play, 6_000)
    play.finish("a")
    assert play.take(fast_key).input["question"] == "why"


def test_each_item_of_a_map_has_an_agent_with_its_own_input() -> None:
    over = {"map": {"over": "['x', 'y']"}, "with": {"question": "{{ item }}"}}
    play = Play({"ask": AGENT | over})
    play.finish("ask[1]#1", calls("look"))
    play.finish("ask[1]#1/look_1", {"found": 1})
    assert play.take("ask[0]#1").input == {"question": "x", "previous": None}
    assert play.take("ask[1]#2").input["question"] == "y"


def test_a_worker_cannot_say_more_than_the_pipeline_has() -> None:
    play = Play({"ask": AGENT})
    play.finish("ask#1", {"done": False, "calls": [{"step": "x", "tool": "rm", "arguments": {}}]})
    assert play.run.error is not None
    assert play.run.error.code == "agent_turn_invalid"


def test_rounds_have_a_bound_whatever_workers_say() -> None:
    play = Play({"ask": AGENT})
    for number in (1, 2, 3):
        play.finish(f"ask#{number}", {"done": False, "calls": []})
    assert play.run.error is not None
    assert play.run.error.code == "loop_exhausted"


def test_steps_of_a_round_have_a_bound_of_which_the_model_is_told() -> None:
    play = Play({"ask": AGENT})
    play.finish("ask#1", calls("many", arguments={"items": [1, 2, 3, 4, 5]}))
    previous = play.take("ask#2").input["previous"]
    error = previous["results"]["many_1"]["error"]
    assert error["code"] == "plan_exceeded"
    assert error["message"] == (
        "The tools that agent `ask` called in round `ask#1` exceed its `max_steps`: a map has 5 items;"
        " the limit is 4. Raise `max_steps`, or have them do less."
    )


def test_what_an_agent_spent_is_known_after_a_takeover() -> None:
    play = Play({"ask": AGENT | {"budget_usd": "0.10"}})
    paid(play, "ask#1", calls("look"), "0.04")
    paid(play, "ask#1/look_1", {}, "0.05")
    play.run = play.read_back()
    paid(play, "ask#2", calls("look"), "0.01")
    assert play.run.steps["ask#2/look_1"].state == "failed"
    assert play.run.error is not None
    assert play.run.error.code == "agent_budget_exhausted"
    assert play.run.error.details["spent_usd"] == "0.10"


def test_a_run_that_is_repeated_keeps_rounds_and_calls_that_succeeded() -> None:
    first = Play({"ask": AGENT, "then": python(needs=["ask"])})
    first.finish("ask#1", calls("look"))
    first.finish("ask#1/look_1", {"found": 1})
    first.finish("ask#2", DONE)
    first.finish("then", None, BROKEN)
    again = first.repeat()
    assert [one.step for one in again.dispatched] == ["then"]


@pytest.mark.parametrize("degraded", [False, True])
def test_a_tool_that_failed_is_not_called_again_because_later_rounds_know_of_it(
    degraded: bool,
) -> None:
    then = python(needs=["ask"], optional=degraded)
    first = Play({"ask": AGENT, "then": then}, output={})
    first.finish("ask#1", calls("look", "many", arguments={"items": [1, 2]}))
    first.finish("ask#1/look_1", error=BROKEN)
    first.finish("ask#1/many_2/each[1]", error=BROKEN)
    first.finish("ask#2", calls("look"))
    first.finish("ask#2/look_1", "sent")
    first.finish("ask#3", DONE)
    first.finish("then", None, BROKEN)
    assert first.run.status == ("degraded" if degraded else "failed")
    again = first.repeat()
    assert again.waiting() == ["then"]
    assert again.run.steps["ask#1/look_1"].error == BROKEN


def test_a_tool_that_failed_is_tried_where_its_round_is_another_one_or_did_not_end() -> None:
    first = Play({"ask": AGENT})
    first.finish("ask#1", calls("look", "look"))
    first.finish("ask#1/look_1", error=BROKEN)
    first.finish("ask#1/look_2", 1)
    first.finish("ask#2", calls("look"))
    first.finish("ask#2/look_1", error=BROKEN)
    first.finish("ask#3", error=BROKEN)
    anew = first.repeat("rerun", input={"other": 1})
    assert anew.waiting() == ["ask#1"]
    anew.finish("ask#1", calls("look", "look"))
    assert anew.waiting() == ["ask#1/look_1"]
    from_tool = first.repeat("rerun", from_step="ask#2/look_1")
    assert from_tool.waiting() == ["ask#2/look_1"]


def test_a_tool_that_succeeded_after_all_has_no_error_for_the_model() -> None:
    tools = {
        "again": {"parameters": {"type": "object"}, "node": python(retry={"on": ["broken"]})},
        "instead": {
            "parameters": {"type": "object"},
            "node": python(fallback=[{"node": python()}]),
        },
    }
    play = Play({"ask": AGENT | {"tools": tools}})
    play.finish("ask#1", calls("again", "instead"))
    play.finish("ask#1/again_1", error=BROKEN)
    play.fire()
    play.finish("ask#1/again_1", "at last")
    play.finish("ask#1/instead_2", error=BROKEN)
    play.finish("ask#1/instead_2!1", "another")
    results = play.take("ask#2").input["previous"]["results"]
    assert results == {
        "again_1": {"output": "at last", "error": None},
        "instead_2": {"output": "another", "error": None},
    }
