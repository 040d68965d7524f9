"""Handlers that wait: their step holds no worker, and goes on with what came."""

import json
from typing import Any

import pytest

from hocket.coordinator.core.run.commands import Wake
from hocket.coordinator.core.run.machine import resume
from hocket.coordinator.core.run.parking import rests_until
from hocket.coordinator.core.run.state.messages import Command
from hocket.coordinator.core.run.suspension import suspended as suspension
from hocket.coordinator.core.run.suspension.resumption import refusal_of
from hocket.schemas.errors import ErrorClass, ErrorInfo, PayloadTooLarge
from hocket.schemas.messages import (
    AttemptFinished,
    CancelRequested,
    HandlerPlace,
    HandlerWait,
    SignalReceived,
    StepRequested,
)
from support.run_player import START_MS, Play, python, stored

GO = HandlerWait(ordinal=1, signal="go")


def signal(play: Play, name: str = "go", payload: Any = None, number: int = 1) -> None:
    event = SignalReceived(
        run_id="r1", signal_id=f"s{number}", name=name, payload=payload, by="ann"
    )
    play.send(event)


def suspend(play: Play, *waits: HandlerWait, **fields: Any) -> None:
    play.now_ms += 10
    play.finish("a", waits=waits, **fields)


def resumed(play: Play) -> list[Command]:
    """Return what a new owner does for the run."""
    return resume(play.run, play.now_ms, play.forecast).commands


def ended(request: StepRequested) -> list[tuple[int, Any, bool]]:
    assert request.resumption is not None
    return [(one.ordinal, one.payload, one.timed_out) for one in request.resumption.ended]


def test_a_handler_that_waits_holds_no_worker_until_its_signal_comes() -> None:
    play = Play({"a": python(), "b": python(needs=["a"])})
    assert play.dispatched[0].step == "a"
    assert play.take("a").suspends
    play = Play({"a": python(), "b": python(needs=["a"])})
    suspend(play, GO)
    assert (play.waiting(), play.run.steps["a"].state) == ([], "waiting")
    signal(play, "other")
    assert play.waiting() == []
    signal(play, payload={"paid": 5}, number=2)
    request = play.take("a")
    assert (request.attempt, ended(request)) == (2, [(1, {"paid": 5}, False)])
    play.send(AttemptFinished(run_id="r1", step="a", attempt=2, output="done"))
    assert play.waiting() == ["b"]


def test_a_signal_that_came_before_is_taken_at_once_and_only_once() -> None:
    play = Play({"a": python()})
    signal(play, payload="early")
    signal(play, payload="early", number=1)
    suspend(play, GO)
    assert ended(play.take("a")) == [(1, "early", False)]
    assert play.run.signals == ()
    signal(play, payload="again", number=1)
    assert play.run.signals == ()


def test_what_is_not_in_the_journal_yet_comes_with_every_later_attempt() -> None:
    play = Play({"a": python()})
    two = HandlerWait(ordinal=2, scope="right/", signal="go")
    suspend(play, GO, two)
    signal(play, payload="first")
    suspend(play, two)
    assert play.run.steps["a"].ended[0].payload == "first"
    signal(play, payload="second", number=2)
    assert ended(play.take("a")) == [
        (1, "first", False),
        (2, "second", False),
    ]
    play.send(
        AttemptFinished(
            run_id="r1", step="a", attempt=3, waits=(HandlerWait(ordinal=3, signal="go"),),
            journaled=(HandlerPlace(ordinal=1), HandlerPlace(ordinal=2, scope="right/")),
        )
    )  # fmt: skip
    signal(play, payload="third", number=3)
    assert ended(play.take("a")) == [(3, "third", False)]


def test_a_wait_ends_at_its_moment_and_a_signal_that_comes_later_is_kept() -> None:
    play = Play({"a": python()}, spec={"slo_ms": 60_000})
    suspend(play, HandlerWait(ordinal=1, signal="go", until_ms=START_MS + 500.4))
    play.fire()
    assert play.now_ms == pytest.approx(START_MS + 500.4, abs=0.01)
    request = play.take("a")
    assert (request.attempt, ended(request)) == (2, [(1, None, True)])
    signal(play)
    assert [one.name for one in play.run.signals] == ["go"]


def test_one_of_several_waits_ends_and_the_others_keep_their_moment() -> None:
    play = Play({"a": python()}, spec={"slo_ms": 60_000})
    later = HandlerWait(ordinal=2, signal="stop", until_ms=START_MS + 9_000)
    suspend(play, GO, later)
    signal(play)
    request = play.take("a")
    assert request.resumption is not None
    assert request.resumption.waits == (later,)


def test_a_resumption_uses_up_no_retry() -> None:
    retry = {"max_attempts": 2, "on": ["transient"], "backoff_ms": 1}
    play = Play({"a": python(retry=retry)})
    for number in range(5):
        suspend(play, GO)
        signal(play, number=number)
    boom = ErrorInfo(code="boom", error_class=ErrorClass.TRANSIENT, message="no")
    play.finish("a", error=boom)
    assert play.run.steps["a"].state == "backoff"
    play.fire()
    assert play.take("a").attempt == 7
    play.send(AttemptFinished(run_id="r1", step="a", attempt=7, error=boom))
    assert play.run.status == "failed"


def test_a_retry_gets_what_came_before_it() -> None:
    retry = {"max_attempts": 2, "on": ["transient"], "backoff_ms": 1}
    play = Play({"a": python(retry=retry)})
    suspend(play, GO)
    signal(play, payload=7)
    boom = ErrorInfo(code="boom", error_class=ErrorClass.TRANSIENT, message="no")
    play.finish("a", error=boom)
    play.fire()
    assert ended(play.take("a")) == [(1, 7, False)]


@pytest.mark.parametrize("is_here", [False, True])
def test_another_owner_finds_all_that_a_suspended_step_waits_for(is_here: bool) -> None:
    play = Play({"a": python()}, spec={"slo_ms": 60_000})
    suspend(play, GO, HandlerWait(ordinal=2, until_ms=START_MS + 5_000))
    if is_here:
        signal(play, payload="x")
        suspend(play, HandlerWait(ordinal=2, until_ms=START_MS + 5_000))
    before = play.run
    assert rests_until(before, quiet_ms=2_000.0, now_ms=START_MS - 60_000) == START_MS + 5_000
    play.run = play.read_back()
    play.wakes = [one.at_ms for one in resumed(play) if isinstance(one, Wake)]
    step = play.run.steps["a"]
    assert (step.waits, step.ended) == (before.steps["a"].waits, before.steps["a"].ended)
    assert play.run.size_bytes == before.size_bytes
    assert play.wakes == [START_MS + 5_000]
    if is_here:
        play.fire()
        assert ended(play.take("a")) == [(1, "x", False), (2, None, True)]
    else:
        signal(play, payload="y")
        assert ended(play.take("a")) == [(1, "y", False)]


def test_a_run_that_is_cancelled_while_a_handler_waits_leaves_nothing() -> None:
    play = Play({"a": python()})
    suspend(play, GO)
    play.send(CancelRequested(run_id="r1", by="ann"))
    assert (play.run.status, play.run.steps["a"].state) == ("cancelled", "cancelled")
    signal(play)
    assert play.waiting() == []


def test_the_deadline_ends_a_run_whose_handler_waits_and_its_time_was_waiting() -> None:
    play = Play({"a": python()}, spec={"slo_ms": 1_000})
    suspend(play, GO, started_at_ms=START_MS, finished_at_ms=START_MS + 10)
    play.fire()
    assert play.run.status == "expired"
    spent = {kind: us for _, _, _, kind, us, _ in play.run.critical_path}
    assert spent == {"waiting": 990_000, "execution": 10_000}


def test_a_result_of_a_suspended_attempt_counts_once() -> None:
    play = Play({"a": python()})
    suspend(play, GO)
    for output in (None, "late"):
        play.send(AttemptFinished(run_id="r1", step="a", attempt=1, output=output))
    assert play.run.steps["a"].state == "waiting"


def test_a_handler_that_is_suspended_without_end_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspension, "MAX_SUSPENSIONS", 3)
    play = Play({"a": python()})
    for number in range(4):
        suspend(play, GO)
        signal(play, number=number)
    assert play.run.error is not None
    assert play.run.error.code == "too_many_suspensions"


def test_no_handler_waits_longer_than_its_journal_is_kept() -> None:
    month_ms = 30 * 86_400_000
    play = Play({"a": python()}, spec={"slo_ms": 2 * month_ms})
    suspend(play, GO, HandlerWait(ordinal=2, until_ms=START_MS + month_ms))
    play.fire()
    assert play.now_ms < START_MS + month_ms
    assert play.run.error is not None
    assert play.run.error.code == "suspended_too_long"


def test_a_step_that_only_sleeps_is_in_backoff_which_a_release_before_knows() -> None:
    """A coordinator of it hands the step out again when its time has come."""
    retry = {"max_attempts": 2, "on": ["transient"], "backoff_ms": 1}
    play = Play({"a": python(retry=retry)}, spec={"slo_ms": 60_000})
    boom = ErrorInfo(code="boom", error_class=ErrorClass.TRANSIENT, message="no")
    suspend(play, HandlerWait(ordinal=1, until_ms=START_MS + 5_000), error=boom)
    step = play.run.steps["a"]
    assert (step.state, step.error, step.wake_at_ms) == ("backoff", None, START_MS + 5_000)
    play.run = play.read_back()
    play.fire()
    assert ended(play.take("a")) == [(1, None, True)]
    play.send(AttemptFinished(run_id="r1", step="a", attempt=2, error=boom))
    play.fire()
    assert ended(play.take("a")) == [(1, None, True)]


def test_steps_that_wait_for_one_name_get_one_signal_each() -> None:
    play = Play({"a": python(map={"over": "[1, 2]"})})
    for key in ("a[0]", "a[1]"):
        play.finish(key, waits=(GO,))
    signal(play, payload="one")
    signal(play, payload="two", number=2)
    assert [ended(play.take(key))[0][1] for key in ("a[0]", "a[1]")] == ["one", "two"]


def test_the_row_of_a_waiting_step_says_what_it_waits_for_and_until_when() -> None:
    play = Play({"a": python(), "s": {"type": "signal", "signal": "go", "wait_ms": 500}})
    suspend(play, HandlerWait(ordinal=1, signal="yes"), HandlerWait(ordinal=2, signal="no"))
    facts = {row["key"]: json.loads(row["facts"] or "{}") for row in stored(play.run).steps}
    assert facts["a"]["waits_for"] == ["yes", "no"]
    assert "waits_until_ms" not in facts["a"]
    assert (facts["s"]["waits_for"], facts["s"]["waits_until_ms"]) == (["go"], START_MS + 500)


def test_a_step_that_is_too_large_with_a_signal_says_with_which() -> None:
    play = Play({"a": python()}, input={"x": "X" * 150_000})
    too_large = PayloadTooLarge(size_bytes=1_150_000, limit_bytes=1_032_192)
    assert refusal_of(play.run, "a", too_large) == too_large.info(), "no signal has come"
    signal(play, payload="G" * 1_000_000)
    signal(play, "stop", number=2)
    suspend(play, GO, HandlerWait(ordinal=2, signal="stop"))
    error = refusal_of(play.run, "a", too_large)
    assert (error.code, error.error_class) == ("payload_too_large", ErrorClass.INVALID)
    assert error.message.startswith("`a` cannot resume with the signal `go`:")
    assert "1150000 bytes; the limit is 1032192" in error.message
    assert refusal_of(play.run, "a", ValueError("no")).code == "message_not_sendable"


def test_a_signal_without_which_a_step_would_still_be_too_large_is_not_named() -> None:
    play = Play({"a": python()})
    suspend(play, GO)
    signal(play, payload="G" * 10_000)
    by_more = PayloadTooLarge(size_bytes=1_050_000, limit_bytes=1_032_192)
    assert refusal_of(play.run, "a", by_more) == by_more.info()
    by_less = PayloadTooLarge(size_bytes=1_040_000, limit_bytes=1_032_192)
    assert "signal `go`" in refusal_of(play.run, "a", by_less).message
