"""An attempt that its worker gives back is handed out again, as long as nobody has ended it."""

from hocket.schemas.messages import AttemptReturned
from support.run_player import Play, python


def play() -> Play:
    return Play({"a": python(), "b": python(needs=["a"])})


def given_back(player: Play, attempt: int = 1, after_ms: float = 0.0) -> list[str]:
    """Give step a back; return what is handed out because of it."""
    before = len(player.seen)
    at_ms = player.run.steps["a"].dispatched_at_ms
    assert at_ms is not None
    player.send(
        AttemptReturned(run_id="r1", step="a", attempt=attempt, dispatched_at_ms=at_ms + after_ms)
    )
    return player.seen[before:]


def test_an_attempt_that_is_open_is_handed_out_again_as_the_same() -> None:
    player = play()
    first = player.dispatched[0]
    assert given_back(player) == ["a"]
    again = player.dispatched[-1]
    assert again.again
    assert (again.msg_id, again.attempt) == (first.msg_id, first.attempt)


def test_its_other_worker_is_told_when_the_result_has_come() -> None:
    player = play()
    given_back(player)
    player.finish("a", 1)
    told = [c.reason for c in player.commands if type(c).__name__ == "CancelAttempt"]
    assert told == ["its result has arrived"]


def test_one_that_has_ended_and_another_one_are_not() -> None:
    player = play()
    assert given_back(player, attempt=2) == []
    assert given_back(player, after_ms=1.0) == []
    player.finish("a", 1)
    assert given_back(player) == []
