"""A real HTTP door over scripted backends, and raw connections to it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from hocket.gateway.api.http.answering.model_list import Allows, allows_all
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
from support.gateway.routing_rig import BOUND_S, Rig, Scripted, backend

PIECE = "x" * 64 * 1024
MODELS = {"writer": {"backends": [backend("a")]}}


class Endless:
    """A backend that writes for as long as the output is read."""

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
    """A door over scripted backends, and raw connections to it."""

    def __init__(self, rig: Rig, port: int, door: HttpDoor) -> None:
        self.rig = rig
        self.door = door
        self._port = port

    async def connect(
        self, buffer_bytes: int = 2**26, source: str = "127.0.0.1"
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(
            "127.0.0.1", self._port, limit=buffer_bytes, local_addr=(source, 0)
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def request(self, body: bytes | dict[str, Any], length: int | None = None) -> bytes:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n"
            "Content-Type: application/json\r\n"
            f"Content-Length: {len(content) if length is None else length}\r\n\r\n"
        )
        return head.encode() + content


@asynccontextmanager
async def running(rig: Rig, allows: Allows = allows_all) -> AsyncIterator[Door]:
    metrics = GatewayMetrics(CollectorRegistry())
    calls = CallRegistry(rig.calls, metrics)
    book = KeyBook(cast(KeySource, None))  # it is never started
    keys = DoorKeys(lambda: Access(open=True), book, per_s=1, may_open=True)
    door = HttpDoor(calls, keys, metrics, WebRules(), allows=allows)
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
