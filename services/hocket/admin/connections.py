"""Watches the API's connections, so that an idle or stalled one does not hold memory or a slot for ever.

By itself, uvicorn accepts a head of any size, waits indefinitely for the rest of a head or body, and
keeps an answer that nobody reads. Here, the head (and everything else in a request except the body) is
limited in size, head and body are limited in time, and unread answers are limited in time and in total
size. The watch inspects all connections every LOOK_S, so the cost per request is negligible.
"""

import asyncio
import resource
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, cast

import httptools
import structlog
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from hocket.admin.requests.errors import RequestMalformed, error_response
from hocket.kit.unread_answers import TOO_MUCH_UNREAD, most_unread

MAX_HEAD_BYTES = 65_536
"""The maximum size of a request apart from its body: head, chunk framing and trailers. Bytes that arrive
in one read count once they have been read."""
FRAME_BYTES = 8
"""The framing allowed per byte of the body."""
HEAD_S = 20.0
"""How long a connection may take to send the head of a request."""
BODY_S = 60.0
"""How long a body may take to arrive."""
STALLED_READER_S = 30.0
"""How long a caller may leave its answer unread once the buffers between it and us are full."""
MAX_UNREAD_BYTES = 256 * 1_048_576
"""The maximum size of all unread answers together."""
HEAD_SLICE_BYTES = 512
BODY_SLICE_BYTES = 4_096
"""How much of the received data is parsed at a time: bytes after a complete request are parsed once that
request is answered."""
MAX_PIPELINED = 16
"""Requests read ahead of the one being answered; a connection with more ends once these are answered."""
GONE = "hocket.gone"
"""The key in a request's scope of the function that tells whether the caller has disconnected."""
LOOK_S = 1.0
MAX_CONNECTIONS = 4_096
"""The maximum number of connections of one API process; fewer if the process may open only few files."""
FILES_SHARE = 0.5
"""The share of the process's file descriptors that connections may use."""

log = structlog.get_logger(__name__)


class WatchedConnection(HttpToolsProtocol):
    """A connection that knows what it is waiting for and since when, so that `watch` can close it."""

    _since_s: float | None = None
    """When the current part of a request began to arrive; None between requests."""
    _part = "head"
    _framing_bytes = 0
    _unparsed = b""
    _unread_bytes = 0
    _unread_since_s = 0.0
    _ending = False
    """Whether reading has stopped and the connection ends once the requests received so far are
    answered."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._since_s = self.loop.time()
        if len(self.connections) > most_connections():
            log.warning("api_connections_full", connections=len(self.connections))
            transport.abort()

    def data_received(self, data: bytes) -> None:
        self._unparsed += data
        self._parse()

    def _parse(self) -> None:
        """Parse the received data, a slice at a time, until there is a complete unanswered request."""
        came, place = self._unparsed, 0
        while place < len(came) and not self._ending and not self.transport.is_closing():
            if self._answering:
                self.flow.pause_reading()
                break
            size = BODY_SLICE_BYTES if self._part == "body" else HEAD_SLICE_BYTES
            part = came[place : place + size]
            place += size
            self._framing_bytes += len(part)
            super().data_received(part)
            if self._framing_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                self._refuse_head()
        self._unparsed = came[place:]

    @property
    def _answering(self) -> bool:
        """Whether a complete request has not been answered yet."""
        cycle = self.cycle
        return cycle is not None and not cycle.more_body and not cycle.response_complete

    def _refuse_head(self) -> None:
        log.info("api_connection_closed", reason="the head of a request is too large")
        if self.cycle is None or self.cycle.response_complete:
            self.send_400_response(f"its head has more than {MAX_HEAD_BYTES} bytes")
        else:
            self.transport.abort()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._unparsed and not self.pipeline:
            self.loop.call_soon(self._parse)

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= MAX_PIPELINED:
            raise httptools.HttpParserError("too many requests were sent one after another")
        super().on_message_begin()
        self._since_s, self._part = self.loop.time(), "head"

    def send_400_response(self, msg: str) -> None:
        """Refuse a malformed request; requests received before it are answered first."""
        if not self.pipeline:
            self.transport.write(_refusal(msg))
            self.transport.close()
            return
        log.info("api_connection_closed", reason="more requests follow than are answered")
        self._ending, self._since_s = True, None
        self.pipeline[0][0].keep_alive = False

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        cast(dict[str, Any], self.scope)[GONE] = partial(_has_gone, self.transport, self.cycle)
        self._since_s, self._part = self.loop.time(), "body"
        self._framing_bytes = 0

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._framing_bytes -= len(body) * (1 + FRAME_BYTES)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._since_s, self._part = None, "head"
        self._framing_bytes = 0

    def resume_writing(self) -> None:
        """Note that the caller has read data."""
        super().resume_writing()
        self._unread_since_s = self.loop.time()

    @property
    def unread_bytes(self) -> int:
        """How many bytes of its answers have not been read yet."""
        return 0 if self.transport.is_closing() else self.transport.get_write_buffer_size()

    def fault(self, now_s: float) -> str:
        """Return why the connection has to be closed; empty if it may stay open."""
        if self._since_s is not None and not self.flow.read_paused:
            patience_s = HEAD_S if self._part == "head" else BODY_S
            if now_s - self._since_s > patience_s:
                return f"the {self._part} of a request did not arrive within {patience_s:g} s"
        unread = self.transport.get_write_buffer_size()
        if not unread or unread < self._unread_bytes or not self._unread_bytes:
            self._unread_since_s = now_s
        self._unread_bytes = unread
        if unread and now_s - self._unread_since_s > STALLED_READER_S:
            return f"its answer was not read for {STALLED_READER_S:g} s"
        return ""

    def close(self, reason: str) -> None:
        """Close the connection at once; the task answering it is cancelled."""
        log.info("api_connection_closed", reason=reason)
        self.transport.abort()


def _refusal(reason: str) -> bytes:
    """Return the API's answer to a request that never reaches it."""
    answer = error_response(RequestMalformed(reason=reason.rstrip(".")).info())
    head = [*answer.raw_headers, (b"connection", b"close")]
    lines = b"".join(b"%b: %b\r\n" % one for one in head)
    start = b"HTTP/1.1 %d Bad Request\r\n" % answer.status_code
    return start + lines + b"\r\n" + bytes(answer.body)


def gone_of(scope: Mapping[str, Any]) -> bool:
    """Tell whether the caller of a request has disconnected, as far as the server knows."""
    gone = scope.get(GONE)
    return gone is not None and bool(gone())


def _has_gone(transport: asyncio.Transport, cycle: RequestResponseCycle) -> bool:
    """Tell whether the caller has disconnected, and mark the cycle so, in case uvicorn has not
    noticed."""
    cycle.disconnected |= transport.is_closing()
    return cycle.disconnected


async def watch(connections: Iterable[Any]) -> None:
    """Keep closing connections that hold a slot or memory without progress, until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(LOOK_S)
        now_s = loop.time()
        watched = [one for one in connections if isinstance(one, WatchedConnection)]
        for connection in watched:
            if why := connection.fault(now_s):
                connection.close(why)
        for connection in most_unread(watched, MAX_UNREAD_BYTES):
            connection.close(TOO_MUCH_UNREAD)


def most_connections() -> int:
    """Return the maximum number of connections in this process."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(1, min(MAX_CONNECTIONS, int(files * FILES_SHARE)))
