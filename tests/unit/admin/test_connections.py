"""The API's connections: what says or reads nothing, or says too much that is no body, is closed."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import pytest
import uvicorn

from hocket.admin import connections
from hocket.admin.connections import WatchedConnection, watch

WAIT_S = 20
POST = b"POST / HTTP/1.1\r\nHost: a\r\n"
LARGE = 8 * 1_048_576


async def _app(scope: Any, receive: Any, send: Any) -> None:
    """Answer how many bytes the body had; /large is answered with LARGE bytes."""
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size, more = size + len(message["body"]), message["more_body"]
    body = b"x" * LARGE if scope["path"] == "/large" else b"%d bytes" % size
    length = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": length})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def _served(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    monkeypatch.setattr(connections, "LOOK_S", 0.02)
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        _app, http=WatchedConnection, ws="none", log_config=None, lifespan="off", access_log=False
    )
    server = uvicorn.Server(config)
    server.capture_signals = nullcontext  # type: ignore[method-assign, assignment]
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    watching = asyncio.create_task(watch(server.server_state.connections))
    try:
        async with asyncio.timeout(WAIT_S):
            yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await serving
        watching.cancel()


async def _heard(port: int, *said: bytes) -> bytes:
    """Return all that the server answers until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    heard = b""
    try:
        for part in said:
            writer.write(part)
            await writer.drain()
        while part := await reader.read(65_536):
            heard += part
    except ConnectionError:
        pass
    finally:
        writer.close()
    return heard


async def test_a_head_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async with _served(monkeypatch) as port:
        heard = await _heard(port, POST + b"x: ", *[b"y" * 60_000] * 20)

    assert heard == b"" or heard.startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"GET /?x=" + b"y" * 90_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", "more than 65536 bytes"),
        (b"GET / HTTP/1.1\r\nno header\r\n\r\n", "Invalid HTTP request"),
    ],
)
async def test_what_cannot_be_read_is_refused_as_the_api_refuses(
    monkeypatch: pytest.MonkeyPatch, said: bytes, reason: str
) -> None:
    async with _served(monkeypatch) as port:
        head, _, body = (await _heard(port, said)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request")
    assert b"content-type: application/problem+json" in head
    assert b"content-length: %d\r\n" % len(body) in head
    told = json.loads(body)
    assert (told["code"], told["status"]) == ("request_malformed", 400)
    assert reason in told["detail"]


async def test_trailers_and_extensions_without_an_end_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chunked = POST + b"Transfer-Encoding: chunked\r\n\r\n"
    async with _served(monkeypatch) as port:
        await _heard(port, chunked + b"1\r\na\r\n0\r\n", *[b"t: u\r\n" * 10_000] * 20)
        await _heard(port, chunked + b"1;", *[b"e" * 60_000] * 20)


async def test_a_body_in_many_small_chunks_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b"1\r\na\r\n" * 100_000 + b"0\r\n\r\n"
    async with _served(monkeypatch) as port:
        heard = await _heard(
            port, POST + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n", body
        )

    assert heard.endswith(b"100000 bytes")


async def test_requests_one_after_another_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    one = POST + b"x: " + b"y" * 60_000 + b"\r\nContent-Length: 2\r\n\r\n{}"
    last = POST + b"Connection: close\r\nContent-Length: 2\r\n\r\n{}"
    async with _served(monkeypatch) as port:
        heard = await _heard(port, *[one] * 5, last)

    assert heard.count(b"2 bytes") == 6


@pytest.mark.parametrize("part", [b"", b"POST / HT", POST])
async def test_half_a_head_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, part: bytes) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.2)
    async with _served(monkeypatch) as port:
        assert await _heard(port, part) == b""


async def test_half_a_body_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "BODY_S", 0.2)
    async with _served(monkeypatch) as port:
        assert await _heard(port, POST + b"Content-Length: 5\r\n\r\n{") == b""


async def _left_unread(port: int) -> None:
    """Ask for a large answer, read nothing of it, and wait until the connection has gone."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    sock.connect(("127.0.0.1", port))
    sock.sendall(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    try:
        while True:  # what is written on a connection that was cut fails
            await asyncio.sleep(0.02)
            await loop.sock_sendall(sock, b"\r\n")
    except ConnectionError:
        return
    finally:
        sock.close()


async def test_an_answer_that_nobody_reads_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "STALLED_READER_S", 0.2)
    async with _served(monkeypatch) as port:
        await _left_unread(port)


async def test_answers_that_nobody_reads_hold_so_much_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "MAX_UNREAD_BYTES", LARGE // 2)
    async with _served(monkeypatch) as port:
        await _left_unread(port)


GET = b"GET /small HTTP/1.1\r\nHost: x\r\n\r\n"


async def test_what_is_asked_ahead_is_answered_in_order_and_read_when_its_turn_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ahead: list[int] = []
    began = WatchedConnection.on_message_begin

    def counted(connection: WatchedConnection) -> None:
        ahead.append(len(connection.pipeline))
        began(connection)

    monkeypatch.setattr(WatchedConnection, "on_message_begin", counted)
    last = GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    async with _served(monkeypatch) as port:
        heard = await _heard(port, GET * 2_000 + last)

    assert heard.count(b"HTTP/1.1 200") == 2_001
    assert max(ahead) <= connections.MAX_PIPELINED


async def test_a_connection_ends_with_what_it_may_ask_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "HEAD_SLICE_BYTES", 1_000_000)
    async with _served(monkeypatch) as port:
        heard = await _heard(port, GET * 2_000)

    assert heard.count(b"HTTP/1.1 200") == connections.MAX_PIPELINED + 1
    assert b"connection: close" in heard
