"""The HTTP endpoint of a backend: bounded replies, typed errors.

Non-streamed replies over plain HTTP are read by `http_connections.py`; streams and TLS go through
aiohttp, which costs more.

An upstream error becomes the typed error of its status. A cancelled call closes its connection,
which is how such servers learn that nobody is waiting any more. Redirects are not followed, because
they would send the key elsewhere.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp
from pydantic_core import from_json

from hocket.gateway.backends.http_connections import (
    ConnectingFailed,
    ConnectingTimedOut,
    HttpConnections,
)
from hocket.gateway.backends.http_origin import Origin, is_plain
from hocket.gateway.backends.http_reply import ReplyBroken, ReplyTooLarge
from hocket.gateway.backends.protocol import (
    BackendBroken,
    BackendDenied,
    BackendError,
    BackendMisconfigured,
    BackendRateLimited,
    BackendRefused,
    BackendReplyMalformed,
    BackendTimedOut,
    BackendUnreachable,
)
from hocket.gateway.core.protocols.event_lines import EventLines
from hocket.gateway.core.protocols.json_size import MAX_VALUES, SMALL_BYTES, few_values
from hocket.gateway.core.protocols.openai_api import BYTES_PER_TOKEN
from hocket.schemas.messages import Completion

MAX_REPLY_BYTES = 32 * 1024 * 1024
MAX_EVENT_BYTES = 4 * 1024 * 1024
MAX_REASON_CHARS = 500
LINES_AT_ONCE = 512
"""How many lines of one stream are read before other tasks get a turn."""
REDACTED = "[redacted]"
CONNECT_TIMEOUT_MS = 10_000.0
KEEPALIVE_TIMEOUT_S = 30.0
REST_MS = 1_000.0
"""How long a backend rests after a 429 without Retry-After."""
MAX_REST_MS = 300_000.0
_STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
}
"""The statuses of errors that a reply with status 200 reports, by their `type`, if they give none."""


_WHOLE = Completion(output_tokens=MAX_REPLY_BYTES // BYTES_PER_TOKEN, estimated=True)
"""The assumed usage of a reply that is too large."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole reply with status 200."""

    headers: Mapping[str, str]
    """aiohttp's are case-insensitive, all others lower case; look names up in lower case."""
    content: bytes


class HttpEndpoint:
    """Requests below `base_url`; must be built inside a running event loop."""

    def __init__(
        self,
        component: str,
        base_url: str,
        *,
        headers: Mapping[str, str],
        limit: int,
        now_ms: Callable[[], float],
        secret: str = "",
    ) -> None:
        self._component = component
        self._base_url = base_url
        self._now_ms = now_ms
        self._secret = secret
        self._secret_bytes = secret.encode("utf-8", "replace")
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=limit, keepalive_timeout=KEEPALIVE_TIMEOUT_S),
            headers={"Accept-Encoding": "identity", **headers},
            auto_decompress=False,  # encoded replies were not asked for, and are refused
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        origin = Origin.of(base_url)
        self._plain = (
            None
            if origin is None
            else HttpConnections(origin, headers=headers, max_bytes=MAX_REPLY_BYTES)
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()
        if self._plain is not None:
            await self._plain.close()

    async def send(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_ms: float,
    ) -> Reply:
        """Make a request and return its reply, or raise a BackendError within `timeout_ms`."""
        if self._plain is not None and is_plain(path):
            return await self._sent(self._plain, method, path, content, headers or {}, timeout_ms)
        try:
            async with self._asked(method, path, content, headers, timeout_ms) as response:
                received = await self.bounded(response)
                if response.status != 200:
                    raise self._failure(response.status, response.headers, received)
                return Reply(response.headers, received)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise self._unanswered(error, timeout_ms) from error
        except ValueError as error:
            raise self._unsendable(error) from error

    @asynccontextmanager
    async def opened(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_ms: float,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Make a request, and yield its response to be read inside the block;
        failures there become BackendErrors too."""
        reading = False
        try:
            async with self._asked(method, path, content, headers, timeout_ms) as response:
                if response.status != 200:
                    received = await self.bounded(response)
                    raise self._failure(response.status, response.headers, received)
                reading = True
                yield response
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise self._unanswered(error, timeout_ms) from error
        except ValueError as error:
            if reading:
                raise
            raise self._unsendable(error) from error

    def malformed(self, reason: str, **fields: Any) -> BackendReplyMalformed:
        """Return the error for a malformed reply."""
        told = self.redacted(reason)
        return BackendReplyMalformed(component=self._component, reason=told, **fields)

    def reported(self, said: Any, status: int | str) -> BackendError:
        """Return the error that a reply with status 200, or an event of a stream, reports.

        Routers do so if a provider fails once they have answered; its own status is the `code`.
        """
        fields = said if isinstance(said, dict) else {}
        reason = self._told(str(fields.get("message") or said))
        code = _status_of(fields)
        if code is None:
            return BackendBroken(component=self._component, status=status, reason=reason)
        return self._error_of(code, reason, {})

    def redacted(self, text: str) -> str:
        """Return a text of the server with the key removed."""
        return text.replace(self._secret, REDACTED) if self._secret else text

    def object_of(self, content: bytes) -> dict[str, Any]:
        """Return a reply's JSON object, or raise BackendReplyMalformed.

        If it contains the backend's key, the key is removed before the caller sees it.
        """
        if self._secret_bytes and self._secret_bytes in content:
            content = content.replace(self._secret_bytes, REDACTED.encode())
        written = Completion(output_tokens=len(content) // BYTES_PER_TOKEN, estimated=True)
        if not few_values(content):
            raise self.malformed(f"it has more than {MAX_VALUES} values", spent=written)
        try:
            value = from_json(content, allow_inf_nan=False)
        except ValueError as error:
            raise self.malformed(f"not JSON: {_cut(content)}", spent=written) from error
        if not isinstance(value, dict):
            raise self.malformed(f"not a JSON object: {_cut(content)}", spent=written)
        return value

    async def events(self, response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
        """Yield the JSON objects of a stream of server-sent events, until `[DONE]` or the end."""
        if (encoding := _encoding(response)) is not None:
            response.close()
            raise self.malformed(f"it is encoded as {encoding[:40]}, which was not asked for")
        split = EventLines()
        size = 0
        async for received in response.content.iter_any():
            size += len(received)
            lines = split.add(received)
            if size > MAX_REPLY_BYTES or split.left_bytes > MAX_EVENT_BYTES:
                response.close()
                limit = MAX_REPLY_BYTES if size > MAX_REPLY_BYTES else MAX_EVENT_BYTES
                raise self.malformed(f"its stream, or one event of it, has more than {limit} bytes")
            for number, line in enumerate(lines, 1):
                if number % LINES_AT_ONCE == 0:
                    await asyncio.sleep(0)
                data = line[5:].strip() if line.startswith(b"data:") else b""
                if not data:
                    continue  # an empty line, a comment, a sign of life, or a field not used here
                if data == b"[DONE]":
                    return
                yield self.object_of(data)

    async def bounded(self, response: aiohttp.ClientResponse) -> bytes:
        """Read a whole reply of at most MAX_REPLY_BYTES."""
        if (encoding := _encoding(response)) is not None:
            response.close()
            raise self.malformed(f"it is encoded as {encoding[:40]}, which was not asked for")
        content = bytearray()
        async for chunk in response.content.iter_any():
            content += chunk
            if len(content) > MAX_REPLY_BYTES:
                response.close()
                raise self.malformed(f"it has more than {MAX_REPLY_BYTES} bytes", spent=_WHOLE)
        return bytes(content)

    async def _sent(
        self,
        connections: HttpConnections,
        method: str,
        path: str,
        content: bytes | None,
        headers: Mapping[str, str],
        timeout_ms: float,
    ) -> Reply:
        try:
            response = await connections.ask(
                method,
                path,
                content,
                headers,
                timeout_ms=timeout_ms,
                connect_ms=min(timeout_ms, CONNECT_TIMEOUT_MS),
            )
        except ReplyTooLarge:
            raise self.malformed(
                f"it has more than {MAX_REPLY_BYTES} bytes", spent=_WHOLE
            ) from None
        except (TimeoutError, ConnectingTimedOut, OSError, ReplyBroken) as error:
            raise self._unanswered(error, timeout_ms) from error
        except ValueError as error:
            raise self._unsendable(error) from error
        if response.status != 200:
            raise self._failure(response.status, response.headers, response.content)
        return Reply(response.headers, response.content)

    def _asked(
        self,
        method: str,
        path: str,
        content: bytes | None,
        headers: Mapping[str, str] | None,
        timeout_ms: float,
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        return self._session.request(
            method,
            f"{self._base_url}/{path}",
            data=content,
            headers=headers,
            timeout=aiohttp.ClientTimeout(
                total=timeout_ms / 1000,
                sock_connect=min(timeout_ms, CONNECT_TIMEOUT_MS) / 1000,
            ),
            allow_redirects=False,
        )

    def _unanswered(self, error: Exception, timeout_ms: float) -> BackendError:
        if isinstance(error, aiohttp.ConnectionTimeoutError | ConnectingTimedOut):
            return BackendUnreachable(
                component=self._component, reason="the connection timed out", unconnected=True
            )
        if isinstance(error, TimeoutError):
            return BackendTimedOut(component=self._component, timeout_ms=round(timeout_ms))
        reason = self.redacted(str(error) or type(error).__name__)[:MAX_REASON_CHARS]
        unconnected = isinstance(error, aiohttp.ClientConnectorError | ConnectingFailed)
        return BackendUnreachable(component=self._component, reason=reason, unconnected=unconnected)

    def _unsendable(self, error: ValueError) -> BackendRefused:
        """Return the error for a request that cannot be sent because a header or the URL is invalid."""
        reason = self.redacted(str(error))[:MAX_REASON_CHARS]
        return BackendRefused(component=self._component, status="request", reason=reason)

    def _told(self, reason: str) -> str:
        """Return a reason with the key removed, even if it is cut off within the key."""
        return self.redacted(reason)[:MAX_REASON_CHARS]

    def _failure(self, status: int, headers: Mapping[str, str], content: bytes) -> BackendError:
        reason = self._told(_reason(content, MAX_REASON_CHARS + len(self._secret)))
        return self._error_of(status, reason, headers)

    def _error_of(self, status: int, reason: str, headers: Mapping[str, str]) -> BackendError:
        fields: dict[str, Any] = {"component": self._component, "status": status, "reason": reason}
        if status == 429:
            now_ms = self._now_ms()
            rest_ms = _rest_ms(headers.get("retry-after"), now_ms)
            return BackendRateLimited(**fields, retry_at_ms=now_ms + rest_ms)
        if status in (401, 402, 403):
            return BackendDenied(**fields)
        if status >= 500 or status == 408:
            return BackendBroken(**fields)
        if status < 400 or status in (404, 405):
            return BackendMisconfigured(**fields)
        return BackendRefused(**fields)


def _status_of(error: Mapping[str, Any]) -> int | None:
    """Return the status that a reported error stands for: its `code`, as a number or (of a LiteLLM
    proxy) as text, or that of its `type`; None if neither tells."""
    code = error.get("code")
    if isinstance(code, str) and len(code) == 3 and code.isascii() and code.isdigit():
        code = int(code)
    if type(code) is int and 400 <= code <= 599:
        return code
    return _STATUSES.get(str(error.get("type")))


def _encoding(response: aiohttp.ClientResponse) -> str | None:
    """Return the unrequested content encoding of a reply; None if it is plain."""
    encoding = response.headers.get("Content-Encoding", "identity")
    return None if encoding.lower() == "identity" else encoding


def _reason(content: bytes, most_chars: int) -> str:
    try:
        error = json.loads(content if len(content) <= SMALL_BYTES else b"")["error"]
        message = error["message"] if isinstance(error, dict) else error
        if isinstance(message, str) and message:
            return message[:most_chars]
    except (ValueError, KeyError, TypeError, RecursionError):
        pass  # not in OpenAI's error format: use the text
    return _cut(content, most_chars) or "no reason given"


def _cut(content: bytes, most_chars: int = MAX_REASON_CHARS) -> str:
    return content[:most_chars].decode("utf-8", "replace")


def _rest_ms(retry_after: str | None, now_ms: float) -> float:
    """Return how long to rest according to a Retry-After header:
    seconds or a date (RFC 9110, 10.2.3)."""
    if retry_after is None:
        return REST_MS
    try:
        rest_ms = float(retry_after) * 1000
    except ValueError:
        try:
            until = parsedate_to_datetime(retry_after)
        except (ValueError, OverflowError):
            return REST_MS
        if until.tzinfo is None:
            until = until.replace(tzinfo=UTC)
        rest_ms = (until - datetime.fromtimestamp(now_ms / 1000, UTC)).total_seconds() * 1000
    return min(max(rest_ms, 0.0), MAX_REST_MS) if rest_ms == rest_ms else REST_MS
