"""Which runs rest: nobody works for them, and nothing is to be done soon."""

from hocket.coordinator.core.run.parking import NEVER_MS, rests_until
from hocket.schemas.errors import ErrorClass, ErrorInfo
from hocket.schemas.messages import AttemptFinished, CancelRequested, SignalReceived
from support.run_player import START_MS, Play, python

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
DAY = {"slo_ms": 24 * HOUR_MS}
BUSY = ErrorInfo(code="busy", message="busy", error_class=ErrorClass.TRANSIENT)


def rests(play: Play, quiet_ms: float = 3_000.0) -> float | None:
    return rests_until(play.run, quiet_ms=quiet_ms, now_ms=play.now_ms)


def approval(**fields: object) -> dict[str, object]:
    return {"type": "approval", "wait_ms": HOUR_MS} | fields


def test_a_run_that_waits_for_a_person_rests_until_the_wait_is_over() -> None:
    play = Play({"ask": approval()}, spec=DAY)
    assert rests(play) == START_MS + HOUR_MS


def test_the_deadline_wakes_it_where_that_comes_first() -> None:
    play = Play({"ask": approval()}, spec={"slo_ms": HOUR_MS // 2})
    assert rests(play) == START_MS + HOUR_MS // 2


def test_a_run_that_had_an_event_just_now_stays() -> None:
    play = Play({"ask": approval()}, spec=DAY)
    assert rests(play, quiet_ms=1_000.0) is None


def test_a_run_for_which_a_worker_works_stays() -> None:
    play = Play({"ask": approval(), "beside": python()}, spec=DAY)
    assert rests(play) is None
    play.finish("beside")
    assert rests(play) is not None


def test_a_wait_that_is_over_soon_stays() -> None:
    play = Play({"ask": approval(wait_ms=8_000)}, spec=DAY)
    assert rests(play) is None


def test_a_run_that_has_ended_does_not_rest() -> None:
    play = Play({"ask": approval()}, spec=DAY)
    play.send(CancelRequested(run_id="r1", by="me", reason="enough"))
    assert rests(play) is None


def test_a_parent_rests_later_for_its_sub_run_comes_back_sooner_than_a_person() -> None:
    play = Play({"sub": {"type": "pipeline", "pipeline": "child"}}, spec=DAY)
    assert rests(play, quiet_ms=3_000.0) is None
    assert rests(play, quiet_ms=31_000.0) == START_MS + DAY["slo_ms"]


def test_a_long_backoff_rests_and_a_short_one_stays() -> None:
    for backoff_ms, expected in ((2 * MINUTE_MS, True), (1_000, False)):
        retry = {"max_attempts": 3, "backoff_ms": backoff_ms, "max_backoff_ms": 3 * MINUTE_MS}
        play = Play({"a": python(retry=retry)}, spec=DAY)
        play.finish("a", error=BUSY)
        assert (rests(play, quiet_ms=31_000.0) is not None) is expected


def test_what_only_an_event_can_wake_rests_for_ever() -> None:
    play = Play({"ask": approval(pause_deadline=True)}, spec=DAY)
    run = play.run
    assert run.paused_at_ms is not None
    run.armed_at_ms = None
    assert rests_until(run, quiet_ms=3_000.0, now_ms=play.now_ms) == NEVER_MS


def test_a_run_that_was_read_back_goes_on_with_the_signal_it_waited_for() -> None:
    play = Play({"ask": approval(), "then": python(needs=["ask"])}, spec=DAY)
    play.run = play.read_back()
    play.send(
        SignalReceived(run_id="r1", signal_id="s", name="ask", payload={"approved": True}, by="me")
    )
    assert play.waiting() == ["then"]
    play.send(AttemptFinished(run_id="r1", step="then", attempt=1, output=1))
    assert play.run.has_ended
