"""Approvals and signals: steps that wait for people and for messages."""

from typing import Any

import pytest

from hocket.coordinator.core.run.state.run import DISPATCHED
from hocket.schemas.errors import ErrorClass, ErrorInfo
from hocket.schemas.messages import AttemptFinished, SignalReceived
from support.run_player import START_MS, Play, python


def test_an_approval_holds_no_worker_and_stops_the_deadlines_clock() -> None:
    play = Play({"ok": {"type": "approval"}, "b": python(needs=["ok"])}, spec={"slo_ms": 1_000})
    assert play.waiting() == []
    play.fire()
    assert play.run.status == "running"
    play.now_ms = START_MS + 5_000
    answer = {"approved": True, "note": "fine"}
    play.send(SignalReceived(run_id="r1", signal_id="s1", name="ok", payload=answer, by="ann"))
    assert play.run.deadline_at_ms == START_MS + 6_000
    assert play.take("b").input["ok"] == {"approved": True, "by": "ann", "note": "fine"}


@pytest.mark.parametrize(
    "waited",
    [
        {"ok": {"type": "approval"}},
        {"ok": {"type": "approval", "wait_ms": 5_000, "optional": True}},
        {"ok": {"type": "signal", "signal": "ok", "pause_deadline": True}},
        {"ok": {"type": "race", "branches": {"ok": {"type": "approval"}, "b": python()}}},
        {
            "before": {"type": "approval"},
            "ok": {"type": "approval", "needs": ["before"]},
        },
    ],
    ids=["answered", "timed out", "signal", "race", "two"],
)
def test_what_follows_a_wait_has_the_deadline_that_the_wait_moved(waited: dict[str, Any]) -> None:
    play = Play({**waited, "b": python(needs=["ok"])}, spec={"slo_ms": 1_000})
    play.now_ms = START_MS + 5_000
    if "before" in waited:
        send(play, "before")
    if waited["ok"].get("optional"):
        play.fire()
        play.fire()
    elif waited["ok"]["type"] == "race":
        play.finish("ok~b")
    else:
        send(play, "ok")
    request = play.take("b")
    assert request.run_deadline_at_ms == play.run.deadline_at_ms == START_MS + 6_000
    assert request.deadline_at_ms > play.now_ms
    assert request.timeout_ms == 1_000


def test_a_step_that_begins_while_somebody_is_waited_for_is_not_hurried() -> None:
    """Its time limit is its own, and its slack what it would be if the wait were over."""
    nodes = {
        "ok": {"type": "approval"},
        "a": python(),
        "b": python(needs=["a"], timeout_ms=800, retry={"max_attempts": 2, "backoff_ms": 0}),
        "sub": {"type": "pipeline", "pipeline": "child", "needs": ["a"]},
    }
    play = Play(nodes, spec={"slo_ms": 1_000})
    play.fire()
    play.now_ms = START_MS + 5_000
    play.finish("a")
    for attempt in (1, 2):
        request = play.take("b")
        assert request.attempt == attempt
        assert request.run_deadline_at_ms is not None
        assert request.run_deadline_at_ms > play.now_ms + 1_000_000
        assert request.timeout_ms == 800
        assert 0 < request.slack_ms <= 1_000
        if attempt == 1:
            error = ErrorInfo(code="busy", message="", error_class=ErrorClass.TRANSIENT)
            play.send(AttemptFinished(run_id="r1", step="b", attempt=1, error=error))
            play.fire()
    (sub,) = play.subruns()
    assert play.now_ms < sub.accepted.deadline_at_ms <= play.now_ms + 1_000
    assert play.run.steps["sub"].state == DISPATCHED


def test_a_refused_approval_fails_its_step() -> None:
    play = Play({"ok": {"type": "approval"}})
    play.send(
        SignalReceived(run_id="r1", signal_id="s", name="ok", payload={"approved": False}, by="x")
    )
    assert play.run.error is not None
    assert play.run.error.code == "approval_refused"


def test_a_signal_that_comes_early_or_twice_is_used_once() -> None:
    play = Play({"a": python(), "s": {"type": "signal", "signal": "go", "needs": ["a"]}})
    for _ in range(2):
        play.send(SignalReceived(run_id="r1", signal_id="s1", name="go", payload=5))
    assert len(play.run.signals) == 1
    play.finish("a")
    assert play.run.output.value == 5


def test_a_wait_that_nobody_answers_times_out() -> None:
    play = Play({"s": {"type": "signal", "signal": "go", "wait_ms": 500}})
    play.fire()
    assert play.run.error is not None
    assert play.run.error.code == "wait_timed_out"


def test_a_deadline_stands_still_until_the_last_pausing_wait_has_ended() -> None:
    play = Play({"a": {"type": "approval"}, "b": {"type": "approval"}}, spec={"slo_ms": 1_000})
    play.now_ms += 400
    yes = {"approved": True}
    play.send(SignalReceived(run_id="r1", signal_id="1", name="a", payload=yes))
    assert (play.run.deadline_at_ms, play.run.pausing) == (START_MS + 1_000, 1)
    play.now_ms += 5_000
    play.send(SignalReceived(run_id="r1", signal_id="2", name="b", payload=yes))
    assert play.run.status == "succeeded"


def test_signals_of_one_name_go_to_the_steps_that_wait_in_the_order_of_their_keys() -> None:
    wait = {"type": "signal", "signal": "go", "map": {"over": "[1, 2]"}}
    play = Play({"m": wait})
    play.send(SignalReceived(run_id="r1", signal_id="1", name="go", payload="first"))
    play.send(SignalReceived(run_id="r1", signal_id="2", name="go", payload="second"))
    assert play.run.output.value == ["first", "second"]


def send(play: Play, name: str) -> None:
    answer = {"approved": True}
    play.send(SignalReceived(run_id="r1", signal_id=name, name=name, payload=answer, by="ann"))
