"""Runs that end before their steps do: expired and cancelled ones."""

import pytest

from hocket.schemas.errors import ErrorClass, ErrorInfo
from hocket.schemas.messages import CancelRequested
from support.run_player import START_MS, Play, python

TIMED_OUT = ErrorInfo(code="attempt_timeout", message="slow", error_class=ErrorClass.TIMEOUT)


def test_a_run_that_misses_its_deadline_expires_and_stops_its_steps() -> None:
    play = Play({"a": python()}, spec={"slo_ms": 1_000})
    play.fire()
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
