"""Steps that waited for a slot until it was too late: what the run makes of it when it is asked."""

from typing import Any

import pytest

from hocket.coordinator.core.run.infeasible import LAST_MOMENT_SD
from hocket.schemas.errors import ErrorClass, ErrorInfo, HeldTooLong
from support.run_player import START_MS, Play
from support.runs.infeasible import DEGRADE, FAIL, draft, pass_to, takes

HELD = HeldTooLong().info()
BUSY = ErrorInfo(code="busy", message="busy", error_class=ErrorClass.TRANSIENT)
TOO_LATE_MS = 5_500
"""`draft` takes 4 s and `end` 1 s; the deadline is at 10 s."""
LONG_AGO_MS = 4_200
LAST_START_MS = 10_000 - 1_000 - 500 - LAST_MOMENT_SD * 100 - 4_000
"""It is given up when there is just the time for `end` and for its own fast variant (500 ms, sd 100)."""


def held(at_ms: float, **spec: Any) -> Play:
    """A run whose `draft` waited for its turn until then, as the gate tells."""
    start_by_ms = LAST_START_MS if "nodes" not in spec else 5_000
    nodes = spec.pop("nodes", draft())
    play = Play(nodes, spec=spec)
    play.finish("a")
    assert play.dispatched[0].start_by_at_ms == pytest.approx(START_MS + start_by_ms)
    pass_to(play, at_ms)
    play.finish("draft", error=HELD)
    return play


def test_a_run_that_is_too_late_when_its_step_has_its_turn_fails_without_running_it() -> None:
    nodes = {name: node | {"fast": None} for name, node in draft().items()}
    play = held(TOO_LATE_MS, nodes=nodes, **FAIL)
    assert play.run.status == "failed"
    assert play.run.error is not None
    assert play.run.error.code == "deadline_infeasible"
    assert play.waiting() == []


def test_the_fast_variant_serves_when_the_turn_of_its_node_came_too_late() -> None:
    play = held(TOO_LATE_MS, **DEGRADE)
    assert play.waiting() == ["draft!0"]
    assert play.dispatched[0].start_by_at_ms is None
    play.finish("draft!0", "short")
    play.finish("end", "done")
    assert play.run.status == "degraded"


def test_an_optional_node_is_left_out_when_its_turn_came_too_late() -> None:
    nodes = draft() | {"draft": takes(4_000, needs=["a"], optional=True)}
    play = held(TOO_LATE_MS, nodes=nodes, **DEGRADE)
    assert play.run.steps["draft"].state == "failed"
    assert play.waiting() == ["end"]


def test_a_step_that_is_not_too_late_goes_out_and_is_not_asked_for_again() -> None:
    play = held(LONG_AGO_MS, **DEGRADE)
    assert [d.step for d in play.dispatched] == ["draft"]
    assert play.dispatched[0].start_by_at_ms is None
    play.finish("draft", "long")
    play.finish("end", "done")
    assert (play.run.status, play.run.output.value) == ("succeeded", "done")


def test_a_step_that_a_worker_gave_back_goes_out_under_another_name() -> None:
    play = Play(draft(), spec=DEGRADE)
    play.finish("a")
    pass_to(play, LONG_AGO_MS)
    play.finish("draft", error=HELD, started_at_ms=1.0, finished_at_ms=1.0)
    assert [d.attempt for d in play.dispatched] == [2]
    assert play.dispatched[0].start_by_at_ms is None
    play.finish("draft", "long")
    assert play.waiting() == ["end"]


def test_an_attempt_that_a_worker_gave_back_takes_no_retry_of_its_step() -> None:
    nodes = draft()
    nodes["draft"] |= {"retry": {"max_attempts": 2, "backoff_ms": 1}}
    play = Play(nodes, spec=DEGRADE)
    play.finish("a")
    pass_to(play, LONG_AGO_MS)
    play.finish("draft", error=HELD, started_at_ms=1.0, finished_at_ms=1.0)
    play.run = play.read_back()
    play.finish("draft", error=BUSY)
    assert play.run.steps["draft"].state == "backoff"
    play.fire()
    assert [d.attempt for d in play.dispatched] == [3]
    play.finish("draft", error=BUSY)
    assert play.run.steps["draft"].state == "failed"


def test_a_node_that_nothing_can_stand_in_for_is_not_asked_about() -> None:
    nodes = draft() | {
        "draft": takes(4_000, needs=["a"]),
        "extra": takes(10, needs=["a"], optional=True),
    }
    play = Play(nodes, spec=DEGRADE)
    play.finish("a")
    asked = {d.step: d.start_by_at_ms is not None for d in play.dispatched}
    assert asked == {"draft": False, "extra": True}


def test_a_turn_that_came_for_an_attempt_that_nobody_waits_for_changes_nothing() -> None:
    play = held(LONG_AGO_MS, **DEGRADE)
    dispatch = play.dispatched[0]
    play.finish("draft", "long")
    before = play.run
    play.dispatched.append(dispatch)
    play.finish("draft", error=HELD)
    assert play.run == before


def test_a_run_that_only_hopes_is_never_asked() -> None:
    play = Play({"a": takes(1_000)}, spec={"slo_ms": 10_000})
    assert play.dispatched[0].start_by_at_ms is None
