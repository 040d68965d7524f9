"""Signals that no step has read stand in the run's row, which is written with many events: they have a
bound together."""

from typing import Any

import pytest

from hocket.coordinator.core.run.state import RunStatus
from hocket.coordinator.core.waiting.waits import MAX_SIGNALS_BYTES
from hocket.schemas.messages import SignalReceived
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
    assert play.run.status is RunStatus.RUNNING
    send(play, 2, "nobody-waits-for-it", payload)
    assert play.run.status is RunStatus.FAILED
    assert play.run.error is not None
    assert play.run.error.code == "signals_too_large"


def test_signals_that_steps_read_do_not_count() -> None:
    play = Play(NODES)
    for number, name in enumerate(("later", "go")):
        send(play, number, name, LARGE)
    assert play.run.status is RunStatus.RUNNING
    assert play.waiting() == ["end"]
    assert play.run.signals == ()
    send(play, 9, "more", LARGE)
    assert play.run.status is RunStatus.RUNNING
