"""A run read back as it was decided, whatever of it is written: an exception left it half changed."""

import pytest

from hocket.coordinator.core.run.state.columns import KEPT_COLUMNS
from hocket.coordinator.core.run.state.restore import StoredRun, restored
from hocket.coordinator.core.run.state.values import NULL, json_of
from hocket.coordinator.storage.decided_rows import as_decided
from hocket.coordinator.storage.pending_changes import Dirty
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
