"""What the HTTP door lets nobody take: a place for an answer that is not read, a connection that says
nothing, memory for bodies without end. Each against a real door, over TCP."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from hocket.gateway.api.http import connections, intake
from hocket.gateway.api.http.door import HttpDoor
from hocket.gateway.api.http.keys import DoorKeys
from hocket.gateway.backends.protocol import Chunk, Chunks
from hocket.gateway.calls.registry import CallRegistry
from hocket.gateway.core.config.access import Access
from hocket.gateway.metrics import GatewayMetrics
from hocket.kit.access.key_book import KeyBook
from hocket.kit.access.key_source import KeySource
from hocket.kit.process import clock
from hocket.kit.web_requests import WebRules
from hocket.schemas.messages import CallRequest, Completion
from support.gateway.routing_rig import BOUND_S, Rig, Scripted, backend, says

PIECE = "x" * 64 * 1024
MODELS = {"writer": {"backends": [backend("a")]}}


class Endless:
    """A backend that writes for as long as anybody takes it."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self.pieces = 0
        self.backend = Scripted(self._behave)

    async def _behave(self, _: CallRequest, chunks: Chunks | None) -> Completion:
        assert chunks is not None
        try:
            while True:
                self.pieces += 1
                await chunks(Chunk(PIECE, output_tokens=self.pieces))
                await asyncio.sleep(0)
        finally:
            self.ended.set()


class Door:
    """A door over scripted backends, and bare connections to it."""

    def __init__(self, rig: Rig, port: int, door: HttpDoor) -> None:
        self.rig = rig
        self.door = door
        self._port = port

    async def connect(
        self, buffer_bytes: int = 2**26
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self._port, limit=buffer_bytes)

    def request(self, body: bytes | dict[str, Any], length: int | None = None) -> bytes:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n"
            "Content-Type: application/json\r\n"
            f"Content-Length: {len(content) if length is None else length}\r\n\r\n"
        )
        return head.encode() + content


@asynccontextmanager
async def running(rig: Rig) -> AsyncIterator[Door]:
    metrics = GatewayMetrics(CollectorRegistry())
    calls = CallRegistry(rig.calls, metrics)
    book = KeyBook(cast(KeySource, None))  # it does not run
    keys = DoorKeys(lambda: Access(open=True), book, per_s=1, may_open=True)
    door = HttpDoor(calls, keys, metrics, WebRules())
    rig.now_ms = clock.now_ms()
    url = await door.open("127.0.0.1", 0)
    try:
        yield Door(rig, int(url.split(":")[2].split("/")[0]), door)
    finally:
        await door.stop_accepting()
        await calls.drain(drain_ms=0, flush_ms=5_000)
        await door.close()


def asks(**fields: Any) -> dict[str, Any]:
    return {"model": "writer", "messages": [{"role": "user", "content": "?"}], **fields}


async def status(reader: asyncio.StreamReader) -> int:
    line = await asyncio.wait_for(reader.readline(), BOUND_S)
    return int(line.split()[1])


async def closed(reader: asyncio.StreamReader) -> None:
    """Wait until the door has closed a connection."""
    with pytest.raises((EOFError, ConnectionError)):
        async with asyncio.timeout(BOUND_S):
            await reader.readexactly(2**26 - 1)


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


@pytest.mark.parametrize("said", [b"", b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nX-A: "])
async def test_a_connection_without_a_whole_head_is_closed(
    said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.2)
    monkeypatch.setattr(connections, "LOOK_S", 0.1)
    async with running(Rig(MODELS, a=says("tidal"))) as door:
        reader, writer = await door.connect()
        writer.write(said)
        await closed(reader)
        writer.close()


async def test_a_body_that_does_not_come_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "BODY_S", 0.2)
    monkeypatch.setattr(connections, "LINGER_S", 0.1)
    async with running(Rig(MODELS, a=says("tidal"))) as door:
        reader, writer = await door.connect()
        writer.write(door.request(b'{"model": ', length=1_000))
        assert await status(reader) == 408
        writer.close()


async def test_bodies_beyond_the_bound_are_refused_until_others_are_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(intake, "MAX_BODIES_BYTES", 10_000)
    monkeypatch.setattr(connections, "LINGER_S", 0.1)
    async with running(Rig(MODELS, a=says("tidal"))) as door:
        _, first = await door.connect()
        first.write(door.request(b"{", length=9_000))
        async with asyncio.timeout(BOUND_S):
            while not door.door._requests._calls._bodies.held_bytes:  # noqa: ASYNC110
                await asyncio.sleep(0)
        reader, second = await door.connect()
        second.write(door.request(b"{", length=9_000))
        assert await status(reader) == 503
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), BOUND_S)
        assert b"retry-after:" in head.lower()
        first.close()
        async with asyncio.timeout(BOUND_S):
            while door.door._requests._calls._bodies.held_bytes:  # noqa: ASYNC110
                await asyncio.sleep(0)
        reader, third = await door.connect()
        third.write(door.request(asks()))
        assert await status(reader) == 200
        second.close()
        third.close()
    assert door.door._requests._calls._bodies.held_bytes == 0


async def test_a_body_without_a_length_is_counted_as_it_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(intake, "MAX_BODY_BYTES", 10_000)
    async with running(Rig(MODELS, a=says("tidal"))) as door:
        reader, writer = await door.connect()
        head = door.request(b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
        chunk = b"1000\r\n" + b" " * 0x1000 + b"\r\n"
        writer.write(head + chunk * 4)
        assert await status(reader) == 413
        writer.close()


async def test_one_connection_too_many_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 2)
    async with running(Rig(MODELS, a=says("tidal"))) as door:
        one, two, three = [await door.connect() for _ in range(3)]
        await closed(three[0])
        for reader, writer in (one, two):
            writer.write(door.request(asks()))
            assert await status(reader) == 200
        for _, writer in (one, two, three):
            writer.close()


async def test_a_body_of_very_many_values_is_refused_before_it_is_read() -> None:
    async with running(Rig(MODELS, a=says("tidal"))) as door:
        reader, writer = await door.connect()
        writer.write(door.request(b'{"messages": [' + b"[]," * 2_100_000 + b"[]]}"))
        assert await status(reader) == 413
        writer.close()


async def test_a_compressed_body_is_refused_and_never_unpacked() -> None:
    """A hundred kilobytes of zeros would make a hundred megabytes."""
    packed = gzip.compress(b'{"a": "' + b"0" * (intake.MAX_BODY_BYTES + 2**20) + b'"}')
    async with running(Rig(MODELS, a=says("tidal"))) as door:
        reader, writer = await door.connect()
        head, _, content = door.request(packed).partition(b"\r\n\r\n")
        writer.write(head + b"\r\nContent-Encoding: gzip\r\n\r\n" + content)
        assert await status(reader) == 415
        assert door.door._requests._calls._bodies.held_bytes == 0
        writer.close()


async def test_a_models_name_is_printable() -> None:
    async with running(Rig(MODELS, a=says("tidal"))) as door:
        reader, writer = await door.connect()
        writer.write(door.request(asks(model="a\nb")))
        assert await status(reader) == 400
        writer.close()
