"""What a run has spent, and what its budget still allows."""

from decimal import Decimal

from hocket.coordinator.core.run.commands import CancelAttempt
from hocket.coordinator.core.run.machine import resume
from hocket.coordinator.core.run.state.messages import Dispatch
from hocket.schemas.errors import ErrorClass, ErrorInfo
from hocket.schemas.messages import AttemptFinished, RunFinished, Spend, TimerFired
from support.run_player import Play, python

BUSY = ErrorInfo(code="busy", message="busy", error_class=ErrorClass.TRANSIENT)
RETRY = {"max_attempts": 3, "backoff_ms": 100, "factor": 1}


def result(step: str, *, cost: str = "0.02", attempt: int = 1, delivery: int = 1, **more):
    spend = Spend(calls=1, cost_usd=Decimal(cost))
    return AttemptFinished(
        run_id="r1", step=step, attempt=attempt, delivery=delivery, spend=spend, **more
    )


def ended(play: Play) -> RunFinished:
    (end,) = play.ends()
    return end


def test_a_result_that_comes_again_costs_once() -> None:
    play = Play({"a": python(), "b": python(needs=["a"])})
    for _ in range(3):
        play.send(result("a", output=1))
    assert play.run.spent_usd == Decimal("0.02")


def test_two_deliveries_of_one_attempt_both_cost() -> None:
    play = Play({"a": python(), "b": python(needs=["a"])})
    play.send(result("a", delivery=1, output=1))
    play.send(result("a", delivery=2, output=2))
    assert play.run.spent_usd == Decimal("0.04")


def test_what_ran_twice_under_one_number_costs_as_much_as_the_dearer() -> None:
    play = Play({"a": python(), "b": python(needs=["a"])})
    play.send(result("a", cost="0.02", output=1))
    play.send(result("a", cost="0.05", output=1))
    play.send(result("a", cost="0.03", output=1))
    assert play.run.spent_usd == Decimal("0.05")


def test_a_result_before_its_step_costs_once() -> None:
    play = Play({"a": python(), "b": python(needs=["a"]), "c": python(needs=["b"])})
    play.send(result("b", output=2))
    assert play.run.spent_usd == 0
    play.finish("a", 1)
    assert play.run.spent_usd == Decimal("0.02")
    assert play.run.steps["b"].output.value == 2


def test_every_attempt_of_a_step_costs() -> None:
    play = Play({"a": python(retry=RETRY)})
    for attempt in (1, 2, 3):
        play.send(result("a", attempt=attempt, error=BUSY))
        if attempt < 3:
            play.now_ms += 1_000
            play.send(TimerFired(run_id="r1", due_at_ms=play.now_ms))
    assert play.run.spent_usd == Decimal("0.06")


def test_no_further_attempt_begins_once_the_budget_is_spent() -> None:
    play = Play({"a": python(retry=RETRY)}, spec={"budget_usd": 0.02})
    play.send(result("a", error=BUSY))
    play.now_ms += 1_000
    play.send(TimerFired(run_id="r1", due_at_ms=play.now_ms))
    assert ended(play).status == "failed"
    assert ended(play).error is not None
    assert ended(play).error.code == "budget_exhausted"  # type: ignore[union-attr]
    assert len(play.seen) == 1


def test_a_budget_of_nothing_allows_what_costs_nothing() -> None:
    nodes = {"a": python(), "b": python(needs=["a"]), "c": python(needs=["b"])}
    play = Play(nodes, spec={"budget_usd": 0})
    play.finish("a", 1)
    assert play.waiting() == ["b"]
    play.send(result("b", output=1))
    assert ended(play).status == "failed"


def test_a_sub_run_gets_what_is_left_and_never_less_than_nothing() -> None:
    nodes = {
        "a": python(),
        "b": {"type": "pipeline", "pipeline": "other"},
        "c": python(needs=["b"]),
    }
    play = Play(nodes, spec={"budget_usd": 0.05})
    play.send(result("a", cost="0.09", output=1))
    assert play.subruns()[0].accepted.budget_usd == Decimal("0.05")
    again = resume(play.run, play.now_ms, play.forecast)
    (child,) = [c.accepted for c in again.commands if hasattr(c, "accepted")]
    assert child.budget_usd == 0


def test_a_run_whose_deadline_passed_dispatches_nothing_more() -> None:
    play = Play({"a": python(retry=RETRY)}, spec={"slo_ms": 1_000})
    play.send(AttemptFinished(run_id="r1", step="a", attempt=1, error=BUSY))
    play.now_ms += 5_000
    before = len(play.commands)
    play.send(TimerFired(run_id="r1", due_at_ms=play.now_ms))
    assert ended(play).status == "expired"
    assert not [c for c in play.commands[before:] if isinstance(c, Dispatch | CancelAttempt)]
