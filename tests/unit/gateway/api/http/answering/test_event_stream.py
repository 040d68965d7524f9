"""Streams whose reader is slow, or gone. Each against a real door, over TCP."""

import asyncio

import pytest

from hocket.gateway.api.http import connections
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
