"""A server in place of the REST API, whose answers a test chooses and whose requests it keeps."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, bytes]
Answering = Callable[[str, Any], Answer]
"""Gets `METHOD /path?query` and the JSON body (None without one), and returns status and body."""


@dataclass
class ScriptedApi:
    """Where it listens, and what it was asked."""

    url: str
    asked: list[tuple[str, Any]] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)
    """The port of the connection over which each request came."""
    sizes: list[int] = field(default_factory=list)
    """The length of each request's body."""


@contextmanager
def scripted_api(answering: Answering, *, cut_by: int = 0, **headers: str) -> Iterator[ScriptedApi]:
    """Serve inside the block; each answer has these headers, and lacks its last `cut_by` bytes."""
    api = ScriptedApi("")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            asked = f"{self.command} {self.path}"
            api.asked.append((asked, body))
            api.ports.append(self.client_address[1])
            api.sizes.append(length)
            status, data = answering(asked, body)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[: len(data) - cut_by])
            self.close_connection = self.close_connection or cut_by > 0

        do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815 - as the base class calls them

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    api.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def as_json(status: int, value: Any) -> Answer:
    """Return an answer with a JSON body."""
    return status, json.dumps(value).encode()


def refusal(status: int, code: str, message: str, details: dict[str, Any] | None = None) -> Answer:
    """Return a refusal as the API sends it."""
    error = {"code": code, "message": message, "details": details or {}}
    problem = {"title": code, "status": status, "detail": message, "code": code, "error": error}
    return as_json(status, problem)
