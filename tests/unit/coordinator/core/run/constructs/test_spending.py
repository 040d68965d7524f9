"""What a run has spent, and what its budget still allows."""

from decimal import Decimal

import pytest

from hocket.coordinator.core.run.commands import CancelAttempt, RecordAttempt
from hocket.coordinator.core.run.machine import resume
from hocket.coordinator.core.run.state import charges
from hocket.coordinator.core.run.state.messages import Dispatch, TellSpending
from hocket.schemas.errors import ErrorClass, ErrorInfo
from hocket.schemas.messages import (
    AttemptFinished,
    CancelRequested,
    RootBudget,
    RunCharged,
    RunFinished,
    RunParent,
    Spend,
    TimerFired,
)
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


def test_what_was_charged_besides_model_calls_is_kept_with_its_step_once_an_execution() -> None:
    play = Play({"a": python(retry=RETRY), "b": python(needs=["a"])})
    spend = Spend(calls=1, cost_usd=Decimal("0.05"), charged_usd=Decimal("0.02"))
    failed = AttemptFinished(run_id="r1", step="a", attempt=1, delivery=1, spend=spend, error=BUSY)
    for _ in range(2):
        play.send(failed)
    play.fire()
    charged = Spend(cost_usd=Decimal("0.03"), charged_usd=Decimal("0.9"))
    play.send(AttemptFinished(run_id="r1", step="a", attempt=2, spend=charged, output=1))
    assert play.run.spent_usd == Decimal("0.08")
    assert play.run.steps["a"].charged_usd == Decimal("0.05")
    assert play.read_back().steps["a"].charged_usd == Decimal("0.05")


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


def test_sub_runs_at_every_depth_know_the_budget_at_the_top() -> None:
    nodes = {"a": python(), "b": {"type": "pipeline", "pipeline": "other"}}
    top = Play(nodes, spec={"budget_usd": 0.9})
    assert top.take("a").root_budget is None  # it is its own
    child = top.subruns()[0].accepted
    assert child.parent is not None
    expected = RootBudget(run_id="r1", budget_usd=Decimal("0.9"), spent_usd=Decimal(0))
    assert child.parent.root_budget == expected
    below = Play(nodes, parent=child.parent, run_id=child.run_id, spec={"budget_usd": 0.9})
    assert below.take("a").root_budget == expected
    lowest = below.subruns()[0].accepted.parent
    assert lowest is not None
    assert lowest.root_budget == expected
    free = Play(nodes).subruns()[0].accepted.parent
    assert free is not None
    assert free.root_budget is None


@pytest.mark.parametrize(
    ("left", "own", "budget"),
    [("0.5", 0.2, "0.2"), ("0.1", 0.2, "0.1"), (None, 0.2, "0.2"), ("0.5", None, "0.5")],
)
def test_a_sub_run_has_what_is_left_above_or_its_own_budget_if_that_is_less(
    left: str | None, own: float | None, budget: str
) -> None:
    play = Play(
        {"a": python()},
        parent=RunParent(run_id="above", step="sub", attempt=1, partition=0),
        spec={} if own is None else {"budget_usd": own},
        given_usd=None if left is None else Decimal(left),
    )
    assert play.run.budget_usd == Decimal(budget)


def test_sub_runs_of_a_sub_run_with_its_own_budget_share_that_where_nobody_above_has_one() -> None:
    nodes = {"a": python(), "b": {"type": "pipeline", "pipeline": "other"}}
    above = RunParent(run_id="above", step="sub", attempt=1, partition=0)
    play = Play(nodes, parent=above, spec={"budget_usd": 0.2})
    assert play.take("a").root_budget is None
    child = play.subruns()[0].accepted.parent
    assert child is not None
    root = RootBudget(run_id="r1", budget_usd=Decimal("0.2"), spent_usd=Decimal(0))
    assert child.root_budget == root


def test_sub_runs_know_what_had_been_spent_above_them() -> None:
    nodes = {"a": python(), "b": {"type": "pipeline", "pipeline": "other", "needs": ["a"]}}
    play = Play(nodes, spec={"budget_usd": 0.9})
    play.send(result("a", cost="0.3", output=1))
    child = play.subruns()[0].accepted.parent
    below = Play(nodes, parent=child, spec={"budget_usd": 0.2})
    below.send(result("a", cost="0.1", output=1))
    lowest = below.subruns()[0].accepted.parent
    assert lowest is not None
    root = RootBudget(run_id="r1", budget_usd=Decimal("0.9"), spent_usd=Decimal("0.4"))
    assert lowest.root_budget == root


def test_a_run_whose_deadline_passed_dispatches_nothing_more() -> None:
    play = Play({"a": python(retry=RETRY)}, spec={"slo_ms": 1_000})
    play.send(AttemptFinished(run_id="r1", step="a", attempt=1, error=BUSY))
    play.now_ms += 5_000
    before = len(play.commands)
    play.send(TimerFired(run_id="r1", due_at_ms=play.now_ms))
    assert ended(play).status == "expired"
    assert not [c for c in play.commands[before:] if isinstance(c, Dispatch | CancelAttempt)]


# ---- what attempts tell after the end of their run ----------------------------------------------

STOPPED = ErrorInfo(code="cancelled", message="stopped", error_class=ErrorClass.CANCELLED)
CHARGED = Spend(calls=1, cost_usd=Decimal("0.7"), charged_usd=Decimal("0.5"))
ABOVE = RunParent(run_id="above", step="sub", attempt=1, partition=0, dispatched_at_ms=1.0)


def late(step: str, *, delivery: int = 1, error: ErrorInfo | None = STOPPED) -> AttemptFinished:
    return AttemptFinished(
        run_id="r1", step=step, attempt=1, delivery=delivery, error=error, spend=CHARGED
    )


@pytest.mark.parametrize("end", ["race", "cancel", "deadline"])
def test_what_an_attempt_had_spent_when_its_run_ended_counts_once(end: str) -> None:
    race = {"type": "race", "branches": {"fast": python(), "slow": python()}}
    play = Play({"r": race}, spec={"slo_ms": 1_000})
    if end == "race":
        play.finish("r~fast", 1)
    elif end == "cancel":
        play.send(CancelRequested(run_id="r1"))
    else:
        play.fire()
    status, slow = play.run.status, play.run.steps["r~slow"]
    assert play.run.has_ended
    assert slow.state == "cancelled"
    first = play.send(late("r~slow"))
    assert (first.changed, first.run_changed, first.spender) == ([], False, slow)
    play.run = play.read_back()  # as an event finds it that comes a while later
    assert play.send(late("r~slow")).spender is None
    play.send(late("r~slow", delivery=2))
    assert play.run.status == status
    assert play.run.spent_usd == Decimal("1.4")
    assert play.run.steps["r~slow"].charged_usd == Decimal("1.0")
    assert not [c for c in play.commands if isinstance(c, TellSpending)]


def test_a_late_result_that_cost_nothing_changes_no_spending() -> None:
    play = Play({"a": python()})
    play.send(CancelRequested(run_id="r1"))
    outcome = play.send(late("a", error=None).model_copy(update={"spend": Spend()}))
    assert outcome.spender is None
    assert [one.outcome for one in outcome.commands if isinstance(one, RecordAttempt)] == ["late"]


def test_the_run_above_is_told_what_a_run_spent_after_its_end() -> None:
    play = Play({"a": python()}, parent=ABOVE)
    play.send(CancelRequested(run_id="r1"))
    for _ in range(2):
        play.send(late("a"))
    (told,) = [c for c in play.commands if isinstance(c, TellSpending)]
    assert told.run.spent_usd == Decimal("0.7")


@pytest.mark.parametrize("ended", [False, True])
def test_what_a_sub_run_tells_again_adds_what_is_news_and_is_no_attempt(*, ended: bool) -> None:
    nodes = {"a": {"type": "pipeline", "pipeline": "other"}, "b": python(needs=["a"])}
    play = Play(nodes)
    first = result("a", cost="0.2", delivery=0, output=1)
    play.send(first)
    if ended:
        play.send(CancelRequested(run_id="r1"))
    more = Spend(cost_usd=Decimal("0.9"))
    for _ in range(2):
        play.send(first.model_copy(update={"spend": more, "retold": True}))
        play.run = play.read_back()
    assert play.run.spent_usd == Decimal("0.9")
    assert play.run.steps["a"].state == "succeeded"
    assert not [c for c in play.commands if isinstance(c, RecordAttempt)]


def test_a_sub_run_whose_end_was_lost_ends_its_step_with_what_it_tells_again() -> None:
    play = Play({"a": {"type": "pipeline", "pipeline": "other"}})
    play.send(result("a", cost="0.2", delivery=0, output=1, retold=True))
    assert (play.run.status, play.run.spent_usd) == ("succeeded", Decimal("0.2"))


def test_a_run_that_ended_counts_what_its_sub_run_had_spent() -> None:
    play = Play({"a": {"type": "pipeline", "pipeline": "other"}})
    play.send(CancelRequested(run_id="r1"))
    play.send(result("a", cost="0.2", delivery=0, error=STOPPED))
    assert play.run.spent_usd == Decimal("0.2")


# ---- what calls cost of which no step tells ---------------------------------------------------

SUB_RUN = {"type": "pipeline", "pipeline": "other"}


def charge(total: str, *, source: str = "g1", tenant: str = "t") -> RunCharged:
    return RunCharged(run_id="r1", tenant=tenant, source=source, total_usd=Decimal(total))


def test_what_a_source_tells_again_or_late_counts_once() -> None:
    play = Play({"a": python()})
    for total in ("0.01", "0.03", "0.03", "0.02"):
        play.send(charge(total))
    play.send(charge("0.5", source="g2"))
    play.send(result("a", cost="0.1", output=1))
    assert (play.run.spent_usd, play.run.outside_usd) == (Decimal("0.1"), Decimal("0.53"))
    assert ended(play).cost_usd == Decimal("0.63")


def test_another_tenant_charges_no_run() -> None:
    play = Play({"a": python()})
    outcome = play.send(charge("0.5", tenant="other"))
    assert not outcome.run_changed
    assert play.run.cost_usd == 0


def test_the_next_step_and_the_sub_run_know_what_the_run_was_charged() -> None:
    nodes = {"a": python(), "b": python(needs=["a"]), "c": {**SUB_RUN, "needs": ["a"]}}
    play = Play(nodes, spec={"budget_usd": 1})
    play.send(charge("0.6"))
    play.finish("a", 1, spend=Spend(cost_usd=Decimal("0.1")))
    assert play.take("b").budget_left_usd == Decimal("0.3")
    assert play.subruns()[0].accepted.budget_usd == Decimal("0.3")


def test_a_run_whose_budget_is_charged_whole_begins_no_further_attempt() -> None:
    play = Play({"a": python(), "b": python(needs=["a"])}, spec={"budget_usd": 1})
    play.send(charge("1"))
    play.finish("a", 1)
    error = ended(play).error
    assert error is not None
    assert error.code == "budget_exhausted"
    assert "spent 1 USD" in error.message
    assert play.seen == ["a"]


def test_a_restart_keeps_what_a_run_was_charged_by_whom() -> None:
    play = Play({"a": python(), "b": python(needs=["a"])}, spec={"budget_usd": 1})
    play.send(charge("0.2", source="z"))
    play.send(charge("0.3", source="a-longer-name"))
    play.run = play.read_back()
    assert play.run.charges is not None
    assert list(play.run.charges) == ["z", "a-longer-name"]
    play.send(charge("0.2", source="z"))
    play.send(charge("0.4", source="a-longer-name"))
    assert play.run.cost_usd == Decimal("0.6")


def test_sources_that_fell_silent_are_put_together_and_none_is_lost() -> None:
    play = Play({"a": python()})
    sources = 3 * charges.MAX_SOURCES
    for number in range(sources):
        play.send(charge("0.01", source=f"g{number}"))
        play.send(charge(f"{number + 1}", source="steady"))
        play.run = play.read_back()
    assert play.run.cost_usd == sources + Decimal("0.01") * sources
    assert play.run.charges is not None
    assert len(play.run.charges) <= charges.MAX_SOURCES + len(charges.RESERVED)


def test_a_parent_counts_what_its_sub_run_was_charged_once() -> None:
    nodes = {"a": SUB_RUN, "b": python(needs=["a"])}
    play = Play(nodes, spec={"budget_usd": 1})
    told = result("a", cost="0.2", output=1, outside_usd=Decimal("0.3"))
    for _ in range(3):
        play.send(told)
        play.run = play.read_back()
    assert (play.run.spent_usd, play.run.outside_usd) == (Decimal("0.2"), Decimal("0.3"))
    assert play.take("b").budget_left_usd == Decimal("0.5")
