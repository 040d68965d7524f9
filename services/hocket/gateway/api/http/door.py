"""The HTTP door: listens, and dispatches requests to their handlers (`answering/`).

It uses aiohttp's low-level server without a router: five paths do not need one, and it would take
half of the time that the gateway adds to a call.

States: open; closing (no new requests, calls in flight continue); closed.
"""

import asyncio
import socket
from typing import Any

from aiohttp import web

from hocket.gateway.api.http.answering.checks import RequestChecks
from hocket.gateway.api.http.answering.model_list import Allows, allows_all
from hocket.gateway.api.http.answering.paths import PREFIX
from hocket.gateway.api.http.answering.reads import HttpReads
from hocket.gateway.api.http.answering.replies import refusal
from hocket.gateway.api.http.answering.requests import HttpRequests
from hocket.gateway.api.http.connections import WatchedServer
from hocket.gateway.api.http.errors import HttpMalformed, HttpPortTaken
from hocket.gateway.api.http.intake import MAX_BODY_BYTES
from hocket.gateway.api.http.keys import DoorKeys
from hocket.gateway.calls.registry import CallRegistry
from hocket.gateway.metrics import GatewayMetrics
from hocket.kit.process.limits.disk_space import UNWATCHED, DiskSpace
from hocket.kit.web_requests import WebRules, in_url, open_listener

BACKLOG = 1_024
CLOSE_TIMEOUT_S = 2.0


class HttpDoor:
    """Takes calls over HTTP: call `open`, then `stop_accepting`,
    then `close` once those in flight are answered. `allows` tells whether a tenant may use a model."""

    def __init__(
        self,
        registry: CallRegistry,
        keys: DoorKeys,
        metrics: GatewayMetrics,
        rules: WebRules,
        disk: DiskSpace = UNWATCHED,
        allows: Allows = allows_all,
    ) -> None:
        checks, reads = RequestChecks(rules, disk), HttpReads(registry, allows)
        self._requests = HttpRequests(registry, keys, metrics, checks, reads)
        self._listening: asyncio.Server | None = None
        self._server: WatchedServer | None = None
        self._watching: asyncio.Task[None] | None = None

    async def open(self, host: str, port: int) -> str:
        """Listen, and return the URL; port 0 chooses any free port. Raises HttpPortTaken."""
        loop = asyncio.get_running_loop()
        self._server = WatchedServer(
            self._requests.handle, _malformed, request_factory=_request, handler_cancellation=True
        )
        try:  # uvloop's own sockets say nothing if another process was faster to listen
            listener = open_listener(host, port, BACKLOG)
        except OSError as error:
            raise HttpPortTaken(host=in_url(host), port=port, reason=error.strerror) from error
        self._listening = await loop.create_server(self._server, sock=listener, backlog=BACKLOG)
        self._watching = asyncio.create_task(self._server.watch(), name="http connections")
        bound = next(s for s in self._listening.sockets if s.family != socket.AF_UNIX)
        bound_host, bound_port = bound.getsockname()[:2]
        return f"http://{in_url(bound_host)}:{bound_port}{PREFIX}"

    async def stop_accepting(self) -> None:
        """Accept no new requests."""
        self._requests.take_no_more()
        if self._listening is not None:
            self._listening.close()

    async def close(self) -> None:
        """Close all connections."""
        if self._watching is not None:
            self._watching.cancel()
        if self._server is not None:
            await self._server.shutdown(CLOSE_TIMEOUT_S)


def _malformed(reason: str) -> web.Response:
    return refusal(HttpMalformed(reason=reason).info())


def _request(
    message: Any, payload: Any, protocol: Any, writer: Any, task: "asyncio.Task[None]"
) -> web.BaseRequest:
    """Return a request whose body may have up to MAX_BODY_BYTES."""
    loop = asyncio.get_running_loop()
    return web.BaseRequest(
        message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY_BYTES
    )
