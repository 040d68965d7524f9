"""A message is settled once, with its last step, and never on behalf of one that may be another's."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from nats.js.errors import NotFoundError

from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.nats.identity import Identity
from hocket.workers.runtime.execution.background import Background
from hocket.workers.runtime.transport.acks import Acks
from hocket.workers.runtime.transport.settlement import Settlement
from hocket.workers.runtime.transport.step_message import PostedResult, StepMessage

ACK = "$JS.ACK.STEPS.c.1.7.1.0.0"


class Bus:
    """Stands for the bus: what was said of messages, what was posted, and which message is stored."""

    def __init__(self) -> None:
        self.losses = 0
        self.identity = Identity()
        self.js = self
        self.acked: list[str] = []
        self.said: list[bytes] = []
        self.posted: list[tuple[str, dict[str, Any]]] = []
        self.is_away = False
        self.stored = "r:a:1"

    def ack(self, *ack_subjects: str) -> None:
        self.acked.extend(ack_subjects)

    def publish_nowait(self, subject: str, payload: bytes) -> None:
        assert subject == ACK
        self.said.append(payload)

    async def publish(self, subject: str, payload: bytes) -> None:
        if self.is_away:
            raise BusUnavailable(reason="it is away")
        self.posted.append((subject, json.loads(payload)))

    async def get_msg(self, stream: str, seq: int) -> Any:
        if not self.stored:
            raise NotFoundError
        return SimpleNamespace(headers={"Nats-Msg-Id": self.stored})


class Rig:
    """The settlement of the attempts of one message."""

    def __init__(self, steps: int = 1) -> None:
        bus: Any = Bus()
        self.bus: Bus = bus
        self.acks = Acks(bus)
        self.background = Background("python")
        self.settlement: Any = Settlement(bus, self.acks, self.background)
        self.message = StepMessage(ACK, 0, 0.0, b"NATS/1.0\r\nNats-Msg-Id: r:a:1\r\n\r\n")
        self.message.hold(steps)

    def attempt(self, name: str = "a") -> Any:
        step = SimpleNamespace(
            run_id="r", step=name, attempt=1, dispatched_at_ms=5.0, capability="c", partition=3
        )
        posted = PostedResult(f"r:{name}:1", 5.0, "c", 3, b"{}")
        return SimpleNamespace(id=f"r:{name}:1", step=step, message=self.message, posted=posted)

    async def acked(self) -> list[str]:
        await self.background.ended()
        self.acks.send()
        return self.bus.acked


async def test_a_bundle_is_acknowledged_with_the_last_of_its_steps() -> None:
    rig = Rig(steps=3)
    rig.settlement.acknowledge(rig.attempt("a"))
    rig.settlement.end(rig.attempt("b"))
    assert await rig.acked() == []
    rig.settlement.acknowledge(rig.attempt("c"))
    assert await rig.acked() == [ACK]
    assert rig.bus.said == [], "one step of it says nothing for the others"


async def test_a_step_of_a_bundle_is_given_back_through_the_log_and_the_others_go_on() -> None:
    rig = Rig(steps=2)
    rig.settlement.send_back(rig.attempt("a"), 2.0)
    assert await rig.acked() == []
    ((subject, returned),) = rig.bus.posted
    assert subject == "hocket.log.3.returned"
    given = {"run_id": "r", "step": "a", "attempt": 1, "dispatched_at_ms": 5.0, "capability": "c"}
    assert given.items() <= returned.items()
    rig.settlement.acknowledge(rig.attempt("b"))
    assert await rig.acked() == [ACK]


async def test_a_bundle_stays_in_the_stream_where_a_step_of_it_cannot_be_given_back() -> None:
    rig = Rig(steps=2)
    rig.bus.is_away = True
    rig.settlement.send_back(rig.attempt("a"))
    rig.settlement.acknowledge(rig.attempt("b"))
    assert (await rig.acked(), rig.bus.said) == ([], [])


@pytest.mark.parametrize(
    ("after_s", "said"), [(0.0, b"-NAK"), (1.5, b'-NAK {"delay": 1500000000}')]
)
async def test_a_step_of_its_own_goes_back_at_once_or_after_a_delay(
    after_s: float, said: bytes
) -> None:
    rig = Rig()
    rig.settlement.send_back(rig.attempt(), after_s)
    assert (rig.bus.said, rig.bus.posted) == ([said], [])


async def test_nothing_is_said_of_a_message_that_another_step_may_have_replaced() -> None:
    rig = Rig()
    rig.bus.losses = 1
    rig.settlement.in_progress(rig.message, 9.0)
    rig.settlement.send_back(rig.attempt())
    rig.settlement.end(rig.attempt())
    assert (rig.bus.said, rig.message.touched_s) == ([], 0.0)
    rig.settlement.recognise(rig.message)
    await rig.background.ended()
    rig.settlement.in_progress(rig.message, 9.0)
    rig.settlement.end(rig.attempt())
    assert (rig.bus.said, rig.message.touched_s) == ([b"+WPI", b"+TERM"], 9.0)


@pytest.mark.parametrize(("stored", "acked"), [("r:a:1", [ACK]), ("r:other:1", []), ("", [])])
async def test_after_a_lost_connection_a_result_ends_the_message_only_if_it_is_still_its_own(
    stored: str, acked: list[str]
) -> None:
    rig = Rig()
    rig.bus.losses, rig.bus.stored = 1, stored
    rig.settlement.acknowledge(rig.attempt())
    assert await rig.acked() == acked
