"""The HTTP door: listens, reads requests, makes calls, answers whole or as a stream.

aiohttp's low-level server, without a router: five paths need none, and half of what the gateway adds to
a call would be spent in one. A caller that goes away cancels its call within the same turn of the event
loop. A stream begins with the first chunk, so that what fails before it is a plain error answer; what
fails later ends the stream with an error event. `[DONE]` follows when the call is booked.

States: open; closing (`take_no_more`: nobody else is let in, calls in flight go on); closed.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import structlog
from aiohttp import web
from pydantic_core import to_json

from hocket.gateway.api.http import bodies, identity
from hocket.gateway.api.http.answers import Answers
from hocket.gateway.api.http.call_request import called
from hocket.gateway.api.http.connections import WatchedServer
from hocket.gateway.api.http.intake import MAX_BODY_BYTES, Bodies, Body, Release
from hocket.gateway.api.http.keys import DoorKeys
from hocket.gateway.api.http.openapi import document_json
from hocket.gateway.backends.protocol import Chunk
from hocket.gateway.calls.registry import CallRegistry
from hocket.gateway.core.config.access import Key, ModelForbidden
from hocket.gateway.core.errors import GatewayBroken, GatewayFull, GatewayStalled
from hocket.gateway.core.protocols.openai_api import CHAT, COMPLETIONS, EMBEDDINGS
from hocket.gateway.core.protocols.responses.request import RESPONSES
from hocket.gateway.metrics import GatewayMetrics
from hocket.kit.process import clock
from hocket.kit.process.limits.disk_space import UNWATCHED, DiskSpace
from hocket.kit.request_turns import Turn, Turns, give_way
from hocket.kit.web_requests import WebRules, check_encoding, check_media_type
from hocket.schemas.access.roles import Permission
from hocket.schemas.checks.plain_json import shown_text
from hocket.schemas.errors import ErrorClass, ErrorInfo, HocketError
from hocket.schemas.messages import CallReply, CallRequest
from hocket.schemas.openai.failures import failure

MAX_REQUESTS = 4_096
"""Requests that are read or answered at once; calls have a bound of their own."""
BUSY_RETRY_MS = 1_000.0
BOOKING_GRACE_MS = 30_000.0
"""How long after its deadline a call may take to be booked before its caller is let go."""
BACKLOG = 1_024
CLOSE_TIMEOUT_S = 2.0
PREFIX = "/v1"
DOCUMENT = "/openapi.json"
MAX_SHOWN_CHARS = 100
POSTS = frozenset({CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES})
JSON = {"Content-Type": "application/json"}

log = structlog.get_logger()


class PathUnknown(HocketError):
    """There is no `{path}` here. See /openapi.json."""

    code = "not_found"
    error_class = ErrorClass.INVALID


class MethodNotAllowed(HocketError):
    """{method} is not for `{path}`; use {allowed}."""

    code = "method_not_allowed"
    error_class = ErrorClass.INVALID


class QueryUnknown(HocketError):
    """There is no query parameter `{field}` here. Send none."""

    code = "query_unknown"
    error_class = ErrorClass.INVALID


class HttpMalformed(HocketError):
    """The request is not valid HTTP: {reason}."""

    code = "http_malformed"
    error_class = ErrorClass.INVALID


class HttpPortTaken(HocketError):
    """The gateway cannot listen on {host}:{port}: {reason}. Choose another port with
    HOCKET_GATEWAY_PORT."""

    code = "http_port_taken"
    error_class = ErrorClass.UNAVAILABLE


class HttpDoor:
    """Takes calls over HTTP: `open`, `stop_accepting`, and `close` when those in flight are answered."""

    def __init__(
        self,
        registry: CallRegistry,
        keys: DoorKeys,
        metrics: GatewayMetrics,
        rules: WebRules,
        disk: DiskSpace = UNWATCHED,
    ) -> None:
        self._disk = disk
        self._rules = rules
        self._registry = registry
        self._keys = keys
        self._metrics = metrics
        self._requests = 0
        self._turns = Turns()
        self._closing = False
        self._listening: asyncio.Server | None = None
        self._server: WatchedServer | None = None
        self._watching: asyncio.Task[None] | None = None
        self._bodies = Bodies()

    async def open(self, host: str, port: int) -> str:
        """Listen, and return the URL; port 0 is any free one. Raises HttpPortTaken."""
        loop = asyncio.get_running_loop()
        self._server = WatchedServer(
            self._handle, _malformed, request_factory=_request, handler_cancellation=True
        )
        try:
            self._listening = await loop.create_server(
                self._server, host, port, backlog=BACKLOG, reuse_address=True
            )
        except OSError as error:
            raise HttpPortTaken(host=host, port=port, reason=error.strerror) from error
        self._watching = asyncio.create_task(self._server.watch(), name="http connections")
        bound = next(s for s in self._listening.sockets if s.family != socket.AF_UNIX)
        bound_host, bound_port = bound.getsockname()[:2]
        return f"http://{bound_host}:{bound_port}{PREFIX}"

    async def stop_accepting(self) -> None:
        """Let nobody else in."""
        self._closing = True
        if self._listening is not None:
            self._listening.close()

    async def close(self) -> None:
        """Close all connections."""
        if self._watching is not None:
            self._watching.cancel()
        if self._server is not None:
            await self._server.shutdown(CLOSE_TIMEOUT_S)

    # ---- one request --------------------------------------------------------------------------

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self._requests += 1
        self._metrics.http_requests.inc()
        turn: Turn | None = None
        try:
            self._check_page(request)
            key = await self._key(request)
            turn = self._turns.turn(*_caller_of(request, key))
            await turn.take()
            with self._keys.open(key):
                return await self._answered(request, key, turn)
        except MethodNotAllowed as error:
            refused = self._failed(error.info())
            refused.headers["Allow"] = error.fields["allowed"]
            return refused
        except HocketError as error:
            return self._failed(error.info())
        except ConnectionError:
            raise
        except Exception as error:
            log.exception("http_request_crashed", path=request.path)
            broken = GatewayBroken(reason=type(error).__name__, component="gateway").info()
            return self._failed(broken)
        finally:
            if turn is not None:
                turn.give_back()
            self._requests -= 1

    async def _key(self, request: web.BaseRequest) -> Key | None:
        """Return the key of a request; the document needs none."""
        if request.path.removeprefix(PREFIX) == DOCUMENT:
            self._keys.limit_stranger(_address_of(request)[0])
            return None
        return await self._keys.key(request.headers)

    def _check_page(self, request: web.BaseRequest) -> None:
        headers = request.headers
        self._rules.check(
            request.method,
            host=headers.getall("Host", ()),
            origin=headers.getall("Origin", ()),
            fetch_site=headers.get("Sec-Fetch-Site"),
            fetch_mode=headers.get("Sec-Fetch-Mode"),
            fetch_dest=headers.get("Sec-Fetch-Dest"),
        )

    async def _answered(
        self, request: web.BaseRequest, key: Key | None, turn: Turn
    ) -> web.StreamResponse:
        path = _path_of(request)
        if self._requests > MAX_REQUESTS or self._closing:
            raise GatewayFull(
                limit=MAX_REQUESTS,
                component="gateway",
                retry_at_ms=clock.now_ms() + BUSY_RETRY_MS,
            )
        if request.method == "POST" and path in POSTS:
            self._disk.check()
            _check_query(request)
            if key is not None:
                key.needs(Permission.MODELS_CALL)
            check_media_type(request.headers.getall("Content-Type", ()))
            check_encoding(request.headers.getall("Content-Encoding", ()))
            return await self._call(path, request, key, turn)
        return self._read(request, path, key)

    def _read(self, request: web.BaseRequest, path: str, key: Key | None) -> web.StreamResponse:
        """Answer what is no call."""
        if path in POSTS:
            raise MethodNotAllowed(method=request.method, path=request.path, allowed="POST")
        first, _, rest = path.partition("/")
        if first not in ("models", "openapi.json") or (first == "openapi.json" and rest):
            raise PathUnknown(path=shown_text(request.path, MAX_SHOWN_CHARS))
        if request.method not in ("GET", "HEAD"):
            raise MethodNotAllowed(method=request.method, path=request.path, allowed="GET, HEAD")
        _check_query(request)
        if first == "openapi.json":
            return web.Response(body=document_json(), headers=JSON)
        if key is not None:
            key.needs(Permission.MODELS_READ)
        return _json(self._model(rest, key) if rest else self._models(key))

    def _models(self, key: Key | None) -> dict[str, Any]:
        names = self._registry.table.names()
        allowed = names if key is None or key.models is None else sorted(key.models & set(names))
        return {"object": "list", "data": [_described(name) for name in allowed]}

    def _model(self, name: str, key: Key | None) -> dict[str, Any]:
        self._registry.table.model(name)
        if key is not None and key.models is not None and name not in key.models:
            raise ModelForbidden(name=key.name, model=name)
        return _described(name)

    # ---- calls --------------------------------------------------------------------------------

    async def _call(
        self, path: str, request: web.BaseRequest, key: Key | None, turn: Turn
    ) -> web.StreamResponse:
        turn.give_back()
        held = await self._bodies.read(request)
        try:
            await turn.take()
        except BaseException:
            held.release()
            raise
        try:
            return await self._asked(path, request, key, held)
        except asyncio.CancelledError:
            raise  # the call goes on, and releases its body when it ends
        except BaseException:
            held.release()
            raise

    async def _asked(
        self, path: str, request: web.BaseRequest, key: Key | None, held: Body
    ) -> web.StreamResponse:
        """Answer a call whose body is here; the call releases it when it ends."""
        held.weigh()
        body = bodies.read(path, held.content)
        held.content = b""
        if key is not None:
            key.check(body["model"])
        stream = body.get("stream") is True and path != EMBEDDINGS
        call, answers = called(path, body, request.headers, key, stream=stream)
        if stream:
            return await self._streamed(request, call, answers, held.release)
        reply = await self._made(request, call, None, held.release)
        if reply.error is not None:
            return self._failed(reply.error)
        return _json(answers.whole(reply), _headers(reply))

    async def _streamed(
        self, request: web.BaseRequest, call: CallRequest, answers: Answers, release: Release
    ) -> web.StreamResponse:
        sending = _Sending(request, answers, call.call_id)
        try:
            reply = await self._made(request, call, sending.chunk, release)
        except asyncio.CancelledError:
            if sending.begun and request.transport is not None:
                request.transport.abort()  # a stream whose key goes ends unfinished
            raise
        if reply.error is not None and not sending.begun:
            return self._failed(reply.error)
        if reply.error is not None:
            self._metrics.http_failures.labels(reply.error.code).inc()
            return await sending.failed(failure(reply.error, clock.now_ms()).body)
        return await sending.end(reply)

    async def _made(
        self,
        request: web.BaseRequest,
        call: CallRequest,
        chunks: "Callable[[Chunk], Awaitable[None]] | None",
        release: Release,
    ) -> CallReply:
        """Make a call; a caller that goes away, which cancels this, cancels it too."""
        making = self._registry.begin(call, request.headers, chunks, ended=release)
        give_way()
        left_ms = call.deadline_at_ms - clock.now_ms() + BOOKING_GRACE_MS
        try:
            done, _ = await asyncio.wait({making}, timeout=left_ms / 1000)
        except asyncio.CancelledError:
            tenant = call.attribution.tenant
            self._registry.cancel(tenant, call.call_id, "its caller went away")
            raise
        if not done:
            raise GatewayStalled(component="gateway")
        return making.result()

    # ---- answers ------------------------------------------------------------------------------

    def _failed(self, error: ErrorInfo) -> web.Response:
        self._metrics.http_failures.labels(error.code).inc()
        return _refusal(error)


class _Sending:
    """The events of a stream on their way to a caller; one that went away is not an error here."""

    def __init__(self, request: web.BaseRequest, answers: Answers, call_id: str) -> None:
        self._request = request
        self._answers = answers
        self._response = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream",
                "Cache-Control": "no-cache",
                "X-Accel-Buffering": "no",
                "x-request-id": call_id,
                identity.CALL_ID: call_id,
            }
        )

    @property
    def begun(self) -> bool:
        """Whether the caller has got anything."""
        return self._response.prepared

    async def chunk(self, chunk: Chunk) -> None:
        await self._send(self._answers.chunk(chunk))

    async def end(self, reply: CallReply) -> web.StreamResponse:
        return await self._ended(self._answers.end(reply))

    async def failed(self, body: dict[str, Any]) -> web.StreamResponse:
        return await self._ended(self._answers.failed(body))

    async def _ended(self, content: bytes) -> web.StreamResponse:
        await self._send(content)
        return self._response

    async def _send(self, content: bytes) -> None:
        if not content:
            return
        try:
            if not self._response.prepared:
                await self._response.prepare(self._request)
            await self._response.write(content)
        except ConnectionError:
            log.debug("stream_caller_gone")  # its handler is being cancelled


def _caller_of(request: web.BaseRequest, key: Key | None) -> tuple[object, str, str]:
    """Return connection, address and tenant of a request, as far as it says them."""
    connection = _address_of(request)
    tenant = key.tenant if key is not None else None
    return connection, connection[0], tenant or request.headers.get(identity.TENANT) or ""


def _address_of(request: web.BaseRequest) -> tuple[str, int]:
    peer = request.transport.get_extra_info("peername") if request.transport is not None else None
    return (peer[0], peer[1]) if isinstance(peer, (list, tuple)) else ("", 0)


def _path_of(request: web.BaseRequest) -> str:
    """Return the path below `/v1`, without the slash before it; raise PathUnknown for one that is no
    text."""
    path = request.path
    if "\x00" in path or "\ufffd" in path:
        raise PathUnknown(path=shown_text(path, MAX_SHOWN_CHARS))
    return path.removeprefix(PREFIX).removeprefix("/")


def _check_query(request: web.BaseRequest) -> None:
    """No path here has query parameters: one that is passed over would be one that is believed in."""
    for name in request.query:
        raise QueryUnknown(field=shown_text(name, MAX_SHOWN_CHARS))


def _headers(reply: CallReply) -> dict[str, str]:
    return {
        "x-request-id": reply.call_id,
        identity.CALL_ID: reply.call_id,
        "X-Hocket-Backend": reply.backend,
        "X-Hocket-Cost-Usd": str(reply.cost_usd),
    }


def _described(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "hocket"}


def _malformed(reason: str) -> web.Response:
    return _refusal(HttpMalformed(reason=reason).info())


def _refusal(error: ErrorInfo) -> web.Response:
    told = failure(error, clock.now_ms())
    return _json(told.body, told.headers, told.status)


def _json(
    body: dict[str, Any], headers: Mapping[str, str] | None = None, status: int = 200
) -> web.Response:
    return web.Response(
        body=to_json(body, inf_nan_mode="null"),
        status=status,
        headers=JSON if headers is None else {**JSON, **headers},
    )


def _request(
    message: Any, payload: Any, protocol: Any, writer: Any, task: "asyncio.Task[None]"
) -> web.BaseRequest:
    """Make a request whose body may be as large as MAX_BODY_BYTES."""
    loop = asyncio.get_running_loop()
    return web.BaseRequest(
        message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY_BYTES
    )
