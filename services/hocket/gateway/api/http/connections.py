"""Watches the connections of the HTTP door, so that none stays open forever without sending or
reading.

aiohttp closes connections that are idle between two requests. Connections that never send a
complete head, stop reading their answer, or exceed the maximum are closed here. All of them are
checked every LOOK_S, so single requests cost nothing extra. Closing a connection cancels its
handler, and thereby its call. No address may hold so many that others have no room.
"""

import asyncio
import resource
from collections import Counter
from collections.abc import Callable
from typing import Any

import structlog
from aiohttp import web

from hocket.kit.logs.log_limits import Reporting
from hocket.kit.unread_answers import TOO_MUCH_UNREAD, most_unread
from hocket.kit.web_requests import counted_address

KEEP_ALIVE_S = 75.0
HEAD_S = 20.0
"""How long a connection may take to send the head of its first request."""
STALLED_READER_S = 30.0
"""How long a caller may read nothing of its answer once all buffers are full. A slow reader is left
alone: any progress counts."""
MAX_UNREAD_BYTES = 128 * 1024 * 1024
"""The most bytes of all answers that have not been read yet."""
LINGER_S = 2.0
"""How long further input is discarded, so that a refused caller can still read why."""
LOOK_S = 1.0
MAX_CONNECTIONS = 4_096
"""The most connections of one door; fewer if the process may open few files."""
ADDRESS_FACTOR = 3
"""An address may hold at most this many times the number of free connections. Alone (a proxy, say) it
gets three quarters of all."""
FILES_SHARE = 0.5
"""The share of the process's file limit that the door's connections may take."""

log = structlog.get_logger()
_reporting = Reporting()

Refuse = Callable[[str], web.Response]
"""Makes the answer to malformed HTTP, given the reason."""


class WatchedServer(web.Server):
    """aiohttp's server with watched connections; `watch` runs as long as it serves."""

    def __init__(self, handler: Any, refuse: Refuse, **options: Any) -> None:
        super().__init__(handler, **options)
        self._refuse = refuse
        self._most = most_connections()
        self._from: Counter[str] = Counter()

    def __call__(self) -> web.RequestHandler:
        loop = asyncio.get_running_loop()
        return _Connection(
            self,
            self._refuse,
            loop=loop,
            access_log=None,  # None disables it
            keepalive_timeout=KEEP_ALIVE_S,
            lingering_time=LINGER_S,
            auto_decompress=False,  # a few bytes could become gigabytes, even in discarded input
        )

    def admit(self, address: str) -> bool:
        """Count a connection that was made from an address; tell whether there was room for it."""
        free, held = self._most - len(self._connections) + 1, self._from[address]
        self._from[address] += 1
        return free > 0 and held < ADDRESS_FACTOR * free

    def lost(self, address: str) -> None:
        """Count a connection no longer."""
        self._from[address] -= 1
        if not self._from[address]:
            del self._from[address]

    async def watch(self) -> None:
        """Close connections that occupy a place without making progress; runs forever."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_S)
            now_s = loop.time()
            watched = [one for one in self.connections if isinstance(one, _Connection)]
            for connection in watched:
                if why := connection.fault(now_s):
                    connection.close_for(why)
            for connection in most_unread(watched, MAX_UNREAD_BYTES):
                connection.close_for(TOO_MUCH_UNREAD)


class _Connection(web.RequestHandler):
    """A connection that answers malformed HTTP in the API's error format."""

    __slots__ = (
        "_address",
        "_heard_s",
        "_refuse",
        "_requests_seen",
        "_unread_bytes",
        "_unread_since_s",
    )

    def __init__(self, server: WatchedServer, refuse: Refuse, **options: Any) -> None:
        super().__init__(server, **options)
        self._refuse = refuse
        self._address = ""
        self._heard_s = 0.0
        self._requests_seen = 0
        self._unread_bytes = 0
        self._unread_since_s = 0.0

    def resume_writing(self) -> None:
        """Count as progress that the buffer has room again.

        The caller has then read something, even if the watch finds as much unread as it did last
        time.
        """
        super().resume_writing()
        self._unread_since_s = self._loop.time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._heard_s = self._loop.time()
        self._address = address_of(transport)
        server = self._manager
        if isinstance(server, WatchedServer) and not server.admit(self._address):
            if count := _reporting.due("http_connections_full"):
                held = {"connections": len(server.connections), "address": self._address}
                log.warning("http_connections_full", **held, count=count)
            self.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        server = self._manager  # the handler forgets it
        super().connection_lost(exc)
        if isinstance(server, WatchedServer):
            server.lost(self._address)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Refuse an unreadable request; the connection is closed afterwards."""
        log.info("http_request_malformed", status=status, reason=repr(exc))
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun already")
        refused = self._refuse(message or type(exc).__name__)
        refused.force_close()
        return refused

    def fault(self, now_s: float) -> str:
        """Return why the connection should be closed, or an empty string."""
        if self._request_in_progress or self._request_count != self._requests_seen:
            self._heard_s, self._requests_seen = now_s, self._request_count
        patience_s = KEEP_ALIVE_S + HEAD_S if self._request_count else HEAD_S
        if now_s - self._heard_s > patience_s:
            return f"no request within {patience_s:g} s"
        return self._stalled(now_s)

    @property
    def unread_bytes(self) -> int:
        """How many bytes of its answers have not been read yet."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return 0
        return transport.get_write_buffer_size()

    def close_for(self, reason: str) -> None:
        """Close the connection at once, and log why."""
        log.info("http_connection_closed", reason=reason)
        self.abort()

    def abort(self) -> None:
        """Close the connection at once, cancelling its handler."""
        if self.transport is not None:
            self.transport.abort()

    def _stalled(self, now_s: float) -> str:
        unread = self.unread_bytes
        if not unread or unread < self._unread_bytes or not self._unread_bytes:
            self._unread_since_s = now_s
        self._unread_bytes = unread
        if unread and now_s - self._unread_since_s > STALLED_READER_S:
            return f"its answer was not read for {STALLED_READER_S:g} s"
        return ""


def address_of(transport: asyncio.BaseTransport) -> str:
    """Return the address that a connection counts for."""
    peer = transport.get_extra_info("peername")
    host = str(peer[0]) if isinstance(peer, list | tuple) and peer else ""
    return counted_address(host)


def most_connections() -> int:
    """Return the most connections a door may have in this process."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(1, min(MAX_CONNECTIONS, int(files * FILES_SHARE)))
