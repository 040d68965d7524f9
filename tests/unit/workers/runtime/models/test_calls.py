"""What a worker makes of a gateway that does not answer in time."""

import asyncio
from collections.abc import Callable, Mapping

import pytest

from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.nats.protocol import RawMessage
from hocket.kit.process import clock
from hocket.schemas import subjects
from hocket.schemas.messages import CallReply, CallRequest
from hocket.workers.errors import GatewayUnavailable, ModelTooSlow
from hocket.workers.runtime.models.calls import ModelCalls

LEFT_MS = 50.0


class Bus:
    """Hands requests over to nobody: the server says so, or a gateway that gives no answer has them."""

    def __init__(self, *, listening: bool) -> None:
        self.on_reconnect: list[Callable[[], None]] = []
        self.connected = True
        self.asked: list[Mapping[str, str] | None] = []
        self.some = asyncio.Event()
        self._listening = listening
        self._answers: list[asyncio.Future[RawMessage]] = []

    def ask(
        self, subject: str, payload: bytes, headers: Mapping[str, str] | None = None
    ) -> asyncio.Future[RawMessage]:
        assert subject == subjects.GATEWAY_CALL
        answer: asyncio.Future[RawMessage] = asyncio.get_running_loop().create_future()
        self._answers.append(answer)
        self.asked.append(headers)
        self.some.set()
        if not self._listening:
            answer.set_exception(BusUnavailable(reason="nobody listens"))
        return answer

    def answer(self, number: int, body: bytes) -> None:
        self._answers[number - 1].set_result(RawMessage("", "", body, b""))


def request(left_ms: float = LEFT_MS) -> CallRequest:
    return CallRequest.model_construct(
        call_id="c", model="writer", deadline_at_ms=clock.now_ms() + left_ms
    )


def calls_over(bus: Bus) -> ModelCalls:
    calls = ModelCalls(bus)  # type: ignore[arg-type]
    calls.open()
    return calls


async def test_a_gateway_that_works_on_a_call_until_the_end_is_there_and_the_model_too_slow() -> (
    None
):
    calls = calls_over(Bus(listening=True))
    with pytest.raises(ModelTooSlow, match="writer"):
        await calls.make(request())


async def test_where_nobody_answers_until_the_end_the_gateway_is_missed() -> None:
    calls = calls_over(Bus(listening=False))
    with pytest.raises(GatewayUnavailable):
        await calls.make(request())


async def test_a_call_is_asked_again_after_a_reconnect_and_says_so() -> None:
    bus = Bus(listening=True)
    calls = calls_over(bus)
    call = asyncio.create_task(calls.make(request(60_000.0)))
    await bus.some.wait()
    bus.some.clear()
    (reconnected,) = bus.on_reconnect
    reconnected()
    await bus.some.wait()
    bus.answer(2, CallReply(call_id="c", text="yes").model_dump_json().encode())
    assert (await call).text == "yes"
    assert bus.asked == [None, {subjects.ASKED_AGAIN: "1"}]


async def test_a_reply_that_cannot_be_read_is_the_gateways_error() -> None:
    bus = Bus(listening=True)
    calls = calls_over(bus)
    call = asyncio.create_task(calls.make(request(60_000.0)))
    await bus.some.wait()
    bus.answer(1, b"{")
    with pytest.raises(GatewayUnavailable, match="cannot be read"):
        await call
