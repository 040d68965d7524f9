"""Handlers that call nodes: each call is a step below the handler's, which is suspended meanwhile."""

from decimal import Decimal
from typing import Any

import pytest

from hocket.coordinator.core.run.commands import CancelAttempt, StartSubRun
from hocket.coordinator.core.run.machine import resume
from hocket.coordinator.core.run.state.messages import Dispatch
from hocket.coordinator.core.run.suspension import resumption
from hocket.schemas.errors import ErrorClass, ErrorInfo
from hocket.schemas.ids import input_digest
from hocket.schemas.messages import (
    AttemptFinished,
    CancelRequested,
    HandlerPlace,
    HandlerWait,
    NodeCall,
    Spend,
    StepRequested,
    WaitEnded,
)
from support.run_player import START_MS, Play, python

BOOM = ErrorInfo(code="boom", error_class=ErrorClass.TRANSIENT, message="no")


def caller(**fields: Any) -> dict[str, Any]:
    calls = {"look": python(), "tell": python(effects="external")}
    return python(calls=calls) | fields


def call(ordinal: int = 1, name: str = "look", given: Any = None) -> HandlerWait:
    asked = NodeCall(name=name, digest=input_digest(given), input=given)
    return HandlerWait(ordinal=ordinal, call=asked)


def suspend(play: Play, *waits: HandlerWait, **fields: Any) -> None:
    play.now_ms += 10
    play.finish("a", waits=waits, **fields)


def ended(request: StepRequested) -> list[WaitEnded]:
    assert request.resumption is not None
    return list(request.resumption.ended)


def test_a_call_is_a_step_and_its_handler_goes_on_with_what_it_gave() -> None:
    play = Play({"a": caller(), "b": python(needs=["a"])})
    assert play.dispatched[0].step == "a"
    assert play.take("a").calls == ("look", "tell")
    play = Play({"a": caller(), "b": python(needs=["a"])})
    suspend(play, call(given={"q": 7}))
    called = play.take("a/look-1")
    assert (called.node, called.input, called.attempt) == ("a/look", {"q": 7}, 1)
    assert (play.waiting(), play.run.steps["a"].state) == ([], "waiting")
    play.send(AttemptFinished(run_id="r1", step="a/look-1", attempt=1, output={"found": True}))
    request = play.take("a")
    [one] = ended(request)
    assert (request.attempt, one.output, one.error) == (2, {"found": True}, None)
    play.send(AttemptFinished(run_id="r1", step="a", attempt=2, output="done"))
    assert play.waiting() == ["b"]


def test_a_call_under_way_is_found_again_by_every_later_attempt_and_made_once() -> None:
    play = Play({"a": caller()})
    suspend(play, call(1), call(2, "tell"))
    assert play.waiting() == ["a/look-1", "a/tell-2"]
    play.finish("a/look-1", output=1)
    waits = play.dispatched[-1]
    assert waits.step == "a"
    suspend(play, call(2, "tell"), journaled=(HandlerPlace(ordinal=1),))
    assert play.waiting() == ["a/tell-2"]
    play.finish("a/tell-2", output=2)
    assert [one.output for one in ended(play.take("a"))] == [2]


def test_a_call_that_ends_while_its_handler_runs_is_there_at_its_next_suspension() -> None:
    play = Play({"a": caller()})
    suspend(play, call(1), call(2))
    play.finish("a/look-1", output=1)
    play.finish("a/look-2", output=2)
    suspend(play, call(2), journaled=(HandlerPlace(ordinal=1),))
    request = play.take("a")
    assert (request.attempt, [one.output for one in ended(request)]) == (3, [2])


def test_a_call_that_failed_is_told_with_its_error_and_fails_nothing_else() -> None:
    play = Play({"a": caller()})
    suspend(play, call())
    play.finish("a/look-1", error=BOOM)
    [one] = ended(play.take("a"))
    assert one.error == BOOM
    play.send(AttemptFinished(run_id="r1", step="a", attempt=2, output="all the same"))
    assert (play.run.status, play.run.output.value) == ("succeeded", "all the same")


def test_a_handler_that_fails_for_a_call_makes_it_anew_and_keeps_the_others() -> None:
    retry = {"max_attempts": 2, "on": ["transient"], "backoff_ms": 1}
    play = Play({"a": caller(retry=retry)})
    suspend(play, call(1), call(2))
    play.finish("a/look-1", output="kept")
    play.finish("a/look-2", error=BOOM)
    suspend(play, call(2))
    play.finish("a", error=BOOM)
    play.fire()
    request = play.take("a")
    assert [(one.ordinal, one.output) for one in ended(request)] == [(1, "kept")]
    play.send(
        AttemptFinished(
            run_id="r1", step="a", attempt=request.attempt, waits=(call(2),),
            journaled=(HandlerPlace(ordinal=1),),
        )
    )  # fmt: skip
    assert play.waiting() == ["a/look-3"]


def test_what_a_call_costs_is_its_own_and_counts_for_the_run() -> None:
    play = Play({"a": caller()}, spec={"budget_usd": "0.5"})
    suspend(play, call())
    play.finish("a/look-1", output=1, spend=Spend(calls=1, cost_usd=Decimal("0.6")))
    assert play.run.spent_usd == Decimal("0.6")
    assert play.run.error is not None
    assert play.run.error.code == "budget_exhausted"


def test_a_call_may_be_a_sub_run_with_its_share_of_the_runs() -> None:
    calls = {"deep": {"type": "pipeline", "pipeline": "other"}}
    play = Play({"a": python(calls=calls, max_calls=10)}, spec={"max_runs": 100})
    suspend(play, call(name="deep", given={"x": 1}))
    [started] = [one for one in play.commands if isinstance(one, StartSubRun)]
    accepted = started.accepted
    assert (accepted.pipeline, accepted.input) == ("other", {"x": 1})
    assert accepted.parent is not None
    assert (accepted.parent.step, accepted.parent.runs_left) == ("a/deep-1", 9)


def test_a_call_may_be_a_graph_a_race_or_have_a_fallback_and_all_see_its_input() -> None:
    graph = {
        "type": "graph",
        "nodes": {"each": python(map={"over": "input.items"}, **{"with": {"n": "{{ item }}"}})},
    }
    fallback = python(fallback=[{"node": python(**{"with": {"q": "{{ input.q }}"}})}])
    play = Play({"a": python(calls={"graph": graph, "safe": fallback})})
    suspend(play, call(1, "graph", {"items": [1, 2]}), call(2, "safe", {"q": "?"}))
    assert play.waiting() == ["a/graph-1/each[0]", "a/graph-1/each[1]", "a/safe-2"]
    play.finish("a/safe-2", error=BOOM)
    assert play.take("a/safe-2!1").input == {"q": "?"}
    for item in (0, 1):
        play.finish(f"a/graph-1/each[{item}]", output=item)
    [one] = ended(play.take("a"))
    assert one.output == [0, 1]


def test_an_agent_is_called_with_the_input_of_the_call_in_every_round() -> None:
    tool = {"parameters": {"type": "object"}, "node": python()}
    agent = {"type": "agent", "model": "m", "tools": {"look": tool}}
    play = Play({"a": python(calls={"ask": agent})})
    suspend(play, call(1, "ask", {"question": "why"}))
    assert play.take("a/ask-1#1").input == {"question": "why", "previous": None}
    turn = {"done": False, "calls": [{"step": "look-1", "tool": "look", "arguments": {"w": 1}}]}
    play.send(AttemptFinished(run_id="r1", step="a/ask-1#1", attempt=1, output=turn))
    play.finish("a/ask-1#1/look-1", output="x")
    second = play.take("a/ask-1#2").input
    assert (second["question"], second["previous"]["results"]["look-1"]["output"]) == ("why", "x")


@pytest.mark.parametrize("how", ["cancelled", "expired", "failed", "succeeded"])
def test_nothing_that_was_called_outlives_its_handler(how: str) -> None:
    play = Play({"a": caller(), "b": python()}, spec={"slo_ms": 60_000})
    suspend(play, call(1), call(2, "tell"))
    play.finish("a/look-1", output=1)
    if how == "cancelled":
        play.send(CancelRequested(run_id="r1", by="ann"))
    elif how == "expired":
        play.fire()
    else:
        play.finish("a", output=1, error=BOOM if how == "failed" else None)
        play.commands += play.outcomes[-1].commands
    assert play.run.steps["a/tell-2"].state == "cancelled"
    withdrawn = {one.step for one in play.commands if isinstance(one, CancelAttempt)}
    assert "a/tell-2" in withdrawn


def test_a_call_for_which_no_handler_waits_any_more_is_cancelled() -> None:
    play = Play({"a": caller()})
    suspend(play, call(1), call(2, "tell"))
    play.finish("a/look-1", output=1)
    suspend(play, call(3), journaled=(HandlerPlace(ordinal=1),))
    assert play.run.steps["a/tell-2"].state == "cancelled"
    assert play.run.steps["a/look-3"].state == "dispatched"


@pytest.mark.parametrize(
    ("waits", "code"),
    [
        ((call(name="other"),), "call_unknown"),
        ((call(1), call(2), call(3)), "too_many_calls"),
    ],
)
def test_a_worker_calls_nothing_but_what_the_pipeline_names_and_not_too_often(
    waits: tuple[HandlerWait, ...], code: str
) -> None:
    play = Play({"a": caller(max_calls=2)})
    suspend(play, *waits)
    assert play.run.error is not None
    assert (play.run.error.code, list(play.run.steps)) == (code, ["a"])


def test_another_owner_finds_calls_under_way_and_those_that_have_ended() -> None:
    play = Play({"a": caller()}, spec={"slo_ms": 60_000})
    suspend(play, call(1, given="x"), call(2, "tell"))
    play.finish("a/look-1", output=1)
    before = play.run
    play.run = play.read_back()
    assert play.run.size_bytes == before.size_bytes
    step = play.run.steps["a"]
    assert (step.waits, step.ended) == (before.steps["a"].waits, before.steps["a"].ended)
    play.dispatched = [
        one
        for one in resume(play.run, play.now_ms, play.forecast).commands
        if isinstance(one, Dispatch)
    ]
    assert play.waiting() == ["a", "a/tell-2"]
    assert [one.output for one in ended(play.take("a"))] == [1]
    waits = (call(2, "tell"), call(3))
    play.send(
        AttemptFinished(
            run_id="r1", step="a", attempt=2, waits=waits, journaled=(HandlerPlace(ordinal=1),)
        )
    )
    assert play.waiting() == ["a/look-3", "a/tell-2"]


def test_large_outputs_come_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resumption, "MAX_GIVEN_BYTES", 100)
    play = Play({"a": caller()})
    suspend(play, call(1), call(2))
    play.finish("a/look-1", output="x" * 90)
    play.finish("a/look-2", output="y" * 90)
    suspend(play, call(2))
    request = play.take("a")
    assert [one.output for one in ended(request)] == ["x" * 90]
    assert request.resumption is not None
    assert [one.ordinal for one in request.resumption.waits] == [2]
    play.send(
        AttemptFinished(
            run_id="r1", step="a", attempt=3, waits=(call(2),),
            journaled=(HandlerPlace(ordinal=1),),
        )
    )  # fmt: skip
    assert [one.output for one in ended(play.take("a"))] == ["y" * 90]


def test_a_repeated_run_takes_over_what_was_called_before_its_handler_failed() -> None:
    play = Play({"a": caller()})
    suspend(play, call(1, given=1))
    play.finish("a/look-1", output="found")
    play.finish("a", error=BOOM)
    again = play.repeat()
    suspend(again, call(1, given=1))
    [one] = ended(again.take("a"))
    assert one.output == "found"
    other = play.repeat()
    suspend(other, call(1, given=2))
    assert other.waiting() == ["a/look-1"]


def test_the_critical_path_goes_through_what_was_called() -> None:
    play = Play({"a": caller()}, spec={"slo_ms": 60_000})
    suspend(play, call(), started_at_ms=START_MS, finished_at_ms=START_MS + 10)
    play.now_ms += 100
    play.finish("a/look-1", output=1, started_at_ms=START_MS + 10, finished_at_ms=START_MS + 110)
    play.now_ms += 5
    play.finish("a", output=1, started_at_ms=START_MS + 110, finished_at_ms=START_MS + 115)
    path = [(step, kind, us) for step, _, _, kind, us, _ in play.run.critical_path]
    assert path == [
        ("a", "execution", 10_000),
        ("a/look-1", "execution", 100_000),
        ("a", "execution", 5_000),
    ]
