"""The gateway's own HTTP client against servers that say what the tests have them say, byte by byte."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from hocket.gateway.backends import http_connections
from hocket.gateway.backends.http_connections import (
    ConnectingFailed,
    ConnectingTimedOut,
    HttpConnections,
)
from hocket.gateway.backends.http_origin import Origin, is_plain
from hocket.gateway.backends.http_reply import (
    MAX_HEAD_BYTES,
    ReplyBroken,
    ReplyEncoded,
    ReplyTooLarge,
    Response,
)

BOUND_S = 60.0
LONG_MS = 60_000.0
MAX_BYTES = 1_000
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

Script = Callable[[asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Reads requests with a length and lets `script` answer each; counts connections, and notes their
    ends."""

    def __init__(self) -> None:
        self.script: Script = self.says(OK)
        self.requests: list[bytes] = []
        self.connections = 0
        self.asked = asyncio.Event()
        self.ended = asyncio.Event()
        self.writers: list[asyncio.StreamWriter] = []
        self.port = 0

    def says(self, *pieces: bytes, then: str = "") -> Script:
        async def script(writer: asyncio.StreamWriter) -> None:
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            if then == "close":
                writer.close()

        return script

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                _, found, rest = head.partition(b"Content-Length: ")
                body = await reader.readexactly(int(rest.split(b"\r\n")[0])) if found else b""
                self.requests.append(head + body)
                self.asked.set()
                await self.script(writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.ended.set()
        finally:
            writer.close()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    scripted = Server()
    listening = await asyncio.start_server(scripted.serve, "127.0.0.1", 0)
    scripted.port = listening.sockets[0].getsockname()[1]
    yield scripted
    listening.close()
    for writer in scripted.writers:
        writer.close()
    await listening.wait_closed()


@pytest.fixture
async def connections(server: Server) -> AsyncIterator[HttpConnections]:
    origin = Origin.of(f"http://127.0.0.1:{server.port}/v1")
    assert origin is not None
    made = HttpConnections(origin, headers={"X-Key": "k"}, max_bytes=MAX_BYTES)
    yield made
    await made.close()


async def ask(
    connections: HttpConnections, content: bytes | None = b"{}", *, timeout_ms: float = LONG_MS
) -> Response:
    return await connections.ask(
        "POST", "chat", content, {"X-Id": "7"}, timeout_ms=timeout_ms, connect_ms=LONG_MS
    )


async def test_a_request_has_its_path_its_headers_and_its_body(
    connections: HttpConnections, server: Server
) -> None:
    response = await ask(connections, b'{"a": 1}')
    (request,) = server.requests
    head, body = request.split(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert (response.status, response.content, body) == (200, b"ok", b'{"a": 1}')
    assert lines[0] == "POST /v1/chat HTTP/1.1"
    assert {f"Host: 127.0.0.1:{server.port}", "X-Key: k", "X-Id: 7", "Content-Length: 8"} <= {
        *lines
    }


async def test_one_connection_serves_one_request_after_the_other(
    connections: HttpConnections, server: Server
) -> None:
    answers = [await ask(connections) for _ in range(3)]
    assert ([one.content for one in answers], server.connections) == ([b"ok"] * 3, 1)


async def test_requests_at_once_have_connections_of_their_own(
    connections: HttpConnections, server: Server
) -> None:
    asked = asyncio.Barrier(3)

    async def together(writer: asyncio.StreamWriter) -> None:
        await asked.wait()
        writer.write(OK)

    server.script = together
    answers = await asyncio.gather(*(ask(connections) for _ in range(3)))
    assert ([one.content for one in answers], server.connections) == ([b"ok"] * 3, 3)


@pytest.mark.parametrize(
    ("pieces", "content", "kept"),
    [
        ((b"HTTP/1.1 200 OK\r\nContent-Le", b"ngth: 4\r\n\r\nta", b"il"), b"tail", True),
        (
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
                b"2;x=y\r\nde\r\n0\r",
                b"\nTrailer: t\r\n\r\n",
            ),
            b"abcde",
            True,
        ),
        ((b"HTTP/1.1 100 Continue\r\n\r\n", OK), b"ok", True),
        ((b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",), b"", True),
        ((b"HTTP/1.1 204 No Content\r\n\r\n",), b"", True),
        ((b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",), b"ok", False),
        (
            (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",),
            b"ok",
            False,
        ),
        ((OK + OK,), b"ok", False),
        ((OK + b"noise",), b"ok", False),
    ],
)
async def test_a_reply_is_read_to_its_end(
    connections: HttpConnections,
    server: Server,
    pieces: tuple[bytes, ...],
    content: bytes,
    kept: bool,
) -> None:
    server.script = server.says(*pieces)
    first = await ask(connections)
    server.script = server.says(OK)
    second = await ask(connections)
    assert (first.content, second.content) == (content, b"ok")
    assert server.connections == (1 if kept else 2)


async def test_a_body_may_end_with_the_connection(
    connections: HttpConnections, server: Server
) -> None:
    server.script = server.says(b"HTTP/1.1 200 OK\r\n\r\nhalf ", b"and half", then="close")
    assert (await ask(connections)).content == b"half and half"


async def test_names_of_headers_are_in_lower_case_and_the_status_is_told(
    connections: HttpConnections, server: Server
) -> None:
    server.script = server.says(b"HTTP/1.1 429 No\r\nRetry-AFTER: 3\r\nContent-Length: 1\r\n\r\nx")
    response = await ask(connections)
    assert (response.status, response.headers["retry-after"]) == (429, "3")


@pytest.mark.parametrize(
    ("pieces", "error"),
    [
        ((), ReplyBroken),
        ((b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",), ReplyBroken),
        ((b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",), ReplyBroken),
        ((b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",), ReplyBroken),
        ((b"SSH-2.0-OpenSSH_9.2\r\n",), ReplyBroken),
        ((b"HTTP/1.1 200 OK\r\nX: " + b"x" * MAX_HEAD_BYTES + b"\r\n\r\n",), ReplyBroken),
        (
            (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nok",),
            ReplyEncoded,
        ),
        ((b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n" + b"x" * 2000,), ReplyTooLarge),
    ],
)
async def test_what_is_no_whole_reply_is_an_error_and_its_connection_is_closed(
    connections: HttpConnections,
    server: Server,
    pieces: tuple[bytes, ...],
    error: type[Exception],
) -> None:
    server.script = server.says(*pieces, then="close")
    with pytest.raises(error):
        await asyncio.wait_for(ask(connections), BOUND_S)
    server.script = server.says(OK)
    assert (await ask(connections)).content == b"ok"
    assert (len(server.requests), server.connections) == (2, 2)


async def test_a_server_that_does_not_answer_is_left_in_time(
    connections: HttpConnections, server: Server
) -> None:
    server.script = server.says()
    asking = asyncio.create_task(ask(connections, timeout_ms=2_000))
    await asyncio.wait_for(server.asked.wait(), BOUND_S)
    with pytest.raises(TimeoutError):
        await asking
    await asyncio.wait_for(server.ended.wait(), BOUND_S)


async def test_who_stops_waiting_closes_the_connection(
    connections: HttpConnections, server: Server
) -> None:
    server.script = server.says(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
    asking = asyncio.create_task(ask(connections))
    await asyncio.wait_for(server.asked.wait(), BOUND_S)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await asyncio.wait_for(server.ended.wait(), BOUND_S)


async def test_a_kept_connection_that_the_server_closed_is_not_used(
    connections: HttpConnections, server: Server
) -> None:
    await ask(connections)
    server.writers[0].close()
    await server.writers[0].wait_closed()
    async with asyncio.timeout(BOUND_S):
        while connections._idle[0].usable:  # noqa: ASYNC110 - the end is on its way to us
            await asyncio.sleep(0)
    assert ((await ask(connections)).content, server.connections) == (b"ok", 2)


async def test_a_connection_that_nobody_uses_is_closed_after_a_while(
    connections: HttpConnections, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connections, "KEEP_ALIVE_S", 0.01)
    await ask(connections)
    await asyncio.wait_for(server.ended.wait(), BOUND_S)


async def test_nobody_there_is_an_error_of_the_system(server: Server) -> None:
    origin = Origin.of("http://127.0.0.1:1")
    assert origin is not None
    nobody = HttpConnections(origin, headers={}, max_bytes=MAX_BYTES)
    with pytest.raises(ConnectingFailed, match="Connect call failed"):
        await ask(nobody)


async def test_a_connection_that_does_not_come_about_is_told_from_a_slow_answer(
    connections: HttpConnections, server: Server
) -> None:
    with pytest.raises(ConnectingTimedOut):
        await connections.ask("GET", "x", None, {}, timeout_ms=LONG_MS, connect_ms=0.0)


async def test_a_header_with_a_line_break_is_not_sent(
    connections: HttpConnections, server: Server
) -> None:
    with pytest.raises(ValueError, match="line break"):
        await connections.ask(
            "GET", "x", None, {"X-Id": "1\r\nX-Key: other"}, timeout_ms=LONG_MS, connect_ms=LONG_MS
        )
    assert not server.requests


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("http://gpu:8000/v1", Origin("gpu", 8000, "gpu:8000", "/v1")),
        ("http://gpu", Origin("gpu", 80, "gpu", "")),
        ("http://[::1]:9/v1", Origin("::1", 9, "[::1]:9", "/v1")),
        ("https://gpu/v1", None),
        ("http://user:secret@gpu/v1", None),
        ("http://gpu/v1?key=1", None),
        ("http://gpu/a b", None),
        ("http://gpu/a/../b", None),
        ("http://gpu:port/v1", None),
        ("http://münchen/v1", None),
    ],
)
def test_only_plain_urls_have_an_origin(url: str, origin: Origin | None) -> None:
    assert Origin.of(url) == origin


@pytest.mark.parametrize(
    ("path", "plain"), [("chat/completions", True), ("v2/models/m%2F1", False), ("a/./b", False)]
)
def test_a_path_that_could_be_read_in_two_ways_is_not_plain(path: str, plain: bool) -> None:
    assert is_plain(path) is plain
