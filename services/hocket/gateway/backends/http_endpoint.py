"""The HTTP endpoint of a backend: bounded replies, typed errors.

Non-streamed replies over plain HTTP are read by `http_connections.py`; streams and TLS go through
aiohttp, which costs more.

An upstream error becomes the typed error of its status. A cancelled call closes its connection,
which is how such servers learn that nobody is waiting any more. Redirects are not followed, because
they would send the key elsewhere.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from pydantic_core import from_json

from hocket.gateway.backends.endpoint_errors import REDACTED, EndpointErrors, cut_text
from hocket.gateway.backends.http_connections import ConnectingTimedOut, HttpConnections
from hocket.gateway.backends.http_origin import Origin, is_plain
from hocket.gateway.backends.http_reply import OK, ReplyBroken, ReplyEncoded, ReplyTooLarge
from hocket.gateway.backends.protocol import BackendReplyTooLarge
from hocket.gateway.core.protocols.event_lines import EventLines
from hocket.gateway.core.protocols.json_size import MAX_VALUES, few_values

MAX_REPLY_BYTES = 32 * 1024 * 1024
MAX_EVENT_BYTES = 4 * 1024 * 1024
LINES_AT_ONCE = 512
"""How many lines of one stream are read before other tasks get a turn."""
MIN_SECRET_CHARS = 12
"""The least length of a key that is looked for in answers. Servers that need none get a placeholder
(`none`, `ollama`), which an answer may well contain."""
CONNECT_TIMEOUT_MS = 10_000.0
KEEPALIVE_TIMEOUT_S = 30.0


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
        self.errors = EndpointErrors(component, secret, now_ms)
        """Makes the errors of this endpoint."""
        self._base_url = base_url
        is_long = len(secret) >= MIN_SECRET_CHARS
        self._secret_bytes = secret.encode("utf-8", "replace") if is_long else b""
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
                    raise self.errors.failure(response.status, response.headers, received)
                return Reply(response.headers, received)
        except (TimeoutError, aiohttp.ClientError, OSError, ReplyBroken) as error:
            raise self.errors.unanswered(error, timeout_ms) from error
        except ValueError as error:
            raise self.errors.unsendable(error) from error

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
                    raise self.errors.failure(response.status, response.headers, received)
                reading = True
                yield response
        except (TimeoutError, aiohttp.ClientError, OSError, ReplyBroken) as error:
            raise self.errors.unanswered(error, timeout_ms) from error
        except ValueError as error:
            if reading:
                raise
            raise self.errors.unsendable(error) from error

    def object_of(self, content: bytes) -> dict[str, Any]:
        """Return a reply's JSON object, or raise BackendReplyMalformed (if it has too many values,
        BackendReplyTooLarge).

        If it contains the backend's key, the key is removed before the caller sees it.
        """
        if self._secret_bytes and self._secret_bytes in content:
            content = content.replace(self._secret_bytes, REDACTED.encode())
        size = len(content)
        if not few_values(content):
            raise self.errors.too_large(f"it has more than {MAX_VALUES} values", size)
        try:
            value = from_json(content, allow_inf_nan=False)
        except ValueError as error:
            reason = f"not JSON: {cut_text(content)}"
            raise self.errors.malformed(reason, read_bytes=size) from error
        if not isinstance(value, dict):
            reason = f"not a JSON object: {cut_text(content)}"
            raise self.errors.malformed(reason, read_bytes=size)
        return value

    async def events(
        self, response: aiohttp.ClientResponse, at_done: Callable[[], None] | None = None
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield the JSON objects of a stream of server-sent events, until `[DONE]`, at which `at_done`
        is called, or the end."""
        if (encoding := _encoding(response)) is not None:
            response.close()
            raise self.errors.malformed(
                f"it is encoded as {encoding[:40]}, which was not asked for"
            )
        split = EventLines()
        size = 0
        async for received in response.content.iter_any():
            size += len(received)
            lines = split.add(received)
            if size > MAX_REPLY_BYTES or split.left_bytes > MAX_EVENT_BYTES:
                response.close()
                limit = MAX_REPLY_BYTES if size > MAX_REPLY_BYTES else MAX_EVENT_BYTES
                raise self.errors.too_large(
                    f"its stream, or one event of it, has more than {limit} bytes"
                )
            for number, line in enumerate(lines, 1):
                if number % LINES_AT_ONCE == 0:
                    await asyncio.sleep(0)
                data = line[5:].strip() if line.startswith(b"data:") else b""
                if not data:
                    continue  # an empty line, a comment, a sign of life, or a field not used here
                if data == b"[DONE]":
                    if at_done is not None:
                        at_done()
                    return
                yield self.object_of(data)

    async def bounded(self, response: aiohttp.ClientResponse) -> bytes:
        """Read a whole reply of at most MAX_REPLY_BYTES; of a failure, as much as can be read."""
        failed = response.status != OK
        if (encoding := _encoding(response)) is not None:
            response.close()
            if failed:
                return b""
            raise self.errors.malformed(
                f"it is encoded as {encoding[:40]}, which was not asked for"
            )
        content = bytearray()
        try:
            async for chunk in response.content.iter_any():
                content += chunk
                if len(content) > MAX_REPLY_BYTES:
                    response.close()
                    break
        except TimeoutError:
            raise
        except (aiohttp.ClientError, OSError) as error:
            raise ReplyBroken(str(error), None if failed else len(content)) from error
        if len(content) > MAX_REPLY_BYTES and not failed:
            raise self._too_large()
        return bytes(content)

    def _too_large(self) -> BackendReplyTooLarge:
        return self.errors.too_large(f"it has more than {MAX_REPLY_BYTES} bytes", MAX_REPLY_BYTES)

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
        except ReplyTooLarge as error:
            if error.status != OK:
                raise self.errors.failure(error.status, error.headers, b"") from None
            raise self._too_large() from None
        except ReplyEncoded as error:
            raise self.errors.malformed(str(error)) from None
        except (TimeoutError, ConnectingTimedOut, OSError, ReplyBroken) as error:
            raise self.errors.unanswered(error, timeout_ms) from error
        except ValueError as error:
            raise self.errors.unsendable(error) from error
        if response.status != OK:
            raise self.errors.failure(response.status, response.headers, response.content)
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


def _encoding(response: aiohttp.ClientResponse) -> str | None:
    """Return the unrequested content encoding of a reply; None if it is plain."""
    encoding = response.headers.get("Content-Encoding", "identity")
    return None if encoding.lower() == "identity" else encoding
