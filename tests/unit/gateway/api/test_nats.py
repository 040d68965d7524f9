"""Large calls over NATS: read beside all others, and stopped or found while they are being read."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from hocket.gateway.api import arriving_calls, peers
from hocket.gateway.api.http.body_reading import MANY_VALUES
from hocket.gateway.api.nats import NatsDoor
from hocket.gateway.backends import large_work
from hocket.gateway.calls.registry import CallRegistry
from hocket.gateway.core.calls.call_key import digest
from hocket.gateway.metrics import GatewayMetrics
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.protocol import RawMessage
from hocket.schemas import subjects
from hocket.schemas.access.nats_table import GUESTS_CALL
from hocket.schemas.messages import (
    Attribution,
    CallCancelled,
    CallReply,
    CallRequest,
    HeldCall,
    OpenAIBody,
    StepCancelled,
)
from support.gateway.routing_rig import BOUND_S, Rig, backend, request, says

STOPS = {
    "by its caller": (subjects.GATEWAY_CANCEL, CallCancelled(call_id="large")),
    "with its step": (subjects.CANCEL_FILTER, StepCancelled(run_id="r1")),
}


class DoorBus:
    """Hands messages to a door, and keeps what it answers."""

    def __init__(self) -> None:
        self.nc = SimpleNamespace(
            flush=self._flush, max_payload=8 * 1024 * 1024, new_inbox=lambda: "_INBOX.gateway"
        )
        self.asked: list[tuple[bytes, str]] = []
        self.answers: list[tuple[str, bytes]] = []
        self._handlers: dict[str, Callable[[Any], Any]] = {}

    async def subscribe_raw(
        self, subject: str, callback: Callable[[RawMessage], None], *, queue: str
    ) -> Any:
        return self._subscribed(subject, callback)

    async def subscribe(
        self, subject: str, callback: Callable[[Any], Any], *, queue: str = ""
    ) -> Any:
        return self._subscribed(subject, callback)

    def publish_nowait(self, subject: str, payload: bytes, *, reply: str = "") -> None:
        assert subject == subjects.GATEWAY_HELD
        self.asked.append((payload, reply))

    def respond(self, inbox: str, answer: bytes) -> None:
        self.answers.append((inbox, answer))

    def call(
        self,
        asked: CallRequest,
        *,
        again: bool = False,
        subject: str = subjects.GATEWAY_CALL,
        inbox: str = "",
    ) -> None:
        message = SimpleNamespace(
            subject=subject,
            data=asked.model_dump_json().encode(),
            reply=inbox or asked.call_id,
            headers={subjects.ASKED_AGAIN: "1"} if again else None,
        )
        self._handlers[subject](message)

    async def tell(self, subject: str, told: Any, reply: str = "") -> None:
        payload = told.model_dump_json().encode()
        await self._handlers[subject](SimpleNamespace(data=payload, reply=reply))

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(BOUND_S):
            while not holds():  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.001)

    async def until_answered(self, *inboxes: str) -> list[bytes]:
        await self.until(lambda: len(self.answers) >= len(inboxes))
        assert tuple(inbox for inbox, _ in self.answers) == inboxes
        return [answer for _, answer in self.answers]

    def _subscribed(self, subject: str, callback: Callable[[Any], Any]) -> Any:
        self._handlers[subject] = callback
        return SimpleNamespace(drain=self._flush, unsubscribe=self._flush, subject=subject)

    async def _flush(self, **_: Any) -> None:
        """Everything is sent already."""


@asynccontextmanager
async def opened(rig: Rig) -> AsyncIterator[DoorBus]:
    bus, metrics = DoorBus(), GatewayMetrics(CollectorRegistry())
    registry = CallRegistry(rig.calls, metrics)
    living = SimpleNamespace(name="g1", live=frozenset({"g1"}))
    door = NatsDoor(cast(Bus, bus), registry, cast(Any, living))
    await door.open()
    try:
        yield bus
    finally:
        await door.stop_accepting()
        await registry.drain(drain_ms=0, flush_ms=5_000)
        await door.close()


@asynccontextmanager
async def no_large_work() -> AsyncIterator[None]:
    """Keep the thread for large work busy inside the block."""
    gate = threading.Event()
    working = await large_work.begun(gate.wait)
    try:
        yield
    finally:
        gate.set()
        await working


def rig() -> Rig:
    return Rig({"writer": {"backends": [backend("a")]}}, a=says("tidal"))


def large(call_id: str = "large") -> CallRequest:
    messages = [{"role": "user", "content": "?"}] * MANY_VALUES
    body = OpenAIBody(path="chat/completions", body={"messages": messages})
    return request(call_id).model_copy(update={"messages": (), "openai": body})


def code_of(answer: bytes) -> str | None:
    error = CallReply.model_validate_json(answer).error
    return None if error is None else error.code


async def test_a_large_call_is_read_in_a_thread_while_others_go_on() -> None:
    async with opened(rig()) as bus:
        async with no_large_work():
            bus.call(large())
            bus.call(request("small"))
            await bus.until_answered("small")
        answers = await bus.until_answered("small", "large")
    assert [json.loads(answer)["text"] for answer in answers] == ["tidal"] * 2


async def test_a_large_call_that_is_wrong_is_refused_once_it_is_read() -> None:
    async with opened(rig()) as bus:
        bus.call(large().model_copy(update={"chunks_to": "hocket.task.acme"}))
        (answer,) = await bus.until_answered("large")
    assert code_of(answer) == "call_malformed"


@pytest.mark.parametrize("how", STOPS)
async def test_a_large_call_that_is_stopped_while_it_is_read_is_not_made(how: str) -> None:
    made = rig()
    async with opened(made) as bus:
        async with no_large_work():
            bus.call(large())
            await bus.tell(*STOPS[how])
            bus.call(large("other").model_copy(update={"attribution": Attribution(run_id="r2")}))
        stopped, other = await bus.until_answered("large", "other")
    assert (code_of(stopped), code_of(other)) == ("call_cancelled", None)
    assert CallReply.model_validate_json(stopped).call_id == "large"
    assert [record.call_id for record in made.records] == ["other"]


def held(asked: CallRequest) -> HeldCall:
    return HeldCall(
        tenant=asked.attribution.tenant,
        call_id=asked.call_id,
        run_id=asked.attribution.run_id,
        step=asked.attribution.step,
        question=digest(asked),
        reply_to="_INBOX.worker",
        counts=True,
    )


# An id that can be written in several ways may be that of any call.
@pytest.mark.parametrize("call_id", ["large", 'l"arge', "gro\u00df"])
async def test_a_peer_that_asks_for_a_large_call_is_answered_once_it_is_read(call_id: str) -> None:
    asked = large(call_id)
    async with opened(rig()) as bus:
        async with no_large_work():
            bus.call(asked)
            await bus.tell(subjects.GATEWAY_HELD, held(asked), "_INBOX.peer")
            bus.call(request("small"))
            await bus.until_answered("small")
        await bus.until(lambda: len(bus.answers) == 4)
    told = dict(bus.answers)
    assert told["_INBOX.peer"] == b""  # it is held here
    assert told["_INBOX.worker"] == told[call_id]


async def test_a_peer_that_asks_for_another_call_is_answered_at_once() -> None:
    async with opened(rig()) as bus:
        async with no_large_work():
            bus.call(large())
            await bus.tell(subjects.GATEWAY_HELD, held(request("other")), "_INBOX.peer")
            assert await bus.until_answered("_INBOX.peer") == [b"g1"]
        await bus.until_answered("_INBOX.peer", "large")


async def test_a_peer_that_asks_for_a_call_that_is_not_read_in_time_is_told_that_it_is_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would make the call, too, when it has waited in vain."""
    monkeypatch.setattr(peers, "FIND_MS", 0.0)
    asked = large()
    async with opened(rig()) as bus:
        async with no_large_work():
            bus.call(asked)
            await bus.tell(subjects.GATEWAY_HELD, held(asked), "_INBOX.peer")
            assert await bus.until_answered("_INBOX.peer") == [b""]
        await bus.until(lambda: len(bus.answers) == 3)
    told = dict(bus.answers[1:])
    assert told["_INBOX.worker"] == told["large"]


@pytest.mark.parametrize(
    "before",
    [{}, {"messages": "x" * 100_000}, {"messages": [{"call_id": "inner"}], "more": "x" * 4_060}],
    ids=["first", "late", "after another"],
)
async def test_the_id_of_a_call_is_found_wherever_it_is_given(before: dict[str, Any]) -> None:
    payload = json.dumps(before | {"call_id": "large"}).encode()
    for at in range(20):  # no place is special
        unread = arriving_calls._Unread(b" " * at + payload)
        assert unread.may_have("large")
        assert not unread.may_have("other")


async def test_a_gateway_does_not_answer_its_own_questions() -> None:
    again = request("c").model_copy(update={"attribution": Attribution(run_id="r1")})
    async with opened(rig()) as bus:
        bus.call(again, again=True, inbox="_INBOX.worker")
        await bus.until(lambda: bool(bus.asked))
        await bus.until_answered("_INBOX.worker")
        for question, inbox in bus.asked:
            await bus.tell(subjects.GATEWAY_HELD, HeldCall.model_validate_json(question), inbox)
        await bus.tell(subjects.GATEWAY_HELD, held(request("other")), "_INBOX.peer")
        await bus.until_answered("_INBOX.worker", "_INBOX.peer")


async def test_a_repeat_of_a_large_call_is_not_refused_where_there_is_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its caller would give the call up, which goes on at its backend."""
    size = len(large().model_dump_json())
    monkeypatch.setattr(arriving_calls, "MAX_ARRIVING_BYTES", size * 7 // 4)
    made = rig()
    async with opened(made) as bus:
        bus.call(large())
        await bus.until_answered("large")
        async with no_large_work():
            bus.call(large("other"))
            bus.call(large(), again=True, inbox="_INBOX.first")  # in the room for repeats
            bus.call(large(), again=True, inbox="_INBOX.second")
            bus.call(request("small"))
            await bus.until_answered("large", "small")
        await bus.until(lambda: len(bus.answers) == 4)
    told = dict(bus.answers)
    assert told.keys() == {"large", "small", "other", "_INBOX.first"}
    assert told["_INBOX.first"] == told["large"]
    assert [record.call_id for record in made.records] == ["large", "small", "other"]


async def test_guests_do_not_take_the_room_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arriving_calls, "MAX_GUEST_BYTES", 1)
    async with opened(rig()) as bus:
        bus.call(large("guest"), subject=GUESTS_CALL)
        bus.call(large())
        await bus.until_answered("guest", "large")
        told = dict(bus.answers)
    assert [code_of(told[one]) for one in ("guest", "large")] == ["gateway_full", None]


async def test_large_calls_beyond_the_room_for_them_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    size = len(large().model_dump_json())
    monkeypatch.setattr(arriving_calls, "MAX_ARRIVING_BYTES", size * 3 // 2)
    async with opened(rig()) as bus:
        async with no_large_work():
            bus.call(large())
            bus.call(large("other"))
            (refused,) = await bus.until_answered("other")
        await bus.until_answered("other", "large")
    assert code_of(refused) == "gateway_full"
