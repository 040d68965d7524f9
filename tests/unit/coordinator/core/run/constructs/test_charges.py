"""What calls cost of which no step tells counts once, for the run and for the agents and planners that
the named step works for: while the run works, after a takeover, and after its end."""

from decimal import Decimal
from typing import Any

import pytest

from hocket.coordinator.core.run.constructs.attempt_ends import MAX_COUNTED
from hocket.coordinator.core.run.ends.late import SpentBefore
from hocket.coordinator.core.run.faults import RunNotStorable
from hocket.coordinator.core.run.state.messages import TellSpending
from hocket.coordinator.core.run.state.rows import charges_row
from hocket.schemas.errors import ErrorClass, ErrorInfo
from hocket.schemas.messages import (
    AttemptFinished,
    CancelRequested,
    RunCharged,
    RunParent,
    Spend,
    TimerFired,
)
from support.run_player import Play, python

AGENT: dict[str, Any] = {
    "type": "agent",
    "model": "m",
    "with": {"question": "?"},
    "budget_usd": "0.10",
    "retry": {"max_attempts": 9, "backoff_ms": 100, "factor": 1},
    "tools": {"look": {"parameters": {"type": "object"}, "node": python(handler="m:look")}},
}
CALLS = {"done": False, "calls": [{"step": "look_1", "tool": "look", "arguments": {}}]}
TIMED_OUT = ErrorInfo(code="late", message="late", error_class=ErrorClass.TIMEOUT, retryable=True)
ABOVE = RunParent(run_id="above", step="sub", attempt=1, partition=0, dispatched_at_ms=1.0)


def charged(
    total: str, step: str | None = None, *, source: str = "g1", untold: bool = True
) -> RunCharged:
    total_usd = Decimal(total)
    return RunCharged(
        run_id="r1", tenant="t", source=source, total_usd=total_usd, step=step, untold=untold
    )


def code(play: Play) -> str | None:
    return None if play.run.error is None else play.run.error.code


def test_the_rounds_of_an_agent_whose_calls_were_cut_are_held_to_its_budget() -> None:
    play = Play({"ask": AGENT})
    for attempt, total in ((1, "0.05"), (2, "0.10")):
        failed = AttemptFinished(run_id="r1", step="ask#1", attempt=attempt, error=TIMED_OUT)
        play.send(failed)
        play.send(charged(total, "ask#1"))
        play.send(charged(total, "ask#1"))
        play.now_ms += 1_000
        play.send(TimerFired(run_id="r1", due_at_ms=play.now_ms))
    assert code(play) == "agent_budget_exhausted"
    assert play.run.spent_usd == play.run.cost_usd == Decimal("0.10")


@pytest.mark.parametrize("untold", [True, False])
def test_calls_that_name_a_tool_s_step_count_for_its_agent_after_a_takeover_too(
    *, untold: bool
) -> None:
    play = Play({"ask": AGENT})
    play.finish("ask#1", CALLS, spend=Spend(cost_usd=Decimal("0.01")))
    play.send(charged("0.06", "ask#1/look_1", untold=untold))
    play.run = play.read_back()
    play.send(charged("0.06", "ask#1/look_1", untold=untold))
    play.send(charged("0.09", "ask#1/look_1", untold=untold))
    play.finish("ask#1/look_1", {})
    assert code(play) == "agent_budget_exhausted"
    assert play.run.error is not None
    assert play.run.error.details["spent_usd"] == "0.10"
    assert play.run.cost_usd == Decimal("0.10")
    assert play.run.outside_usd == (0 if untold else Decimal("0.09"))


def test_calls_that_name_an_emitted_step_count_for_its_planner() -> None:
    emit = {"types": ["python"], "handlers": ["m:f"], "budget_usd": "0.05"}
    planner = {"type": "planning", "model": "m", "with": {"question": "?"}, "emit": emit}
    play = Play({"p": planner})
    play.finish("p", {"nodes": {"a": python(), "b": python(needs=["a"])}, "output": 1})
    play.send(charged("0.05", "p/a", untold=False))
    play.finish("p/a", 1)
    assert code(play) == "plan_budget_exhausted"


def test_other_steps_and_unknown_ones_are_charged_to_the_run_only() -> None:
    play = Play({"ask": AGENT, "a": python()})
    for total, step in (("0.2", "a"), ("0.4", "nobody"), ("0.6", None)):
        outcome = play.send(charged(total, step))
        assert outcome.run_changed
        assert outcome.changed == []
    play.finish("ask#1", CALLS)
    assert play.waiting() == ["a", "ask#1/look_1"]
    assert play.run.spent_usd == Decimal("0.6")


def test_charges_of_a_step_of_very_many_executions_are_forgotten_by_nobody() -> None:
    play = Play({"ask": AGENT | {"budget_usd": "100"}})
    for number in range(1, MAX_COUNTED + 9):
        play.send(charged(f"{number}", "ask#1"))
        spend = Spend(cost_usd=Decimal(1))
        told = AttemptFinished(run_id="r1", step="ask#1", attempt=1, delivery=number, spend=spend)
        play.send(told.model_copy(update={"error": TIMED_OUT}))
        play.run = play.read_back()
    children = play.run.steps["ask"].children
    assert children is not None
    assert children.spent_usd == play.run.spent_usd == 2 * (MAX_COUNTED + 8)


# ---- after the end --------------------------------------------------------------------------


@pytest.mark.parametrize("untold", [True, False])
def test_what_is_charged_after_the_end_counts_once_and_changes_no_end(*, untold: bool) -> None:
    play = Play({"a": python()})
    play.send(charged("0.1", untold=untold))
    play.finish("a", 1)
    for _ in range(2):
        outcome = play.send(charged("0.3", untold=untold))
        assert outcome.commands == []
    assert outcome.spender is None
    play.run = play.read_back()
    assert play.send(charged("0.3", untold=untold)).spender is None
    outcome = play.send(charged("0.2", source="g2", untold=untold))
    assert (outcome.spender, outcome.changed, outcome.run_changed) == (play.run, [], False)
    assert (play.run.status, play.run.cost_usd) == ("succeeded", Decimal("0.5"))
    assert play.run.outside_usd == (0 if untold else Decimal("0.5"))
    assert len(play.ends()) == 1


def test_the_run_above_is_told_what_a_run_was_charged_after_its_end() -> None:
    play = Play({"a": python()}, parent=ABOVE)
    play.finish("a", 1)
    play.send(charged("0.3"))
    play.send(charged("0.3"))
    assert len([one for one in play.commands if isinstance(one, TellSpending)]) == 1


def test_a_run_that_ended_counts_what_is_charged_below_it() -> None:
    play = Play({"a": {"type": "pipeline", "pipeline": "other"}})
    play.send(CancelRequested(run_id="r1"))
    told = AttemptFinished(
        run_id="r1",
        step="a",
        attempt=1,
        spend=Spend(cost_usd=Decimal("0.2")),
        outside_usd=Decimal("0.3"),
        error=TIMED_OUT,
        retold=True,
    )
    for _ in range(2):
        play.send(told)
        play.run = play.read_back()
    assert (play.run.spent_usd, play.run.outside_usd) == (Decimal("0.2"), Decimal("0.3"))


def test_a_run_that_postgres_refuses_is_not_charged() -> None:
    play = Play({"a": python()})
    play.finish("a", 1)
    play.run.error = RunNotStorable(reason="a number").info()
    assert play.send(charged("0.3")).spender is None
    assert play.run.cost_usd == 0


def test_an_ended_run_is_restored_whole_if_a_charge_cannot_be_applied() -> None:
    play = Play({"a": python()})
    play.send(charged("0.1"))
    play.send(charged("0.2", source="door", untold=False))
    play.finish("a", 1)
    rows = charges_row(play.run)
    event = charged("0.3", untold=False, source="door")
    before = SpentBefore(play.run, event)
    play.send(event)
    play.send(charged("0.5"))
    assert charges_row(play.run) != rows
    before.restore()
    assert charges_row(play.run) == rows
