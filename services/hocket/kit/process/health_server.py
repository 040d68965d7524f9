"""GET /healthz, /readyz and /metrics of a process, at a cost that callers cannot increase.

The server shares the event loop with the process's work, so its share is bounded: connections are
accepted at a limited rate, each may send one request and is then closed, and an answer is computed at
most once per KEPT_S. When all places are taken, a new connection replaces the oldest, so that silent
callers lock nobody out.
"""

import asyncio
import json
import os
import socket
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import cast

from hocket.kit.web_requests import ANY, UNSPECIFIED, WebRules, in_url, open_listener
from hocket.schemas.checks.plain_json import shown_text
from hocket.schemas.errors import ErrorClass, HocketError

MAX_CONNECTIONS = 64
MAX_HEAD_BYTES = 8_192
LIFE_S = 5.0
"""How long a connection may last."""
ACCEPTED_AT_ONCE = 16
ACCEPT_EVERY_S = 0.05
"""Up to ACCEPTED_AT_ONCE connections are accepted together; this pause follows."""
KEPT_S = 0.5
"""How long an answer is reused."""
BACKLOG = 128


class HealthNotServed(HocketError):
    """`/healthz` cannot be served on {host}:{port}: {reason}. Choose another place with
    HOCKET_HEALTH_HOST and HOCKET_HEALTH_PORT."""

    code = "health_not_served"
    error_class = ErrorClass.INVALID


class DataFolderUnusable(HocketError):
    """The data folder {folder} cannot be written to: {reason}. Choose another one with
    HOCKET_DATA_DIR."""

    code = "data_folder_unusable"
    error_class = ErrorClass.INVALID


Answer = Callable[[], tuple[int, str, bytes]]
"""Returns the status, media type and body of an answer."""


class HealthServer:
    """Answers the paths of `pages`, from `start` to `close`."""

    def __init__(self, host: str, port: int, pages: dict[str, Answer]) -> None:
        self._pages = {path: _Page(answer) for path, answer in pages.items()}
        loopback = host not in UNSPECIFIED and host.startswith(("127.", "localhost", "::1"))
        self._rules = WebRules.of(host, () if loopback else (ANY,))
        try:
            self._listener = open_listener(host, port, BACKLOG)
        except (OSError, UnicodeError) as error:
            raise HealthNotServed(host=in_url(host), port=port, reason=str(error)) from error
        self._listener.setblocking(False)
        self._connections: dict[_Connection, None] = {}
        self._opening: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None

    @property
    def url(self) -> str:
        host, port = self._listener.getsockname()[:2]
        return f"http://{in_url(host)}:{port}"

    def start(self) -> None:
        """Start accepting connections."""
        self._pause = None
        asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def close(self) -> None:
        """Stop accepting connections, and close those that are open."""
        asyncio.get_running_loop().remove_reader(self._listener)
        if self._pause is not None:
            self._pause.cancel()
        self._listener.close()
        for task in self._opening:
            task.cancel()
        for connection in list(self._connections):
            connection.abort()

    def answer(self, head: bytes) -> bytes:
        """Return the answer to a request, given its head."""
        lines = head.decode("latin-1").split("\r\n")
        method, path = (*lines[0].split(" "), "", "")[:2]
        fields = [line.partition(":") for line in lines[1:]]
        hosts = [value.strip() for name, _, value in fields if name.lower() == "host"]
        if method not in ("GET", "HEAD"):
            return _answer(405, "text/plain", b"Use GET.\n")
        try:
            if hosts or lines[0].endswith("HTTP/1.1"):
                self._rules.check(method, host=hosts)
        except HocketError as error:
            return _answer(421, "text/plain", f"{error}\n".encode())
        page = self._pages.get(path.partition("?")[0])
        if page is None:
            return _answer(404, "text/plain", b"There are /healthz, /readyz and /metrics.\n")
        status, kind, body = page.content()
        return _answer(status, kind, body, head_only=method == "HEAD")

    def forget(self, connection: "_Connection") -> None:
        self._connections.pop(connection, None)

    def admit(self, connection: "_Connection") -> None:
        """Give a connection a place; if none is free, close the oldest connection for it."""
        if len(self._connections) >= MAX_CONNECTIONS:
            next(iter(self._connections)).abort()
        self._connections[connection] = None

    def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                accepted, _address = self._listener.accept()
            except OSError:  # nobody is waiting, or no file descriptor is left
                break
            accepted.setblocking(False)
            task = loop.create_task(self._open(accepted))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)
        loop.remove_reader(self._listener)
        self._pause = loop.call_later(ACCEPT_EVERY_S, self.start)

    async def _open(self, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(lambda: _Connection(self), accepted)
        except OSError:
            accepted.close()


class _Page:
    """An answer that is computed again when it is older than KEPT_S."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._made_s = float("-inf")
        self._content = (503, "text/plain", b"")

    def content(self) -> tuple[int, str, bytes]:
        now_s = time.monotonic()
        if now_s - self._made_s > KEPT_S:
            self._made_s, self._content = now_s, self._answer()
        return self._content


class _Connection(asyncio.Protocol):
    """One request and its answer."""

    def __init__(self, server: HealthServer) -> None:
        self._server = server
        self._head = b""
        self._transport: asyncio.Transport | None = None
        self._end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass
        self._end = asyncio.get_running_loop().call_later(LIFE_S, self.abort)
        self._server.admit(self)

    def data_received(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._head += data
        head, end, _ = self._head.partition(b"\r\n\r\n")
        if end:
            transport.write(self._server.answer(head))
        elif len(self._head) > MAX_HEAD_BYTES:
            transport.write(_answer(431, "text/plain", b"The head is too large.\n"))
        else:
            return
        transport.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._server.forget(self)
        if self._end is not None:
            self._end.cancel()

    def abort(self) -> None:
        self._server.forget(self)
        if self._transport is not None:
            self._transport.abort()


def write_facts(folder: Path, service: str, url: str) -> Path:
    """Write a file with the address of a process's health, for the command `hocket`; return its path."""
    path = folder / f"{service}-{os.getpid()}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"service": service, "pid": os.getpid(), "health_url": url}))
    except OSError as error:
        shown = shown_text(str(folder.parent))
        raise DataFolderUnusable(folder=shown, reason=error.strerror) from error
    return path


def _answer(status: int, kind: str, body: bytes, *, head_only: bool = False) -> bytes:
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: {kind}; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (b"" if head_only else body)
