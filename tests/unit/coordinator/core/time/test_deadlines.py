"""Retries, timeouts, deadlines, waits, cancellation."""

import pytest

from hocket.coordinator.core.run.state.messages import Dispatch
from hocket.coordinator.core.time.deadlines import TAIL_SD, Estimate, observe
from hocket.schemas.errors import ErrorClass, ErrorInfo
from hocket.schemas.messages import CancelRequested, SignalReceived, TimerFired
from support.run_player import START_MS, Play, python, request_of

BUSY = ErrorInfo(code="busy", message="busy", error_class=ErrorClass.TRANSIENT)
TIMED_OUT = ErrorInfo(code="attempt_timeout", message="slow", error_class=ErrorClass.TIMEOUT)


def fire(play: Play) -> None:
    """Let the earliest wake-up that was asked for come."""
    at_ms = min(play.wakes)
    play.wakes.remove(at_ms)
    play.now_ms = at_ms
    play.send(TimerFired(run_id="r1", due_at_ms=at_ms))


def test_a_failed_attempt_is_tried_again_after_its_backoff_and_not_more_often_than_allowed() -> (
    None
):
    play = Play({"a": python(retry={"max_attempts": 2, "backoff_ms": 100})})
    play.finish("a", error=BUSY)
    assert play.run.steps["a"].state == "backoff"
    wait_ms = min(play.wakes) - START_MS
    assert 100 <= wait_ms <= 150
    fire(play)
    assert play.take("a").attempt == 2
    play.dispatched.append(next(c for c in play.commands[::-1] if isinstance(c, Dispatch)))
    play.finish("a", error=BUSY)
    assert play.run.status == "failed"


def test_a_retry_that_would_come_after_the_deadline_is_not_made() -> None:
    play = Play({"a": python(retry={"backoff_ms": 5_000})}, spec={"slo_ms": 1_000})
    play.finish("a", error=BUSY)
    assert (play.run.status, play.run.error) == ("failed", BUSY)


def test_a_run_that_misses_its_deadline_expires_and_stops_its_steps() -> None:
    play = Play({"a": python()}, spec={"slo_ms": 1_000})
    fire(play)
    assert play.now_ms == START_MS + 1_000
    assert play.run.status == "expired"
    assert play.waiting() == []


@pytest.mark.parametrize(("late_ms", "status"), [(-1.0, "failed"), (0.0, "expired")])
def test_a_step_that_is_stopped_at_the_deadline_lets_the_run_expire(
    late_ms: float, status: str
) -> None:
    play = Play({"a": python()}, spec={"slo_ms": 1_000})
    play.now_ms = START_MS + 1_000 + late_ms
    play.finish("a", error=TIMED_OUT)  # what its worker says is in the log before the timer
    assert play.run.status is status
    assert play.run.error is not None
    assert play.run.error.code == (
        "deadline_exceeded" if status == "expired" else "attempt_timeout"
    )


def test_cancelling_starts_nothing_new() -> None:
    play = Play({"a": python(), "b": python(needs=["a"])})
    play.send(CancelRequested(run_id="r1", by="me", reason="enough"))
    assert play.run.status == "cancelled"
    assert play.waiting() == []
    assert "me" in play.run.error.message  # type: ignore[union-attr]


def test_a_steps_deadline_leaves_the_tail_of_the_path_behind_it() -> None:
    expect = {"mean_ms": 100, "sd_ms": 30}
    play = Play(
        {
            "a": python(),
            "b": python(needs=["a"], expect=expect),
            "c": python(needs=["b"], expect=expect),
        },
        spec={"slo_ms": 10_000},
    )
    request = request_of(play.dispatched[0])
    tail_ms = 200 + TAIL_SD * (30**2 + 30**2) ** 0.5
    assert abs(request.deadline_at_ms - (START_MS + 10_000 - tail_ms)) <= 0.001  # a microsecond


def test_durations_follow_what_is_measured() -> None:
    estimate: Estimate | None = None
    for _ in range(500):
        estimate = observe(estimate, 40.0)
    for _ in range(500):
        estimate = observe(estimate, 60.0)
    assert estimate is not None
    assert 59 < estimate.mean_ms < 61
    assert estimate.variance < 5


def test_an_infeasible_run_fails_at_once_where_the_pipeline_says_so() -> None:
    slow = {"mean_ms": 5_000}
    play = Play(
        {"a": python(), "b": python(needs=["a"], expect=slow)},
        spec={"slo_ms": 6_000, "on_infeasible": "fail"},
    )
    play.now_ms += 2_000
    play.finish("a")
    assert play.run.error is not None
    assert play.run.error.code == "deadline_infeasible"


def test_an_infeasible_run_leaves_optional_nodes_out_where_the_pipeline_says_so() -> None:
    nodes = {
        "a": python(),
        "extra": python(needs=["a"], optional=True, expect={"mean_ms": 5_000}),
        "b": python(needs=["a"]),
    }
    play = Play(nodes, spec={"slo_ms": 6_000, "on_infeasible": "degrade"})
    play.now_ms += 2_000
    play.finish("a")
    assert play.waiting() == ["b"]
    play.finish("b", 1)
    assert play.run.status == "degraded"


def test_an_approval_holds_no_worker_and_stops_the_deadlines_clock() -> None:
    play = Play({"ok": {"type": "approval"}, "b": python(needs=["ok"])}, spec={"slo_ms": 1_000})
    assert play.waiting() == []
    fire(play)
    assert play.run.status == "running"
    play.now_ms = START_MS + 5_000
    answer = {"approved": True, "note": "fine"}
    play.send(SignalReceived(run_id="r1", signal_id="s1", name="ok", payload=answer, by="ann"))
    assert play.run.deadline_at_ms == START_MS + 6_000
    assert play.take("b").input["ok"] == {"approved": True, "by": "ann", "note": "fine"}


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
    fire(play)
    assert play.run.error is not None
    assert play.run.error.code == "wait_timed_out"


def test_a_wake_up_that_became_stale_wakes_nobody() -> None:
    inner = {"x": python()}
    play = Play({"g": {"type": "graph", "nodes": inner, "timeout_ms": 100}, "z": python()})
    play.finish("g/x", 1)
    fire(play)
    assert play.run.steps["g"].state == "succeeded"
    assert play.run.status == "running"


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


def test_a_timeout_is_that_of_an_attempt_and_not_of_the_map_around_it() -> None:
    node = python(timeout_ms=100, map={"over": "[1, 2]", "concurrency": 1})
    play = Play({"m": node, "z": python()})
    assert min(play.wakes) == START_MS + 60_000  # the deadline: no wake-up of the map
    assert play.take("m[0]").timeout_ms == 100


def test_the_timeout_of_a_graph_holds_for_each_item_anew() -> None:
    graph = {"type": "graph", "timeout_ms": 100, "nodes": {"x": python()}}
    mapped = {"map": {"over": "[1, 2]", "concurrency": 1, "on_item_error": "skip"}}
    play = Play({"m": graph | mapped})
    fire(play)
    assert play.waiting() == ["m[1]/x"]
    play.finish("m[1]/x", 7)
    assert (play.run.status, play.run.output.value) == ("degraded", [None, 7])


def test_the_timeout_of_a_sub_pipeline_is_its_runs_deadline() -> None:
    play = Play({"c": {"type": "pipeline", "pipeline": "other", "timeout_ms": 100}})
    (started,) = play.subruns()
    assert started.accepted.deadline_at_ms == START_MS + 100
