"""HTTP transport for the SDK's client over the connections of a configured service: addresses are
checked, redirects are not followed, and answers are bounded while they arrive.

Nothing here raises into the session that all calls share: errors are reported to the guard of their
call, and the SDK gets an answer that ends the request.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2
from aiohttp import ClientError, ClientResponse, ClientTimeout
from pydantic_core import from_json
from yarl import URL

from hocket.schemas.checks.plain_json import parse_json
from hocket.schemas.errors import HocketError, InvalidInput
from hocket.workers.http.remote_errors import reason_of
from hocket.workers.http.services import Service
from hocket.workers.mcp.errors import (
    McpAnswerInvalid,
    McpAnswerTooLarge,
    McpFailed,
    McpNotAuthorized,
    McpRateLimited,
    McpRefused,
    McpUnreachable,
)
from hocket.workers.mcp.events import Event, Events
from hocket.workers.mcp.guard import GUARD, Guard

MAX_EVENTS = 2_000
"""The most events in one answer that is an event stream."""
MAX_ANSWER_VALUES = 200_000
"""The most JSON values in an answer."""
READ_IN_THREAD_BYTES = 100_000
CONNECT_S = 10.0
ASIDE_S = 5.0
"""The timeout of notifications and of the end of a session, which nobody waits for."""
MAX_ASIDE = 100
_OURS = ("host", "content-length", "connection", "accept-encoding", "user-agent")
_MALFORMED = -32_000
_TOOL_CALL = "tools/call"


class McpTransport(httpx2.AsyncBaseTransport):
    """Sends the SDK's requests to one server."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._component = f"mcp:{service.name}"
        self._aside: set[asyncio.Task[None]] = set()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request and return its answer; answers to a server's own requests are not sent."""
        if request.method == "GET":  # a separate stream, which belongs to no call
            return httpx2.Response(405)
        body = await request.aread()
        message = _message(body) if request.method == "POST" else {}
        if request.method == "POST" and "method" not in message:
            return httpx2.Response(202)  # our answer to a question of the server's
        guard = GUARD.get(None)
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
        sending = asyncio.ensure_future(self._send(request, body))
        held = guard.holds(sending.cancel)
        try:
            response = await sending
        except asyncio.CancelledError:
            if not guard.is_closed:
                raise
            return _nothing(number)
        except (ClientError, OSError, TimeoutError, ValueError, HocketError) as error:
            guard.breaks(self._unreachable(error))
            return _nothing(number)
        finally:
            guard.let_go(held)
        if message["method"] == _TOOL_CALL:
            guard.is_answered()
        if guard.is_closed:
            response.close()
            return _nothing(number)
        return await self._read(response, number, guard)

    async def _read(self, response: ClientResponse, number: Any, guard: Guard) -> httpx2.Response:
        fault = self._fault(response)
        if fault is not None:
            response.close()
            guard.breaks(fault)
            return _nothing(number)
        headers = {
            name: response.headers[name]
            for name in ("content-type", "mcp-session-id")
            if name in response.headers
        }
        stream = _Answer(response, self._service.settings.max_bytes, self._component, guard)
        if "text/event-stream" in headers.get("content-type", "").lower():
            headers["content-type"] = "text/event-stream"  # always UTF-8, whatever charset it names
            events = _EventStream(stream)
            return httpx2.Response(response.status, headers=headers, stream=events)
        try:
            body = b"".join([chunk async for chunk in stream])
            await _check(body)
        except httpx2.ReadError:
            return _nothing(number)
        except InvalidInput as error:
            stream.refuse(error)
            return _nothing(number)
        return httpx2.Response(response.status, headers=headers, content=body)

    def _fault(self, response: ClientResponse) -> HocketError | None:
        """Return the error for a status that is not an answer; JSON-RPC answers may have any status."""
        status = response.status
        fields: dict[str, Any] = {"status": status, "component": self._component}
        if status == 429:
            return McpRateLimited(**fields)
        if status in (401, 403, 407):
            return McpNotAuthorized(**fields)
        if 300 <= status < 400:
            reason = "it answered with a redirect, which is not followed. Configure the final URL."
            return McpRefused(reason=reason, component=self._component)
        is_json = response.content_type.lower() == "application/json"
        if status >= 500 and not is_json:
            return McpFailed(**fields)
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            reason = "it is compressed, which was not asked for"
            return McpAnswerInvalid(reason=reason, component=self._component)
        return None

    def _unreachable(self, error: BaseException) -> HocketError:
        if isinstance(error, HocketError):
            return error
        reason = reason_of(error)
        return McpUnreachable(reason=reason, component=self._component)

    async def _send(self, request: httpx2.Request, body: bytes) -> ClientResponse:
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _OURS}
        return await self._service.session.request(
            request.method,
            URL(self._service.settings.url, encoded=True),
            data=body or None,
            headers={**headers, **self._service.headers, "accept-encoding": "identity"},
            allow_redirects=False,
            timeout=ClientTimeout(total=None, connect=CONNECT_S),
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
        except (ClientError, OSError, TimeoutError, ValueError, HocketError):
            return


class _Answer(httpx2.AsyncByteStream):
    """The bytes of an answer, up to a limit; they end with their call."""

    def __init__(self, response: ClientResponse, limit: int, component: str, guard: Guard) -> None:
        self._response = response
        self._limit = limit
        self._component = component
        self._guard = guard
        self._held = guard.holds(response.close)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size_bytes = events = 0
        try:
            async for chunk in self._response.content.iter_any():
                size_bytes += len(chunk)
                events += chunk.count(b"data:")
                if size_bytes > self._limit:
                    raise self._broken(f"{self._limit} bytes")
                if events > MAX_EVENTS:
                    raise self._broken(f"{MAX_EVENTS} events")
                yield chunk
        except (ClientError, OSError) as error:
            reason = reason_of(error)
            self._guard.breaks(McpUnreachable(reason=reason, component=self._component))
            raise httpx2.ReadError(reason) from error
        finally:
            await self.aclose()

    def _broken(self, limit: str) -> httpx2.ReadError:
        self._guard.breaks(McpAnswerTooLarge(limit=limit, component=self._component))
        return httpx2.ReadError("it is too large")

    def refuse(self, error: InvalidInput) -> None:
        """Break the call because of what the answer holds."""
        self._guard.breaks(McpAnswerInvalid(reason=str(error), component=self._component))

    async def aclose(self) -> None:
        """Close the connection, unless the answer was read to its end."""
        self._guard.let_go(self._held)
        self._response.close()


class _EventStream(httpx2.AsyncByteStream):
    """An answer that is a stream of events, each of which is checked before it is passed on."""

    def __init__(self, answer: _Answer) -> None:
        self._answer = answer
        self._events = Events()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._answer:
            for event in self._events.completed(chunk):
                yield await self._checked(event)
        for event in self._events.at_end():
            yield await self._checked(event)

    async def _checked(self, event: Event) -> bytes:
        try:
            await _check(event.message)
        except InvalidInput as error:
            self._answer.refuse(error)
            raise httpx2.ReadError("it cannot be read") from error
        return event.whole

    async def aclose(self) -> None:
        """Close the connection, unless the answer was read to its end."""
        await self._answer.aclose()


async def _check(body: bytes) -> None:
    """Raise InvalidInput if the JSON nests too deep or has too many values."""
    if not body:
        return
    if len(body) <= READ_IN_THREAD_BYTES:
        parse_json(body, "answer", max_values=MAX_ANSWER_VALUES)
    else:
        await asyncio.to_thread(parse_json, body, "answer", max_values=MAX_ANSWER_VALUES)


def _message(body: bytes) -> dict[str, Any]:
    message = from_json(body)
    return message if isinstance(message, dict) else {}


def _nothing(number: Any) -> httpx2.Response:
    """Return an answer that ends a request whose error the call already knows."""
    error = {"code": _MALFORMED, "message": "the call has ended"}
    return httpx2.Response(200, json={"jsonrpc": "2.0", "id": number, "error": error})
