"""Plain HTTP/1.1 to one server, for non-streamed replies: persistent connections with one request
at a time.

This serves what a gateway does most: post a body, read a body. TLS, proxies and streams go through
aiohttp, which does much more per request than is needed here (docs/explanation/performance.md).

A connection is connecting, busy, idle (kept for KEEP_ALIVE_S) or closed. It is kept after a reply
that was read to its end and allows it; it is closed if it failed, timed out, was cancelled, or sent
unsolicited data. Bodies have a length, are chunked, or end with the connection. No request is sent
twice. If there is no room for a reply, its connection is read no further. Fails with TimeoutError,
ConnectingTimedOut, ConnectingFailed, other OSErrors, ReplyBroken, ReplyEncoded, ReplyTooLarge and
RepliesFull.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Any

from hocket.gateway.backends.http_origin import Origin
from hocket.gateway.backends.http_reply import ReplyBroken, ReplyEncoded, ReplyReader, Response
from hocket.gateway.backends.reply_room import HeldReply
from hocket.gateway.core.protocols.json_size import QUICK_BYTES

KEEP_ALIVE_S = 30.0


class ConnectingTimedOut(Exception):
    """No connection came about in time."""


class ConnectingFailed(OSError):
    """No connection was established."""


class HttpConnections:
    """Sends requests to one server; must be created and used on one running event loop."""

    def __init__(self, origin: Origin, *, headers: Mapping[str, str], max_bytes: int) -> None:
        self._origin = origin
        self._head = _lines({"Host": origin.authority, "Accept-Encoding": "identity", **headers})
        self._max_bytes = max_bytes
        self._loop = asyncio.get_running_loop()
        self._idle: deque[_Connection] = deque()
        self._sweeping: asyncio.TimerHandle | None = None
        self._closed = False

    async def ask(
        self,
        method: str,
        path: str,
        content: bytes | None,
        headers: Mapping[str, str],
        *,
        timeout_ms: float,
        connect_ms: float,
        held: HeldReply | None = None,
    ) -> Response:
        """Make a request below the origin's path and return its reply, which takes the room `held`.
        Raises ValueError for invalid headers."""
        size = "" if content is None else f"Content-Length: {len(content)}\r\n"
        head = f"{method} {self._origin.path}/{path} HTTP/1.1\r\n{self._head}{_lines(headers)}{size}\r\n"
        until_s = self._loop.time() + timeout_ms / 1000
        connection = self._kept() or await self._connected(min(connect_ms, timeout_ms))
        limit = self._loop.call_at(until_s, connection.time_out)
        try:
            response = await connection.ask(head.encode() + (content or b""), held)
        except BaseException:
            connection.abort()
            raise
        finally:
            limit.cancel()
            connection.forget()
        self._keep(connection)
        return response

    async def close(self) -> None:
        """Close idle connections; busy ones close when they are done."""
        self._closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        while self._idle:
            self._idle.pop().abort()

    def _kept(self) -> "_Connection | None":
        """Return the most recently used idle connection, if any."""
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
        return None

    async def _connected(self, connect_ms: float) -> "_Connection":
        loop = asyncio.get_running_loop()
        making = loop.create_connection(
            lambda: _Connection(self._max_bytes), self._origin.host, self._origin.port
        )
        limit = asyncio.timeout(connect_ms / 1000)
        try:
            async with limit:
                _, connection = await making
        except TimeoutError:
            if limit.expired():
                raise ConnectingTimedOut from None
            raise ConnectingFailed("the connection timed out") from None
        except OSError as error:
            raise ConnectingFailed(*error.args) from error
        return connection

    def _keep(self, connection: "_Connection") -> None:
        if not connection.usable or self._closed:
            connection.abort()
            return
        loop = asyncio.get_running_loop()
        connection.idle_since_s = loop.time()
        self._idle.append(connection)
        if self._sweeping is None:
            self._sweeping = loop.call_later(KEEP_ALIVE_S, self._sweep)

    def _sweep(self) -> None:
        """Close connections that have been idle for KEEP_ALIVE_S."""
        self._sweeping = None
        loop = asyncio.get_running_loop()
        while self._idle and self._idle[0].idle_since_s <= loop.time() - KEEP_ALIVE_S:
            self._idle.popleft().abort()
        if self._idle:
            at_s = self._idle[0].idle_since_s + KEEP_ALIVE_S
            self._sweeping = loop.call_at(at_s, self._sweep)


class _Connection(asyncio.Protocol):
    """One connection."""

    def __init__(self, max_bytes: int) -> None:
        self.idle_since_s = 0.0
        self._loop = asyncio.get_running_loop()
        self._reply = ReplyReader(max_bytes)
        self._transport: Any = None
        self._waiting: asyncio.Future[Response] | None = None
        self._held: HeldReply | None = None
        self._gone = False
        self._kept_alive = False

    @property
    def usable(self) -> bool:
        """Whether it can take another request."""
        return self._kept_alive and not self._gone and not self._transport.is_closing()

    def ask(self, request: bytes, held: HeldReply | None) -> "asyncio.Future[Response]":
        """Send a request and return its future reply, which takes the room `held`."""
        self._held = held
        self._waiting = self._loop.create_future()
        self._kept_alive = False
        self._reply.begin()
        if self._gone:
            self._fail(ReplyBroken("the server closed the connection"))
        else:
            self._transport.write(request)
        return self._waiting

    def forget(self) -> None:
        """Drop the reply, which may be large, when it was taken."""
        self._waiting = self._held = None

    def time_out(self) -> None:
        """Fail the request that waits for its reply."""
        self._fail(TimeoutError())

    def abort(self) -> None:
        """Close the connection at once; a second call does nothing."""
        if not self._gone and self._transport is not None:
            self._transport.abort()

    # ---- the connection -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._waiting is None or self._waiting.done():
            self.abort()  # unsolicited data
            return
        reply = self._reply
        fault = reply.feed(data)
        if fault is not None:
            self._fail(fault)
        if reply.head_too_large:
            self.abort()
        if self._waiting.done():
            return
        if reply.bytes_expected > QUICK_BYTES and not self._has_room():
            self._transport.pause_reading()
        elif reply.whole:
            self._end_whole()

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone = True
        if self._waiting is None or self._waiting.done():
            return
        if self._reply.whole:
            return  # it waits for room
        if self._reply.ends_with_connection and exc is None:
            self._end()
        else:
            reason = str(exc or "") or "the server closed the connection"
            self._fail(self._reply.broken(reason))

    def _has_room(self) -> bool:
        return self._held is None or self._held.resize(self._reply.bytes_expected, self._go_on)

    def _go_on(self, error: Exception | None) -> None:
        """Go on with a reply for which there was no room, or end it with an error."""
        if error is not None:
            self._fail(error)
        if self._waiting is None or self._waiting.done():
            return
        if self._reply.whole:
            self._end_whole()
        if not self._gone and not self._transport.is_closing():
            self._transport.resume_reading()

    def _end_whole(self) -> None:
        self._kept_alive = self._reply.persists
        self._end()

    def _end(self) -> None:
        assert self._waiting is not None
        try:
            response = self._reply.response()
        except ReplyEncoded as error:
            self._fail(error)
        else:
            self._waiting.set_result(response)

    def _fail(self, error: Exception) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)


def _lines(headers: Mapping[str, str]) -> str:
    """Return encoded header lines, or raise ValueError."""
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if lines.count("\n") != len(headers) or lines.count("\r") != len(headers) or "\0" in lines:
        raise ValueError("a header has a line break")
    return lines
