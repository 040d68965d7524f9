"""Subjects and headers that are no text, and longer than ours ever are: whoever hears them reads on."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from nats.aio.msg import Msg

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.protocol import RawMessage
from support.forger import Forger, head_of

BOUND_S = 20
HEADS = (
    b"",
    head_of(b"\xff\xfe: \xff"),
    head_of(b"Nats-Msg-Id: \xff"),
    head_of(b"no colon"),
    head_of(b": "),
    b"NATS/1.0 \xff\xff\xff\r\n\r\n",
    b"NATS/1.0\r\n\r\n",
    b"\xff" * 12,
    b"NATS/1.0\r\nNats-Msg-Id: cut",
    head_of(b"X: " + b"y" * 60_000),
)
SUBJECTS = (b"a.b", b"a.\xff\xfe", b"a.\x0cb", b"a." + b"x" * 3_900, b"a.\xe2\x80\xae")


@pytest.fixture
async def bus(nats_url: str) -> AsyncIterator[Bus]:
    bus = await Bus.connect(nats_url, name="test")
    yield bus
    await bus.close()


async def test_no_subject_and_no_header_ends_the_reading(bus: Bus, nats_url: str) -> None:
    heard: list[str] = []
    taken: list[str] = []
    end = asyncio.Event()

    async def hear(message: Msg) -> None:
        assert message.headers is None or all(message.headers)  # no empty names
        heard.append(message.subject)

    def take(frame: RawMessage) -> None:
        assert frame.headers is None or isinstance(frame.headers, dict)
        taken.append(frame.subject)
        if frame.subject == "a.end":
            end.set()

    await bus.subscribe("a.>", hear)
    await bus.subscribe_raw("a.>", take)
    async with Forger(nats_url) as forger:
        for subject in SUBJECTS:
            for head in HEADS:
                forger.write(subject, b"body", head, reply=b"r.\xff" if head else b"")
                await forger.flushed()
        forger.write(b"a.end", b"")
        await forger.flushed()
        async with asyncio.timeout(BOUND_S):
            await end.wait()
            while "a.end" not in heard:  # noqa: ASYNC110 - a task of the client's empties its queue
                await asyncio.sleep(0)
    assert bus.losses == 0
    assert taken == heard
    assert len(taken) == len(SUBJECTS) * len(HEADS) - forger.refused + 1
