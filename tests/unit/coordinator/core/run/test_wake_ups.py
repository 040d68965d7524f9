"""When a run asks to be woken."""

from hocket.coordinator.core.run.commands import Wake
from hocket.schemas.errors import ErrorClass, ErrorInfo
from hocket.schemas.messages import AttemptFinished, HandlerWait, SignalReceived
from support.run_player import Play, python

BUSY = ErrorInfo(code="busy", message="busy", error_class=ErrorClass.TRANSIENT)
RETRIED = python(retry={"max_attempts": 3, "backoff_ms": 500})


def wakes_after_failing(play: Play) -> list[float]:
    request = play.take("a")
    failed = AttemptFinished(
        run_id=play.run_id, step="a", attempt=request.attempt, output=None, error=BUSY
    )
    commands = play.send(failed).commands
    return [command.at_ms for command in commands if isinstance(command, Wake)]


def test_a_wake_up_whose_time_is_over_covers_no_later_one() -> None:
    play = Play({"a": RETRIED})
    play.run.armed_at_ms = play.now_ms - 1  # its event was applied before the log was rewound

    assert wakes_after_failing(play) == [play.run.steps["a"].wake_at_ms]


def test_an_earlier_wake_up_that_is_to_come_covers_a_later_one() -> None:
    play = Play({"a": RETRIED})
    play.run.armed_at_ms = play.now_ms + 1

    assert wakes_after_failing(play) == []


def test_a_wake_up_that_became_stale_wakes_nobody() -> None:
    inner = {"x": python()}
    play = Play({"g": {"type": "graph", "nodes": inner, "timeout_ms": 100}, "z": python()})
    play.finish("g/x", 1)
    play.fire()
    assert play.run.steps["g"].state == "succeeded"
    assert play.run.status == "running"


def test_a_wait_that_is_over_before_its_handler_is_suspended_again_wakes_it() -> None:
    """The moment came while the handler was running: its event has been in the log, which drops a
    second one for the same moment."""
    play = Play({"a": python()})
    until_ms = play.now_ms + 10_000
    timed = HandlerWait(ordinal=1, signal="go", until_ms=until_ms)
    play.finish("a", waits=(timed, HandlerWait(ordinal=2, signal="other")))
    play.now_ms += 1_000
    play.send(SignalReceived(run_id="r1", signal_id="s1", name="other", by="ann"))
    play.fire()
    assert play.now_ms == until_ms
    play.now_ms += 5_000
    play.finish("a", waits=(timed,))
    assert [at_ms for at_ms in play.wakes if at_ms <= play.now_ms] == [play.now_ms]
    play.fire()
    assert play.waiting() == ["a"]
