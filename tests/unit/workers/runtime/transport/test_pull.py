"""The requests of one lane, and when their silence means that they are lost."""

from types import SimpleNamespace
from typing import Any

from hocket.workers.runtime.transport.pull import SILENCE_S, LanePull


class Bus:
    """A connected bus whose server says nothing."""

    connected = True
    losses = 0

    def __init__(self) -> None:
        self.nc = SimpleNamespace(new_inbox=lambda: "_INBOX.a")

    async def subscribe_raw(self, subject: str, callback: Any, **_: Any) -> Any:
        async def unsubscribe() -> None:
            return

        return SimpleNamespace(unsubscribe=unsubscribe, drain=unsubscribe)

    def publish_nowait(self, subject: str, payload: bytes, *, reply: str = "") -> None:
        return


async def opened() -> LanePull:
    bus: Any = Bus()
    lane = LanePull(
        bus,
        "python",
        "normal",
        1,
        ack_wait_s=1.0,
        deliver=lambda msg, lane: None,
        changed=lambda: None,
    )
    await lane.open()
    return lane


def be_silent(lane: LanePull) -> None:
    lane._pull._heard_at_s -= 2 * SILENCE_S


async def test_a_lane_of_which_nothing_was_asked_for_long_is_not_silent_when_it_is_asked() -> None:
    lane = await opened()
    be_silent(lane)
    lane.ask(1)
    lane.check()
    assert lane.is_open
    await lane.close()


async def test_a_lane_whose_requests_are_not_answered_for_long_is_opened_again() -> None:
    lane = await opened()
    lane.ask(1)
    be_silent(lane)
    lane.check()
    assert not lane.is_open
    await lane.close()
