"""Streams whose reader is slow, or gone. Each against a real door, over TCP."""

import asyncio
import threading
from typing import Any, cast

import pytest

from hocket.gateway.api.http import connections
from hocket.gateway.api.http.answering.event_stream import EventStream
from hocket.gateway.backends.protocol import Chunk, LargeEvent
from hocket.schemas.messages import CallReply
from support.gateway.door_rig import MODELS, Endless, asks, running
from support.gateway.routing_rig import BOUND_S, Rig


async def test_a_stream_that_nobody_reads_is_ended_and_booked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "STALLED_READER_S", 0.3)
    monkeypatch.setattr(connections, "LOOK_S", 0.1)
    endless = Endless()
    async with running(Rig(MODELS, a=endless.backend)) as door:
        _, writer = await door.connect()
        writer.write(door.request(asks(stream=True)))
        await asyncio.wait_for(endless.ended.wait(), BOUND_S)
        async with asyncio.timeout(BOUND_S):
            while not door.rig.records:  # noqa: ASYNC110 - a list tells nobody
                await asyncio.sleep(0.01)
        writer.close()
    (record,) = door.rig.records
    assert (record.status, record.output_tokens) == ("cancelled", endless.pieces)
    assert len(door.rig.calls.scheduler.queue) == 0


async def test_a_stream_that_is_read_slowly_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "STALLED_READER_S", 3.0)
    monkeypatch.setattr(connections, "LOOK_S", 0.1)
    endless = Endless()
    async with running(Rig(MODELS, a=endless.backend)) as door:
        # its own buffer is small: it takes from the socket when it reads, and not long before
        reader, writer = await door.connect(buffer_bytes=2**16)
        writer.write(door.request(asks(stream=True)))
        until_s = asyncio.get_running_loop().time() + 6.0
        while asyncio.get_running_loop().time() < until_s:
            await asyncio.wait_for(reader.readexactly(256 * 1024), BOUND_S)
            await asyncio.sleep(0.05)  # slower than it is written, by far
        assert not endless.ended.is_set()
        writer.close()


class Writing:
    """Writes each event as its text; a large one waits for `may_end`."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.threads: list[int] = []

    def whole(self, reply: CallReply) -> dict[str, Any]:
        raise NotImplementedError

    def chunk(self, chunk: Chunk) -> bytes:
        self.threads.append(threading.get_ident())
        if isinstance(chunk.openai, LargeEvent):
            self.begun.set()
            self.may_end.wait(BOUND_S)
        return chunk.text.encode()

    def end(self, reply: CallReply) -> bytes:
        return b"end" + reply.text.encode()

    def failed(self, told: dict[str, Any]) -> bytes:
        assert self.may_end.is_set()  # what is written at once would find half of an event
        return str(told["error"]).encode()


class Sent(EventStream):
    def __init__(self, answers: Writing) -> None:
        super().__init__(cast(Any, None), answers, "c")
        self.sent: list[bytes] = []

    async def _send(self, content: bytes) -> None:
        self.sent.append(content)


async def test_a_large_event_is_written_in_a_thread_and_the_order_stays() -> None:
    answers = Writing()
    stream, own = Sent(answers), threading.get_ident()
    answers.may_end.set()
    for text, event in (("a", {}), ("b", LargeEvent()), ("c", {})):
        await stream.chunk(Chunk(text, openai=event))
    await stream.end(CallReply(call_id="c"))
    assert stream.sent == [b"a", b"b", b"c", b"end"]
    assert [thread == own for thread in answers.threads] == [True, False, True]


async def test_the_error_of_a_stopped_stream_waits_for_an_event_that_is_being_written() -> None:
    answers = Writing()
    stream = Sent(answers)
    sending = asyncio.create_task(stream.chunk(Chunk("large", openai=LargeEvent())))
    assert await asyncio.to_thread(answers.begun.wait, BOUND_S)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    failing = asyncio.create_task(stream.failed({"error": "stopped"}))
    await asyncio.sleep(0)
    answers.may_end.set()
    await asyncio.wait_for(failing, BOUND_S)
    assert stream.sent == [b"stopped"]
