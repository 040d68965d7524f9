"""Runs that wait to start: accepted, without a step, until they are told to go on."""

from typing import Any

from hocket.coordinator.core.flow.entry import waits_for_flow
from hocket.coordinator.core.run.commands import WaitForFlow
from hocket.coordinator.core.run.machine import resume
from hocket.coordinator.core.run.parking import rests_until
from hocket.coordinator.core.run.state.columns import FLOW_COLUMNS
from hocket.coordinator.core.run.state.rows import flow_rows
from hocket.schemas.errors import ErrorClass, ErrorInfo
from hocket.schemas.messages import CancelRequested, FlowDecided
from support.run_player import START_MS, Play, python

HOUR_MS = 3_600_000.0
FLOW = {
    "slo_ms": HOUR_MS,
    "flow": {
        "throttle": {"limit": 3, "per_s": 60},
        "concurrency": {"limit": 2, "key": "{{ input.customer }}"},
    },
}
SKIPPED = ErrorInfo(code="flow_skipped", message="no", error_class=ErrorClass.CANCELLED)


def play(**given: Any) -> Play:
    nodes = {"a": python(), "b": python(needs=["a"])}
    return Play(nodes, spec=FLOW, input=given or {"customer": "acme"})


def places(played: Play) -> WaitForFlow:
    (found,) = [one for one in played.commands if isinstance(one, WaitForFlow)]
    return found


def test_a_run_says_where_it_waits_and_starts_no_step() -> None:
    played = play(customer="acme")
    assert [(one.kind, one.key) for one in places(played).places] == [
        ("concurrency", "acme"),
        ("throttle", ""),
    ]
    assert played.waiting() == []
    assert waits_for_flow(played.run)


def test_a_pipeline_without_flow_waits_for_nothing() -> None:
    played = Play({"a": python()})
    assert played.waiting() == ["a"]
    assert not any(isinstance(one, WaitForFlow) for one in played.commands)
    assert not waits_for_flow(played.run)


def test_a_run_that_is_told_to_go_on_starts_and_ends_like_any_other() -> None:
    played = play()
    played.send(FlowDecided(run_id="r1"))
    assert played.waiting() == ["a"]
    assert played.work(lambda request: request.step).status == "succeeded"


def test_a_run_that_is_told_twice_starts_once() -> None:
    played = play()
    played.send(FlowDecided(run_id="r1"))
    played.send(FlowDecided(run_id="r1"))
    assert played.seen == ["a"]
    played.finish("a")
    played.send(FlowDecided(run_id="r1", refused=SKIPPED))
    assert played.run.status == "running"
    assert played.waiting() == ["b"]


def test_a_run_that_is_refused_ends_with_why() -> None:
    played = play()
    played.send(FlowDecided(run_id="r1", refused=SKIPPED))
    assert played.run.status == "cancelled"
    assert played.run.error == SKIPPED
    assert played.seen == []


def test_a_run_that_waits_is_cancelled() -> None:
    played = play()
    played.send(CancelRequested(run_id="r1", by="me", reason="enough"))
    assert played.run.status == "cancelled"
    played.send(FlowDecided(run_id="r1"))
    assert played.seen == []


def test_a_run_that_waits_beyond_its_deadline_expires() -> None:
    played = play()
    played.fire()
    assert played.run.status == "expired"
    assert played.now_ms == START_MS + HOUR_MS


def test_a_run_that_was_read_back_waits_on_and_starts_when_told() -> None:
    played = play()
    played.run = played.read_back()
    assert waits_for_flow(played.run)
    assert resume(played.run, played.now_ms, played.forecast).changed == []
    played.send(FlowDecided(run_id="r1"))
    assert played.waiting() == ["a"]


def test_a_run_that_waits_leaves_the_memory_soon() -> None:
    played = play()
    at_ms = rests_until(played.run, quiet_ms=3_000.0, now_ms=played.now_ms)
    assert at_ms == START_MS + HOUR_MS


def test_a_run_without_a_key_fails_and_says_which() -> None:
    played = play(customer=None)
    assert played.run.status == "failed"
    assert played.run.error is not None
    assert played.run.error.code == "flow_key_invalid"
    assert "flow.concurrency.key" in played.run.error.message
    assert not any(isinstance(one, WaitForFlow) for one in played.commands)


def test_a_place_s_row_says_which_gate_is_the_last() -> None:
    played = play()
    rows = flow_rows(played.run, places(played))
    found = [dict(zip(FLOW_COLUMNS, row, strict=True)) for row in rows]
    assert [(row["gate"], row["kind"], row["is_last"]) for row in found] == [
        (0, "concurrency", False),
        (1, "throttle", True),
    ]
    assert found[0]["rule"] == '{"limit":2}'
    assert found[0]["accepted_at"] == START_MS


def test_the_time_before_its_start_is_time_that_it_waited() -> None:
    played = play()
    played.now_ms += 5_000
    played.send(FlowDecided(run_id="r1"))
    played.work(lambda request: request.step)
    waited_us = sum(piece[4] for piece in played.run.critical_path if piece[3] == "waiting")
    assert waited_us == 5_000_000
