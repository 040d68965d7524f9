"""The connections of the API, watched: none holds memory or a place for ever and says or reads nothing.

uvicorn reads a head of any size, waits for ever for the rest of a head or of a body, and keeps an answer
that nobody reads. Here a head (and what else of a request is no body) has a size, head and body have a
time, and answers that are not read have a time and, all together, a size. The watch looks at all
connections every LOOK_S, so that a request costs next to nothing for it.
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

MAX_HEAD_BYTES = 65_536
"""What a request may take that is no body: its head, the frames of its chunks, its trailers. What comes
in one read counts once it has been read."""
FRAME_BYTES = 8
"""What the frame of a byte of the body may take."""
HEAD_S = 20.0
"""How long a connection may take to say the head of a request."""
BODY_S = 60.0
"""How long a body may take to come."""
STALLED_READER_S = 30.0
"""How long a caller may leave its answer unread once nothing more fits between it and us."""
MAX_UNREAD_BYTES = 256 * 1_048_576
"""What all answers together may hold that are not read yet."""
HEAD_SLICE_BYTES = 512
BODY_SLICE_BYTES = 4_096
"""What is read at once of what came: what follows a whole request is read once that is answered."""
MAX_PIPELINED = 16
"""Requests read ahead of the one that is answered; a connection with more ends once they are."""
GONE = "hocket.gone"
"""Under which name the scope of a request has what tells whether its caller has gone."""
LOOK_S = 1.0
MAX_CONNECTIONS = 4_096
"""Connections of one API; less where the process may open few files."""
FILES_SHARE = 0.5
"""The part of the process's files that connections may take."""

log = structlog.get_logger(__name__)


class WatchedConnection(HttpToolsProtocol):
    """A connection that knows since when it waits for what; `watch` closes it."""

    _since_s: float | None = None
    """Since when the present part of a request is on its way; None between two requests."""
    _part = "head"
    _framing_bytes = 0
    _unparsed = b""
    _unread_bytes = 0
    _unread_since_s = 0.0
    _ending = False
    """Whether nothing more is read, and the connection ends with what was asked until now."""

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
        """Read what came, a slice at a time, until a request is whole that is not answered yet."""
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
        """Whether a request has come whole and is not answered."""
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
            raise httptools.HttpParserError("too many requests follow each other")
        super().on_message_begin()
        self._since_s, self._part = self.loop.time(), "head"

    def send_400_response(self, msg: str) -> None:
        """Refuse what cannot be read; what was asked before it is answered first."""
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
        """Note that the caller has read."""
        super().resume_writing()
        self._unread_since_s = self.loop.time()

    @property
    def unread_bytes(self) -> int:
        """What of its answers has not been read yet."""
        return 0 if self.transport.is_closing() else self.transport.get_write_buffer_size()

    def fault(self, now_s: float) -> str:
        """Return why the connection is to be closed, nothing where it may stay."""
        if self._since_s is not None and not self.flow.read_paused:
            patience_s = HEAD_S if self._part == "head" else BODY_S
            if now_s - self._since_s > patience_s:
                return f"the {self._part} of a request did not come within {patience_s:g} s"
        unread = self.transport.get_write_buffer_size()
        if not unread or unread < self._unread_bytes or not self._unread_bytes:
            self._unread_since_s = now_s
        self._unread_bytes = unread
        if unread and now_s - self._unread_since_s > STALLED_READER_S:
            return f"nothing of its answer was read for {STALLED_READER_S:g} s"
        return ""

    def close(self, reason: str) -> None:
        """Close the connection at once; what answers it is cancelled."""
        log.info("api_connection_closed", reason=reason)
        self.transport.abort()


def _refusal(reason: str) -> bytes:
    """Return what the API answers to what never reaches it."""
    answer = error_response(RequestMalformed(reason=reason.rstrip(".")).info())
    head = [*answer.raw_headers, (b"connection", b"close")]
    lines = b"".join(b"%b: %b\r\n" % one for one in head)
    start = b"HTTP/1.1 %d Bad Request\r\n" % answer.status_code
    return start + lines + b"\r\n" + bytes(answer.body)


def gone_of(scope: Mapping[str, Any]) -> bool:
    """Tell whether the caller of a request has gone, as far as its server says it."""
    gone = scope.get(GONE)
    return gone is not None and bool(gone())


def _has_gone(transport: asyncio.Transport, cycle: RequestResponseCycle) -> bool:
    """Tell whether nobody is there to hear the answer; uvicorn misses none then."""
    cycle.disconnected |= transport.is_closing()
    return cycle.disconnected


async def watch(connections: Iterable[Any]) -> None:
    """Close connections that hold a place or memory for nothing, for ever."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(LOOK_S)
        now_s = loop.time()
        watched = [one for one in connections if isinstance(one, WatchedConnection)]
        for connection in watched:
            if why := connection.fault(now_s):
                connection.close(why)
        _free(watched)


def _free(connections: list[WatchedConnection]) -> None:
    """Close those with most unread, until all others together hold no more than they may."""
    held = sorted(((one.unread_bytes, one) for one in connections), key=lambda item: item[0])
    total = sum(unread for unread, _ in held)
    while total > MAX_UNREAD_BYTES:
        unread, connection = held.pop()
        connection.close("too much of all answers is not read")
        total -= unread


def most_connections() -> int:
    """Return how many connections the API may have in this process."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(1, min(MAX_CONNECTIONS, int(files * FILES_SHARE)))
