"""A run read back as it was decided, whatever of it is written: an exception left it half changed."""

import threading
from decimal import Decimal
from typing import Any

import pytest

from hocket.coordinator.core.run.state.columns import KEPT_COLUMNS
from hocket.coordinator.core.run.state.restore import StoredRun, restored
from hocket.coordinator.core.run.state.values import NULL, json_of
from hocket.coordinator.storage import decided_rows as module
from hocket.coordinator.storage.decided_rows import as_decided, read_back
from hocket.coordinator.storage.pending_changes import Dirty
from hocket.schemas.messages import AttemptFinished, Spend
from support.run_player import OWNER, Play, python, stored
from support.runs.stored import assert_same

NODES = {
    "a": python(),
    "m": python(needs=["a"], map={"over": "[1, 2]"}),
    "g": {"type": "graph", "nodes": {"x": python()}},
}


def taken(play: Play, outcome: int, *, first: bool = False) -> Dirty:
    """Return what is to be written of an event that was just played."""
    dirty = Dirty(play.run)
    dirty.first = first
    done = play.outcomes[outcome]
    dirty.take(play.run, done.changed, run_changed=done.run_changed)
    return dirty


def let_go(play: Play, outcome: int) -> None:
    """Drop what the rows of an event have."""
    for step in play.outcomes[outcome].changed:
        step.let_go()


def test_what_a_run_let_go_stays_in_the_rows_of_before() -> None:
    play = Play(NODES)
    whole = stored(play.run)
    dirty = taken(play, 0, first=True)
    play.finish("a", {"k": 1})
    let_go(play, -1)
    assert play.run.steps["a"].input.is_in_row_only
    ended = taken(play, -1)  # the row of before is written, or not
    dirty.take(play.run, play.outcomes[-1].changed, run_changed=False)
    for found in (as_decided(whole, [ended]), as_decided(None, [dirty])):
        assert found is not None
        before = next(step for step in whole.steps if step["key"] == "a")
        after = next(step for step in found.steps if step["key"] == "a")
        assert after["state"] == "succeeded"
        for name in KEPT_COLUMNS:
            assert before[name] is not None
            assert after[name] == before[name]


def test_the_row_of_a_rejected_run_is_replaced_by_that_of_the_next_run_of_its_key() -> None:
    play = Play(NODES)
    whole = stored(play.run)
    other = {"pipeline": "other", "input": '{"other": 1}', "labels": '{"team": "a"}'}
    for status, kept in (("rejected", False), ("running", True)):
        before = StoredRun({**whole.row, **other, "status": status}, [])
        found = as_decided(before, [taken(play, 0, first=True)])
        assert found is not None
        assert [found.row[name] == other[name] for name in other] == [kept] * 3


def test_what_was_spent_after_the_end_is_added_to_rows_that_change_in_nothing_else() -> None:
    race = {"type": "race", "branches": {"fast": python(), "slow": python()}}
    play = Play({"r": race})
    play.finish("r~fast", {"k": 1})
    whole = stored(play.run)
    dirty = Dirty(play.run)
    for delivery in (1, 2):
        spend = Spend(cost_usd=Decimal("0.3"), charged_usd=Decimal("0.2"))
        late = {"step": "r~slow", "attempt": 1, "delivery": delivery, "spend": spend}
        spent = play.send(AttemptFinished(run_id="r1", **late)).spender
        dirty.take(play.run, (), run_changed=False, spender=spent)
    assert (dirty.row, dirty.steps, dirty.fault) == (None, {}, None)
    bare = StoredRun(whole.row, [{**step, "output": None} for step in whole.steps])
    found = as_decided(bare, [dirty])
    assert found is not None
    again = restored(found, play.compiled, OWNER)
    assert again.spent_usd == Decimal("0.6")
    assert again.steps["r~slow"].charged_usd == Decimal("0.4")
    assert again.steps["r~slow"].counted == play.run.steps["r~slow"].counted
    changed = {
        (before["key"], name)
        for before, after in zip(bare.steps, found.steps, strict=True)
        for name in before
        if before[name] != after[name]
    }
    assert changed == {("r~slow", "facts")}


def test_rows_are_those_of_the_moment_at_which_they_were_made() -> None:
    play = Play(NODES)
    begun = taken(play, 0, first=True)
    play.finish("a", {"k": 1})
    row = begun.steps["a"]
    assert row is not None
    assert "dispatched" in row


@pytest.mark.parametrize("written", [0, 1, 2, 3])
def test_what_is_not_written_is_laid_over_what_is(written: int) -> None:
    play = Play(NODES)
    parts = [taken(play, 0, first=True)]
    states: list[StoredRun | None] = [None, stored(play.run)]
    for key in ("a", "g/x"):
        play.finish(key, {"k": 1})
        parts.append(taken(play, -1))
        states.append(stored(play.run))
    found = as_decided(states[written], parts[written:])
    assert found is not None
    assert found.row["input"] == stored(play.run).row["input"]
    assert_same(restored(found, play.compiled, OWNER), play.run)


def test_a_run_that_is_nowhere_is_not_there() -> None:
    assert as_decided(None, []) is None


def test_what_kept_rows_from_being_made_is_told() -> None:
    play = Play(NODES)
    step = play.run.steps["a"]
    step.output = json_of("\ud800")
    dirty = Dirty(play.run)
    dirty.take(play.run, [step], run_changed=True)
    assert dirty.fault is not None
    step.output = NULL
    with pytest.raises(type(dirty.fault)):
        as_decided(stored(play.run), [dirty])


@pytest.mark.parametrize(
    ("many_steps", "facts", "value", "beside"),
    [
        (3, "{}", None, True),
        (4, "{}", None, False),
        (6, '{"emitted": 1}', None, True),
        (7, '{"emitted": 1}', None, False),
        (9, "{}", "1" * 1_000, True),
        (10, "{}", "1" * 1_000, False),
    ],
)
async def test_a_run_that_is_much_work_is_read_back_beside_everything_else(
    monkeypatch: pytest.MonkeyPatch, many_steps: int, facts: str, value: str | None, beside: bool
) -> None:
    threads: list[int] = []

    def restored_here(*arguments: Any) -> Any:
        threads.append(threading.get_ident())
        return arguments

    monkeypatch.setattr(module, "restored", restored_here)
    monkeypatch.setattr(module, "MANY_STEPS", many_steps)
    values = {"input": value, "output": value}
    given: Any = StoredRun({}, [values | {"facts": one} for one in (None, facts, "{}")])
    plan: Any = "plan"
    assert await read_back(given, plan, OWNER) == (given, plan, OWNER)
    assert [ident != threading.get_ident() for ident in threads] == [beside]
