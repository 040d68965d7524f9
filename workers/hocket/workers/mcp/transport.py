"""HTTP transport for the SDK's client over the connections of a configured service: addresses are
checked, redirects are not followed, and answers are bounded while they arrive.

Nothing here raises into the session that all calls share: errors are reported to the guard of their
call, and the SDK gets an answer that ends the request.
"""

import asyncio
from typing import Any

import httpx2
import structlog
from aiohttp import ClientError, ClientResponse, ClientTimeout
from pydantic_core import from_json
from yarl import URL

from hocket.kit.logs.log_limits import Reporting
from hocket.schemas.checks.plain_json import shown_text
from hocket.schemas.errors import HocketError, InvalidInput
from hocket.workers.http.media_types import media_type
from hocket.workers.http.remote_errors import reason_of
from hocket.workers.http.services import Service
from hocket.workers.mcp.answers import Answer, EventStream, check
from hocket.workers.mcp.errors import McpAnswerInvalid, McpAnswerTooLarge, McpUnreachable
from hocket.workers.mcp.guard import GUARD, Guard, Received
from hocket.workers.mcp.lost_sessions import SESSION_GONE
from hocket.workers.mcp.statuses import failure_of, fault_of, is_protocol_error

CONNECT_S = 10.0
"""The timeout of opening a connection. How long a request waits for one of ours is up to its call."""
MAX_STREAMS = 500
"""The most streams that continue one answer; the SDK reads each of them within the one before."""
ASIDE_S = 5.0
"""The timeout of notifications and of the end of a session, which nobody waits for."""
MAX_ASIDE = 100
_OURS = ("host", "content-length", "connection", "accept-encoding", "user-agent")
_MALFORMED = -32_000
_TOOL_CALL = "tools/call"
_PROBE = "server/discover"
"""A method that servers of earlier revisions do not know, whatever they answer to it."""
_SESSION = "mcp-session-id"
_CONTINUES = "last-event-id"
_EVENT_STREAM = "text/event-stream"
_BROKEN = (ClientError, OSError, TimeoutError, ValueError, HocketError)
"""What sending a request may raise."""

log = structlog.get_logger()
_reporting = Reporting()


class McpTransport(httpx2.AsyncBaseTransport):
    """Sends the SDK's requests to one server."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._component = f"mcp:{service.name}"
        self._aside: set[asyncio.Task[None]] = set()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request and return its answer; answers to a server's own requests are not sent."""
        guard = GUARD.get(None)
        try:
            return await self._handled(request, guard)
        except Exception as error:  # it would end the session for all calls
            if count := _reporting.due(self._component):
                log.exception("mcp_request_failed", server=self._service.name, count=count)
            if guard is not None:
                reason = shown_text(f"{type(error).__name__}: {error}", 300)
                guard.breaks(McpAnswerInvalid(reason=reason, component=self._component))
            if request.method == "GET":
                return _end()
            return _nothing(_message(await request.aread()).get("id"))

    async def _handled(self, request: httpx2.Request, guard: Guard | None) -> httpx2.Response:
        if request.method == "GET":
            if guard is None or _CONTINUES not in request.headers:
                return httpx2.Response(405)  # a separate stream, which belongs to no call
            return await self._continued(request, guard)
        body = await request.aread()
        message = _message(body) if request.method == "POST" else {}
        if request.method == "POST" and "method" not in message:
            return httpx2.Response(202)  # our answer to a question of the server's
        if guard is None or "id" not in message:
            if message.get("method") == "notifications/initialized":
                await self._send_aside(request, body)
            else:
                self._begin_aside(request, body)
            return httpx2.Response(202)
        return await self._asked(request, body, message, guard)

    async def _asked(
        self, request: httpx2.Request, body: bytes, message: dict[str, Any], guard: Guard
    ) -> httpx2.Response:
        """Return the answer to a request of a call, or a substitute that ends the request."""
        number = message["id"]
        try:
            response = await self._sent(request, body, guard)
        except _BROKEN as error:
            guard.breaks(self._unreachable(error))
            return _nothing(number)
        if response is None:
            return _nothing(number)
        guard.received = Received()
        guard.session_status = response.status if _SESSION in request.headers else 0
        if message["method"] == _TOOL_CALL:
            guard.is_answered()
        if guard.is_closed:
            response.close()
            return _nothing(number)
        return await self._read(response, message, guard)

    async def _continued(self, request: httpx2.Request, guard: Guard) -> httpx2.Response:
        """Return the stream that continues an answer. The SDK asks twice more for one that it does not
        get, and for another one if the stream ends before the answer does."""
        guard.received.streams += 1
        if guard.received.streams > MAX_STREAMS:
            limit = f"{MAX_STREAMS} streams"
            guard.breaks(McpAnswerTooLarge(limit=limit, component=self._component))
        if guard.is_closed or guard.broken.done():
            return _end()
        try:
            response = await self._sent(request, b"", guard)
        except _BROKEN:
            return httpx2.Response(503)
        if response is None:
            return _end()
        fault = fault_of(response, self._component)
        if fault is not None and not fault.retryable:
            response.close()
            guard.breaks(fault)
            return _end()
        if response.status != 200 or media_type(response)[0] != _EVENT_STREAM:
            response.close()
            return httpx2.Response(503)
        return self._streamed(response, guard)

    def _streamed(self, response: ClientResponse, guard: Guard) -> httpx2.Response:
        answer = Answer(response, self._service.settings.max_bytes, self._component, guard)
        headers = {"content-type": _EVENT_STREAM}  # always UTF-8, whatever charset it names
        if _SESSION in response.headers:
            headers[_SESSION] = response.headers[_SESSION]
        return httpx2.Response(response.status, headers=headers, stream=EventStream(answer))

    async def _read(
        self, response: ClientResponse, message: dict[str, Any], guard: Guard
    ) -> httpx2.Response:
        number = message["id"]
        fault = fault_of(response, self._component)
        if fault is not None:
            response.close()
            guard.breaks(fault)
            return _nothing(number)
        if _EVENT_STREAM in response.headers.get("content-type", "").lower():
            return self._streamed(response, guard)
        has_failed = response.status >= 500 and message["method"] != _PROBE
        body = await self._body(response, guard, has_failed=has_failed)
        if body is None:
            return _nothing(number)
        headers = {
            name: response.headers[name]
            for name in ("content-type", _SESSION)
            if name in response.headers
        }
        return httpx2.Response(response.status, headers=headers, content=body)

    async def _body(
        self, response: ClientResponse, guard: Guard, *, has_failed: bool
    ) -> bytes | None:
        """Return the body of an answer that is no stream, or None if it breaks the call."""
        answer = Answer(response, self._service.settings.max_bytes, self._component, guard)
        try:
            body = b"".join([chunk async for chunk in answer])
            body, answer.received.parts = await check(body)
        except httpx2.ReadError:
            return None
        except InvalidInput as error:
            if not has_failed and guard.session_status != SESSION_GONE:
                answer.refuse(error)
                return None
            body = b""  # the status says enough
        if has_failed and not is_protocol_error(body):
            guard.breaks(failure_of(response, self._component))
            return None
        return body

    def _unreachable(self, error: BaseException) -> HocketError:
        if isinstance(error, HocketError):
            return error
        reason = reason_of(error)
        return McpUnreachable(reason=reason, component=self._component)

    async def _sent(
        self, request: httpx2.Request, body: bytes, guard: Guard
    ) -> ClientResponse | None:
        """Send a request of a call; return None if the call ends meanwhile."""
        sending = asyncio.ensure_future(self._send(request, body))
        held = guard.holds(sending.cancel)
        try:
            return await sending
        except asyncio.CancelledError:
            if not guard.is_closed:
                raise
            return None
        finally:
            guard.let_go(held)

    async def _send(self, request: httpx2.Request, body: bytes) -> ClientResponse:
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _OURS}
        return await self._service.session.request(
            request.method,
            URL(self._service.settings.url, encoded=True),
            data=body or None,
            headers={**headers, **self._service.headers, "accept-encoding": "identity"},
            allow_redirects=False,
            timeout=ClientTimeout(total=None, sock_connect=CONNECT_S),
        )

    def _begin_aside(self, request: httpx2.Request, body: bytes) -> None:
        if len(self._aside) < MAX_ASIDE:
            task = asyncio.create_task(self._send_aside(request, body))
            self._aside.add(task)
            task.add_done_callback(self._aside.discard)

    async def _send_aside(self, request: httpx2.Request, body: bytes) -> None:
        """Send a request that has no answer."""
        try:
            async with asyncio.timeout(ASIDE_S):
                (await self._send(request, body)).close()
        except _BROKEN:
            return


def _message(body: bytes) -> dict[str, Any]:
    message = from_json(body)
    return message if isinstance(message, dict) else {}


def _nothing(number: Any) -> httpx2.Response:
    """Return an answer that ends a request whose error the call already knows."""
    error = {"code": _MALFORMED, "message": "the call has ended"}
    return httpx2.Response(200, json={"jsonrpc": "2.0", "id": number, "error": error})


def _end() -> httpx2.Response:
    """Return a stream that ends a request whose error the call already knows."""
    event = b"data: " + _nothing(0).content + b"\n\n"
    return httpx2.Response(200, headers={"content-type": _EVENT_STREAM}, content=event)
