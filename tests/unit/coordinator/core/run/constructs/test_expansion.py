"""How far the steps that planners emit may grow while they run."""

from decimal import Decimal
from typing import Any

import pytest

from hocket.coordinator.core.run.constructs.attempt_ends import MAX_COUNTED
from hocket.schemas.messages import AttemptFinished, HandlerWait, SignalReceived, Spend
from support.run_player import Play, python


def planner(**policy: Any) -> dict[str, Any]:
    emit = {"types": ["python", "graph", "planning"], "handlers": ["m:f"], "models": ["m"]}
    return {
        "type": "planning",
        "model": "m",
        "prompt": "?",
        "with": {"xs": list(range(15)), "q": "?"},
        "emit": emit | {"max_depth": 3} | policy,
    }


def code(play: Play) -> str | None:
    return None if play.run.error is None else play.run.error.code


def counts(play: Play) -> dict[str, int]:
    return {key: emitted.begun for key, emitted in play.emitted.items()}


def mapped(**fields: Any) -> dict[str, Any]:
    return python(map={"over": "input.xs"}, **fields)


def test_twenty_steps_do_not_become_three_hundred_calls() -> None:
    play = Play({"p": planner()})
    play.finish("p", {"nodes": {f"n{i}": mapped() for i in range(20)}})
    assert code(play) == "plan_exceeded"
    assert len([key for key in play.seen if key.startswith("p/")]) <= 20


def test_a_map_within_the_policy_runs() -> None:
    play = Play({"p": planner()})
    play.finish("p", {"nodes": {"m": mapped()}})
    play.work(lambda request: 1)
    assert play.run.output.value == [1] * 15
    assert counts(play) == {"p": 15}


def test_a_map_of_more_items_than_the_policy_says_begins_none() -> None:
    play = Play({"p": planner(max_items=14)})
    play.finish("p", {"nodes": {"m": mapped()}})
    assert code(play) == "plan_exceeded"
    assert play.waiting() == []


def test_the_rounds_of_a_loop_count() -> None:
    play = Play({"p": planner(max_steps=5)})
    play.finish("p", {"nodes": {"l": python(loop={"until": "output.done", "max_rounds": 100})}})
    play.work(lambda request: {"done": False})
    assert code(play) == "plan_exceeded"
    assert len([key for key in play.seen if key.startswith("p/")]) == 5


def test_what_a_nested_planner_emits_counts_for_both() -> None:
    inner = {"types": ["python", "planning"], "handlers": ["m:f"], "models": ["m"], "max_steps": 9}
    nested = {"type": "planning", "model": "m", "prompt": "?", "with": {"xs": list(range(7))},
              "emit": inner | {"max_depth": 1}}  # fmt: skip
    play = Play({"p": planner(max_steps=9, max_depth=2)})
    play.finish("p", {"nodes": {"a": nested, "b": nested}})
    play.finish("p/a", {"nodes": {"m": mapped()}})
    assert counts(play) == {"p": 9, "p/a": 7}
    play.finish("p/b", {"nodes": {"m": mapped()}})
    assert code(play) == "plan_exceeded"


def test_a_planner_cannot_emit_planners_for_ever() -> None:
    play = Play({"p": planner(max_depth=2)})
    deeper = {"type": "planning", "model": "m", "prompt": "?"}
    deeper["emit"] = {"types": ["planning"], "models": ["m"]}
    play.finish("p", {"nodes": {"a": deeper}})
    play.finish("p/a", {"nodes": {"a": deeper}})
    assert code(play) == "plan_refused"


def test_the_counts_are_the_same_when_the_run_is_read_again() -> None:
    play = Play({"p": planner(budget_usd="5")})
    nodes = {
        "m": mapped(),
        "s": python(when="input.none", **{"with": {}}),
        "z": python(needs=["m"]),
    }
    nodes["s"] = python(when="not input.q")
    play.finish("p", {"nodes": nodes})
    finish(play, "p/m[0]", cost="0.25")
    finish(play, "p/m[1]", cost="0.5")
    emitted, again = play.emitted["p"], play.read_back().steps["p"].emitted
    assert again is not None
    assert (emitted.begun, emitted.spent_usd) == (16, Decimal("0.75"))
    assert (again.begun, again.spent_usd) == (16, Decimal("0.75"))


def test_a_restart_forgets_nothing_of_what_a_step_of_many_executions_has_spent() -> None:
    play = Play({"p": planner(budget_usd="1")}, spec={"slo_ms": 86_400_000})
    play.finish("p", {"nodes": {"chat": python()}})
    executions = MAX_COUNTED + 20
    for number in range(1, executions + 1):
        spend = Spend(cost_usd=Decimal("0.01"))
        waits = (HandlerWait(ordinal=number, signal="more"),)
        play.finish("p/chat", spend=spend, waits=waits)
        if number % 5 == 0:
            play.run = play.read_back()
        more = SignalReceived(run_id="r1", signal_id=f"s{number}", name="more", payload=number)
        play.send(more)
    emitted, again = play.emitted["p"], play.read_back().steps["p"].emitted
    assert again is not None
    spent_usd = executions * Decimal("0.01")
    assert (emitted.spent_usd, again.spent_usd, play.run.spent_usd) == (spent_usd,) * 3
    assert len(play.run.steps["p/chat"].counted) == MAX_COUNTED + 1


def test_what_the_steps_of_a_planner_spend_is_bounded() -> None:
    play = Play({"p": planner(budget_usd="1")})
    chain = {"a": python(), "b": python(needs=["a"]), "c": python(needs=["b"])}
    play.finish("p", {"nodes": chain})
    finish(play, "p/a", cost="0.9")
    finish(play, "p/b", cost="0.2")
    assert code(play) == "plan_budget_exhausted"
    assert play.waiting() == []


def test_a_step_beyond_the_policy_has_the_planner_s_ways_out() -> None:
    play = Play({"p": planner(max_items=1) | {"fallback": [{"node": python()}]}})
    play.finish("p", {"nodes": {"m": mapped()}})
    play.finish("p!1", "instead")
    assert (play.run.status, play.run.output.value) == ("degraded", "instead")


def test_steps_of_the_spec_are_not_counted() -> None:
    play = Play({"p": planner(max_steps=1), "m": python(map={"over": "range(30)"})})
    play.finish("p", {"nodes": {"x": python()}})
    play.work(lambda request: 1)
    assert play.run.status == "succeeded"


def finish(play: Play, key: str, *, cost: str) -> None:
    request = play.take(key)
    play.send(
        AttemptFinished(
            run_id=request.run_id,
            step=key,
            attempt=request.attempt,
            output=1,
            started_at_ms=play.now_ms,
            finished_at_ms=play.now_ms,
            worker="w",
            spend=Spend(calls=1, cost_usd=Decimal(cost)),
        )
    )


@pytest.mark.parametrize("bound", ["max_steps", "max_items"])
def test_the_error_names_what_to_raise(bound: str) -> None:
    play = Play({"p": planner(**{bound: 3})})
    play.finish("p", {"nodes": {"m": mapped()}})
    assert play.run.error is not None
    assert f"emit.{bound}" in play.run.error.message
