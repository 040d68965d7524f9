"""A run read back from its rows is the run that was written, at every moment of its life."""

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.coordinator.core.run.state.restore import restored
from hocket.coordinator.core.run.state.rows import run_row
from hocket.schemas.errors import ErrorClass, ErrorInfo
from hocket.schemas.messages import AttemptFinished, CacheAnswered, SignalReceived, Timing
from support.run_player import OWNER, Play, python, stored
from support.runs.stored import assert_same, read_back

BUSY = ErrorInfo(code="busy", message="busy", error_class=ErrorClass.TRANSIENT)
EVERYTHING = {
    "plan": {
        "type": "planning",
        "model": "m",
        "with": {"question": "?"},
        "emit": {"types": ["python", "graph"], "handlers": ["m:f"], "max_steps": 5, "max_depth": 2},
    },
    "m": python(
        needs=["plan"],
        map={"over": "input.xs", "concurrency": 2, "on_item_error": "skip"},
        loop={"until": "round >= 2"},
        retry={"max_attempts": 2},
        **{"with": {"x": "{{ item }}", "r": "{{ round }}"}},
    ),
    "r": {
        "type": "race",
        "needs": ["plan"],
        "branches": {
            "a": python(),
            "b": python(map={"over": "[1, 2]"}, **{"with": {"i": "{{ item }}"}}),
        },
        "pick": "best",
        "score": "1",
    },
    "g": {
        "type": "graph",
        "with": {"q": "{{ nodes.plan.output }}"},
        "nodes": {"x": python(), "y": python(needs=["x"], optional=True), "z": python(needs=["y"])},
    },
    "f": python(needs=["m"], fallback=[{"on": ["timeout"], "node": python()}, {"node": python()}]),
    "s": {"type": "signal", "signal": "go", "needs": ["g"]},
    "c": python(needs=["plan"], cache={"ttl_ms": 1_000}, map={"over": "input.xs"}),
    "last": python(needs=["f", "s", "r", "c"], when="true"),
}
EMITTED = {
    "nodes": {"i": python(), "j": {"type": "graph", "needs": ["i"], "nodes": {"k": python()}}}
}


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_run_is_restored_at_every_moment(data: st.DataObject) -> None:
    play = Play(EVERYTHING, input={"xs": [1, 2, 3]})
    assert_same(read_back(play), play.run)
    for _ in range(80):
        if play.run.has_ended:
            assert read_back(play).critical_path == play.run.critical_path
            return
        looking = [s for s in play.run.steps.values() if s.state == "looking_up"]
        if looking and data.draw(st.booleans()):
            step = looking[0]
            hit = data.draw(st.booleans())
            play.send(
                CacheAnswered(
                    run_id="r1",
                    step=step.key,
                    key=step.cache_key or "",
                    hit=hit,
                    output=[1] if hit else None,
                    computed_by_run="r2" if hit else "",
                    saved_usd=Decimal("0.001"),
                )
            )
        elif not play.dispatched:
            play.send(SignalReceived(run_id="r1", signal_id="s1", name="go", payload=1))
        else:
            place = data.draw(st.integers(0, len(play.dispatched) - 1))
            key = play.dispatched[place].step
            fails = data.draw(st.integers(0, 9)) == 0
            output = EMITTED if key == "plan" else {"k": key}
            timed = data.draw(st.booleans())
            play.finish(
                key,
                None if fails else output,
                BUSY if fails else None,
                queued_at_ms=play.now_ms if timed else 0.0,
                started_at_ms=play.now_ms + 0.5 if timed else 0.0,
                finished_at_ms=play.now_ms + 1.25 if timed else 0.0,
                timing=Timing(model_ms=0.25, cache_ms=0.5) if timed else None,
            )
        if not play.run.has_ended:
            assert_same(read_back(play), play.run)
            backoffs = [s for s in play.run.steps.values() if s.state == "backoff"]
            if backoffs and not play.dispatched:
                from hocket.schemas.messages import TimerFired

                at_ms = max(s.wake_at_ms or 0 for s in backoffs)
                play.now_ms = max(play.now_ms, at_ms)
                play.send(TimerFired(run_id="r1", due_at_ms=at_ms))


def test_held_results_and_unread_signals_are_restored() -> None:
    play = Play({"a": python(), "b": python(needs=["a"])})
    play.send(AttemptFinished(run_id="r1", step="b", attempt=1, output=[1]))
    play.send(SignalReceived(run_id="r1", signal_id="x", name="n", payload={"a": 1}, by="me"))
    assert_same(read_back(play), play.run)


def test_a_nul_character_is_replaced_before_it_reaches_postgres() -> None:
    play = Play({"a": python()})
    play.finish("a", {"t": "a\x00b"})
    assert run_row(play.run)[8] == '{"t":"a\ufffdb"}'


def test_half_a_surrogate_pair_is_refused_at_the_door() -> None:
    body = '{"run_id":"r","step":"s","attempt":1,"output":"\\ud800"}'
    with pytest.raises(ValueError, match="Invalid JSON"):
        AttemptFinished.model_validate_json(body)


@pytest.mark.parametrize(
    ("value", "in_postgres"),
    [
        ({"n": 6.02e23}, '{"n": 602000000000000000000000.0}'),
        ([-1e19, 1.7976931348623157e308], f"[-1{'0' * 19}.0, 17976931348623157{'0' * 292}.0]"),
        ([10**20, 2**63], None),
        ({"t": '\\"10000000000000000000'}, None),
        ([12345678901234567890, 10**18, 2**63 - 1, 0.12345678901234568], None),
        ([123456789012345678901234567890, 10**400], None),
    ],
)
def test_doubles_and_integers_come_back_as_they_were(
    value: object, in_postgres: str | None
) -> None:
    play = Play({"a": python(), "b": {"type": "signal", "signal": "go", "needs": ["a"]}})
    play.finish("a", value)
    rows = stored(play.run)
    for row in rows.steps:
        if row["key"] == "a" and in_postgres is not None:
            row["output"] = in_postgres
    again = restored(rows, play.compiled, OWNER).steps["a"].output
    assert repr(again.value) == repr(value)
    assert again.text == play.run.steps["a"].output.text
    assert again.size == play.run.steps["a"].output.size
