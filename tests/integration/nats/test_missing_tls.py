"""A server that offers no TLS where a URL asks for it is sent nothing: no password, no message."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import closing

import pytest

from hocket.cli.doctor.nats import connection as doctor
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.workers.nats.errors import NatsUnreachable
from hocket.workers.nats.services import NatsServices

INFO = {"server_id": "x", "version": "2.15.1", "max_payload": 1_048_576, "auth_required": True}


class Plain:
    """A server that says that it needs a password and no TLS; `heard` is what it was sent."""

    def __init__(self) -> None:
        self.heard = b""
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer):
            writer.write(b"INFO " + json.dumps(INFO).encode() + b"\r\n")
            self.heard += await reader.read()


@pytest.fixture
async def plain() -> AsyncIterator[Plain]:
    plain = Plain()
    async with await asyncio.start_server(plain.serve, "127.0.0.1", 0) as server:
        (socket,) = server.sockets
        _, plain.port = socket.getsockname()
        yield plain


async def test_the_bus_sends_it_nothing(plain: Plain) -> None:
    with pytest.raises(BusUnavailable, match="does not offer TLS"):
        await Bus.connect(f"tls://me:secret@127.0.0.1:{plain.port}", name="t", timeout_s=1)
    assert plain.heard == b""


async def test_the_command_line_sends_it_nothing(plain: Plain) -> None:
    with pytest.raises(Exception, match="does not offer TLS"):
        await doctor.connect(f"tls://me:secret@127.0.0.1:{plain.port}")
    assert plain.heard == b""


async def test_a_nats_service_is_sent_nothing(plain: Plain) -> None:
    section = {
        "pricing": {
            "servers": [f"tls://127.0.0.1:{plain.port}"],
            "subject": "pricing",
            "user": "me",
            "password": "os.environ/PW",
        }
    }
    service = NatsServices(section, {"PW": "secret"}).get("pricing", "t")
    with pytest.raises(NatsUnreachable, match="does not offer TLS"):
        await service.connection()
    assert plain.heard == b""
