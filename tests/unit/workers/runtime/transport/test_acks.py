"""A step is acknowledged as itself only: after a lost connection another may have its place."""

from types import SimpleNamespace
from typing import Any

from nats.js.errors import NotFoundError

from hocket.kit.nats.consumers.delivery import Delivery
from hocket.kit.nats.identity import Identity
from hocket.schemas.messages import Priority
from hocket.schemas.structs.steps import RequestedStep
from hocket.workers.runtime.execution.attempt import Attempt
from hocket.workers.runtime.transport.acks import Acks

ACK = "$JS.ACK.STEPS.c.1.7.1.0.0"


class Bus:
    """Stands for the bus: what was acknowledged, and which message is at which place."""

    def __init__(self, stored: dict[int, str]) -> None:
        self.losses = 0
        self.identity = Identity()
        self.acked: list[str] = []
        self.js = self
        self._stored = stored

    def ack(self, *ack_subjects: str) -> None:
        self.acked.extend(ack_subjects)

    async def get_msg(self, stream: str, seq: int) -> Any:
        if seq not in self._stored:
            raise NotFoundError
        return SimpleNamespace(headers={"Nats-Msg-Id": self._stored[seq]})


def attempt(**given: Any) -> Attempt:
    step = RequestedStep(
        run_id="r",
        tenant="t",
        pipeline="p",
        version=1,
        step="a",
        node="a",
        type="python",
        attempt=1,
        input=None,
        config={},
        deadline_at_ms=1.0,
        slack_ms=1.0,
        timeout_ms=1.0,
        priority=Priority.STANDARD,
        partition=0,
        epoch=1,
        **given,
    )
    return Attempt(step, ACK, Delivery(1, 7, 1, 0, 0), b"", 0.0, 0)


async def test_what_waits_is_not_sent_over_another_connection() -> None:
    bus = Bus({7: "r:a:1"})
    acks: Any = Acks(bus)  # type: ignore[arg-type]
    acks.add(attempt())
    bus.losses += 1
    acks.send()
    assert bus.acked == []


async def test_a_message_that_is_still_there_is_recognised() -> None:
    bus = Bus({7: "r:a:1:5000:c"})
    held = attempt(dispatched_at_ms=5.0, capability="c")
    acks = Acks(bus)  # type: ignore[arg-type]
    bus.losses += 1
    assert not acks.known(held)
    assert await acks.recognise(held)
    acks.add(held)
    acks.send()
    assert bus.acked == [ACK]


async def test_another_step_in_its_place_is_left_alone() -> None:
    bus = Bus({7: "r:other:1"})
    acks, held = Acks(bus), attempt()  # type: ignore[arg-type]
    bus.losses += 1
    assert not await acks.recognise(held)


async def test_one_that_was_delivered_again_is_looked_up_where_it_came_from_last() -> None:
    """A server that lost its power has another step at its last place, and this one at its first."""
    for stored, is_known in (
        ({7: "r:a:1:5000:c", 8: "r:other:1"}, False),
        ({8: "r:a:1:5000:c"}, True),
    ):
        bus = Bus(stored)
        acks = Acks(bus)  # type: ignore[arg-type]
        held = attempt(dispatched_at_ms=5.0, capability="c")
        again = attempt(dispatched_at_ms=5.0, capability="c")
        again.ack_subject = ACK.replace(".7.", ".8.")
        held.delivered_again(again)
        bus.losses += 1
        assert await acks.recognise(held) is is_known
        assert acks.known(held) is is_known


async def test_a_message_that_is_gone_stays_unknown() -> None:
    bus = Bus({})
    acks, held = Acks(bus), attempt()  # type: ignore[arg-type]
    bus.losses += 1
    assert not await acks.recognise(held)


async def test_a_guest_looks_nothing_up_because_it_may_not_read_the_stream() -> None:
    bus = Bus({})
    bus.identity = Identity("guest")
    bus.js = None  # type: ignore[assignment]
    acks, held = Acks(bus), attempt()  # type: ignore[arg-type]
    bus.losses += 1
    assert not await acks.recognise(held)
