"""When a run asks to be woken."""

from hocket.coordinator.core.run.commands import Wake
from hocket.schemas.errors import ErrorClass, ErrorInfo
from hocket.schemas.messages import AttemptFinished
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
