"""A step is acknowledged as itself only: after a lost connection another may have its place."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from nats.js.errors import NotFoundError

from hocket.kit.nats.identity import Identity
from hocket.workers.runtime.transport import acks as module
from hocket.workers.runtime.transport.acks import Acks
from hocket.workers.runtime.transport.step_message import PostedResult, StepMessage

ACK = "$JS.ACK.STEPS.c.1.7.1.0.0"


class Bus:
    """Stands for the bus: what was acknowledged, and which message is at which place."""

    def __init__(self, stored: dict[int, str]) -> None:
        self.losses = 0
        self.identity = Identity()
        self.acked: list[str] = []
        self.posted: list[tuple[str, bytes, str]] = []
        self.away = 0
        """How often it does not answer."""
        self.js = self
        self._stored = stored

    async def publish_durable(self, subject: str, payload: bytes, *, msg_id: str) -> None:
        self.posted.append((subject, payload, msg_id))

    def ack(self, *ack_subjects: str) -> None:
        self.acked.extend(ack_subjects)

    async def get_msg(self, stream: str, seq: int) -> Any:
        if self.away:
            self.away -= 1
            raise TimeoutError
        if seq not in self._stored:
            raise NotFoundError
        return SimpleNamespace(headers={"Nats-Msg-Id": self._stored[seq]})


def message(msg_id: str = "r:a:1", *results: str, steps: int = 1) -> StepMessage:
    head = f"NATS/1.0\r\nNats-Msg-Id: {msg_id}\r\n\r\n".encode()
    made = StepMessage(ACK, 0, 0.0, head)
    made.hold(steps)
    for attempt_id in results or ("r:a:1",):
        made.results.append(PostedResult(attempt_id, None, None, 0, b"{}"))
    return made


async def settled(acks: Any) -> None:
    while acks._repeating is not None and not acks._repeating.done():
        await acks._repeating


async def test_what_waits_is_looked_up_before_it_is_sent_over_another_connection() -> None:
    for stored, acked in (("r:a:1", [ACK]), ("r:other:1", [])):
        bus = Bus({7: stored})
        acks: Any = Acks(bus)  # type: ignore[arg-type]
        acks.add(message())
        bus.losses += 1
        acks.send()
        assert bus.acked == []
        await settled(acks)
        assert bus.acked == acked


async def test_what_was_sent_just_before_a_connection_was_lost_is_sent_again_where_it_is_needed() -> (
    None
):
    for stored, acked in ({7: "r:a:1"}, [ACK, ACK]), ({7: "r:other:1"}, [ACK]), ({}, [ACK]):
        bus = Bus(stored)
        acks: Any = Acks(bus)  # type: ignore[arg-type]
        acks.add(message())
        acks.send()
        bus.losses += 1
        acks.repeat()
        await settled(acks)
        assert bus.acked == acked
        again = [("hocket.log.0.finished", b"{}", "r:a:1:f")]
        assert bus.posted == (again if len(acked) > 1 else []), "before it is acknowledged"
        acks.repeat()  # called again for the same loss
        await settled(acks)
        assert bus.acked == acked


async def test_what_was_sent_long_before_is_not_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RECENT_S", 0.0)
    bus = Bus({7: "r:a:1", 8: "r:a:1"})
    acks: Any = Acks(bus)  # type: ignore[arg-type]
    later = message()
    later.ack_subject = ACK.replace(".7.", ".8.")
    for held in (message(), later):
        await asyncio.sleep(0.001)
        acks.add(held)
        acks.send()
    bus.losses += 1
    acks.repeat()
    await settled(acks)
    assert bus.acked == [ACK, later.ack_subject, later.ack_subject]


async def test_results_beyond_their_bytes_are_not_kept_to_be_posted_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_RECENT_BYTES", 3)  # one result has two
    bus = Bus({7: "r:a:1", 8: "r:a:1"})
    acks: Any = Acks(bus)  # type: ignore[arg-type]
    later = message()
    later.ack_subject = ACK.replace(".7.", ".8.")
    for held in (message(), later):
        acks.add(held)
        acks.send()
    bus.losses += 1
    acks.repeat()
    await settled(acks)
    assert bus.acked == [ACK, later.ack_subject, later.ack_subject]
    assert len(bus.posted) == 1


async def test_a_server_that_comes_up_is_asked_until_it_answers_or_time_is_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LOOK_PAUSE_S", 0.001)
    for patience_s, acked in (60.0, [ACK, ACK]), (0.0, [ACK]):
        monkeypatch.setattr(module, "PATIENCE_S", patience_s)
        bus = Bus({7: "r:a:1"})
        acks: Any = Acks(bus)  # type: ignore[arg-type]
        acks.add(message())
        acks.send()
        bus.losses, bus.away = 1, 5
        acks.repeat()
        await settled(acks)
        assert bus.acked == acked


async def test_one_whose_step_waits_for_the_answer_is_looked_up_once() -> None:
    bus, held = Bus({7: "r:a:1"}), message()
    acks = Acks(bus)  # type: ignore[arg-type]
    bus.losses, bus.away = 1, 1
    assert not await acks.recognise(held)
    assert await acks.recognise(held)


async def test_a_connection_that_is_lost_again_meanwhile_is_waited_for() -> None:
    bus = Bus({7: "r:a:1"})
    acks: Any = Acks(bus)  # type: ignore[arg-type]
    acks.add(message())
    acks.send()
    bus.losses += 1
    acks.repeat()
    bus.losses += 1
    acks.repeat()
    await settled(acks)
    assert bus.acked == [ACK, ACK]


async def test_a_message_that_is_still_there_is_recognised() -> None:
    bus = Bus({7: "r:a:1:5000:c"})
    held = message("r:a:1:5000:c")
    acks = Acks(bus)  # type: ignore[arg-type]
    bus.losses += 1
    assert not acks.known(held)
    assert await acks.recognise(held)
    acks.add(held)
    acks.send()
    assert bus.acked == [ACK]


async def test_a_bundle_is_acknowledged_again_when_the_log_surely_has_all_its_results() -> None:
    for results, acked in (("r:a:1", "r:b:1"), [ACK, ACK]), (("r:b:1",), [ACK]):
        bus = Bus({7: "r:a:1:2"})
        acks: Any = Acks(bus)  # type: ignore[arg-type]
        acks.add(message("r:a:1:2", *results, steps=2))
        acks.send()
        bus.losses += 1
        acks.repeat()
        await settled(acks)
        assert bus.acked == acked
        posted = [msg_id for _, _, msg_id in bus.posted]
        assert posted == (["r:a:1:f", "r:b:1:f"] if len(acked) > 1 else [])


async def test_another_step_in_its_place_is_left_alone() -> None:
    bus = Bus({7: "r:other:1"})
    acks, held = Acks(bus), message()  # type: ignore[arg-type]
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
        held = message("r:a:1:5000:c")
        again = message("r:a:1:5000:c")
        again.ack_subject = ACK.replace(".7.", ".8.")
        held.delivered_again(again)
        bus.losses += 1
        assert await acks.recognise(held) is is_known
        assert acks.known(held) is is_known


async def test_a_message_that_is_gone_stays_unknown() -> None:
    bus = Bus({})
    acks, held = Acks(bus), message()  # type: ignore[arg-type]
    bus.losses += 1
    assert not await acks.recognise(held)


async def test_a_guest_looks_nothing_up_because_it_may_not_read_the_stream() -> None:
    bus = Bus({})
    bus.identity = Identity("guest")
    bus.js = None  # type: ignore[assignment]
    acks, held = Acks(bus), message()  # type: ignore[arg-type]
    bus.losses += 1
    assert not await acks.recognise(held)


def test_a_result_with_others_of_a_bundle_is_no_repeat_of_one_without() -> None:
    alone = PostedResult("r:a:1", 2.0, "c", 0, b"{}")
    assert alone.msg_id == "r:a:1:2000:f:c"
    assert alone._replace(took=3).msg_id == "r:a:1:2000:f:c:took"
