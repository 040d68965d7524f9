"""Which attempts that failed are tried again, and when."""

from hocket.coordinator.core.run.state.messages import Dispatch
from hocket.schemas.errors import ErrorClass, ErrorInfo
from support.run_player import START_MS, Play, python

BUSY = ErrorInfo(code="busy", message="busy", error_class=ErrorClass.TRANSIENT)


def test_a_failed_attempt_is_tried_again_after_its_backoff_and_not_more_often_than_allowed() -> (
    None
):
    play = Play({"a": python(retry={"max_attempts": 2, "backoff_ms": 100})})
    play.finish("a", error=BUSY)
    assert play.run.steps["a"].state == "backoff"
    wait_ms = min(play.wakes) - START_MS
    assert 100 <= wait_ms <= 150
    play.fire()
    assert play.take("a").attempt == 2
    play.dispatched.append(next(c for c in play.commands[::-1] if isinstance(c, Dispatch)))
    play.finish("a", error=BUSY)
    assert play.run.status == "failed"


def test_a_retry_that_would_come_after_the_deadline_is_not_made() -> None:
    play = Play({"a": python(retry={"backoff_ms": 900})}, spec={"slo_ms": 1_000})
    play.now_ms += 100
    play.finish("a", error=BUSY)
    assert (play.run.status, play.run.error) == ("failed", BUSY)


def test_an_error_that_says_when_to_try_again_is_not_retried_before() -> None:
    play = Play({"a": python(retry={"max_attempts": 3, "backoff_ms": 100})})
    play.finish("a", error=BUSY.model_copy(update={"retry_at_ms": START_MS + 2_000.0}))
    assert min(play.wakes) == START_MS + 2_000
    play.fire()
    play.dispatched.append(next(c for c in play.commands[::-1] if isinstance(c, Dispatch)))
    play.finish("a", error=BUSY.model_copy(update={"retry_at_ms": START_MS + 2_001.0}))
    assert min(play.wakes) - play.now_ms >= 200, "its own backoff is the longer one"


def test_a_service_that_wants_to_be_asked_after_the_deadline_is_not_asked_again() -> None:
    late = BUSY.model_copy(update={"retry_at_ms": START_MS + 1_500.0})
    play = Play({"a": python(retry={"backoff_ms": 10})}, spec={"slo_ms": 1_000})
    play.finish("a", error=late)
    assert (play.run.status, play.run.error) == ("failed", late)
