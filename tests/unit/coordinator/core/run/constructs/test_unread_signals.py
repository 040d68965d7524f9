"""Signals that no step has read stand in the run's row, which is written with many events: they have a
bound together."""

from typing import Any

import pytest

from hocket.coordinator.core.run.constructs.waits import MAX_HELD_SIGNALS
from hocket.coordinator.core.run.state.run import MAX_READ_IDS
from hocket.schemas.messages import MAX_SIGNALS_BYTES, SignalReceived
from support.run_player import Play, python

NODES: dict[str, Any] = {
    "wait": {"type": "signal", "signal": "go"},
    "later": {"type": "signal", "signal": "later", "needs": ["wait"]},
    "end": python(needs=["later"]),
}
LARGE = "x" * (MAX_SIGNALS_BYTES // 2)


def send(play: Play, number: int, name: str, payload: Any) -> None:
    event = SignalReceived(
        run_id=play.run_id, signal_id=f"s{number}", name=name, payload=payload, by="b"
    )
    play.send(event)


@pytest.mark.parametrize("payload", [LARGE, {"deep": [LARGE]}])
def test_a_run_whose_unread_signals_are_too_large_fails_and_says_so(payload: Any) -> None:
    """58 MiB of them, and six small ones a second, kept every run of all tenants waiting for 15 s."""
    play = Play(NODES)
    send(play, 1, "nobody-waits-for-it", LARGE)
    assert play.run.status == "running"
    send(play, 2, "nobody-waits-for-it", payload)
    assert play.run.status == "failed"
    assert play.run.error is not None
    assert play.run.error.code == "signals_too_large"


def test_signals_that_steps_read_do_not_count() -> None:
    play = Play(NODES)
    for number, name in enumerate(("later", "go")):
        send(play, number, name, LARGE)
    assert play.run.status == "running"
    assert play.waiting() == ["end"]
    assert play.run.signals == ()
    send(play, 9, "more", LARGE)
    assert play.run.status == "running"


@pytest.mark.parametrize("note", ["x" * 1_000_000, {"why": ["x" * 1_000] * 1_000}])
def test_the_note_of_a_refusal_leaves_room_for_the_message_that_tells_it(note: Any) -> None:
    """Else the end of the run was larger than NATS takes, and was not told."""
    play = Play({"ask": {"type": "approval"}})
    send(play, 1, "ask", {"approved": False, "note": note})
    assert play.run.error is not None
    assert play.run.error.code == "approval_refused"
    assert len(play.run.error.model_dump_json()) < 8_000


def test_a_signal_that_no_step_has_read_is_kept_and_known_however_many_come_after_it() -> None:
    """The oldest was dropped without a word, and its repeat was taken as a new one."""
    play = Play(NODES)
    send(play, 0, "later", "early")
    for number in range(1, MAX_READ_IDS + 2):
        send(play, number, "nobody-waits-for-it", number)
    send(play, 0, "later", "repeated")
    assert [one.payload for one in play.run.signals if one.name == "later"] == ["early"]
    assert play.run.status == "running"
    send(play, 5_000, "go", None)
    assert play.waiting() == ["end"]
    assert play.run.steps["later"].output.value == "early"


def test_a_signal_that_was_read_is_known_as_a_repeat_among_many_that_nobody_reads() -> None:
    play = Play(NODES)
    send(play, 0, "go", "read")
    for number in range(1, MAX_READ_IDS + 2):
        send(play, number, "nobody-waits-for-it", number)
    send(play, 0, "go", "repeated")
    assert not [one for one in play.run.signals if one.name == "go"]


def test_a_run_with_more_unread_signals_than_can_be_on_their_way_fails_and_says_so() -> None:
    play = Play(NODES)
    for number in range(MAX_HELD_SIGNALS):
        send(play, number, "nobody-waits-for-it", None)
    assert play.run.status == "running"
    send(play, MAX_HELD_SIGNALS, "nobody-waits-for-it", None)
    assert play.run.error is not None
    assert play.run.error.code == "too_many_signals"
