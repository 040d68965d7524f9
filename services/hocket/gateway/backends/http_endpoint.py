"""The HTTP endpoint of a backend: bounded replies, typed errors.

Non-streamed replies over plain HTTP are read by `http_connections.py`; streams and TLS go through
aiohttp, which costs more.

An upstream error becomes the typed error of its status. A cancelled call closes its connection,
which is how such servers learn that nobody is waiting any more. Redirects are not followed, because
they would send the key elsewhere.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import aiohttp

from hocket.gateway.backends.endpoint_errors import REDACTED, EndpointErrors, cut_text
from hocket.gateway.backends.http_connections import ConnectingTimedOut, HttpConnections
from hocket.gateway.backends.http_origin import Origin, is_plain
from hocket.gateway.backends.http_reply import (
    OK,
    ReplyBroken,
    ReplyEncoded,
    ReplyTooLarge,
    encoding_of,
)
from hocket.gateway.backends.protocol import LargeEvent
from hocket.gateway.backends.reply_room import ROOM, HeldReply, ReplyRoom
from hocket.gateway.core.protocols.event_lines import DONE, EventData, EventLines
from hocket.gateway.core.protocols.json_size import (
    MAX_VALUES,
    QUICK_BYTES,
    few_values,
    marks,
    read_bytes,
    takes_long,
)
from hocket.gateway.core.protocols.openai_api import Assembly
from hocket.gateway.core.protocols.reply_json import may_be_cut, reply_value
from hocket.schemas.errors import HocketError

T = TypeVar("T")

MAX_REPLY_BYTES = 32 * 1024 * 1024
TOO_LARGE = f"it has more than {MAX_REPLY_BYTES} bytes"
MAX_EVENT_BYTES = 4 * 1024 * 1024
MAX_EVENT_VALUES = 400_000
"""The most values in one event of a stream."""
MANY_VALUES = 50_000
"""A reply of more than QUICK_BYTES, or an event of a stream, with at least so many values is read in a
thread, like one of more than LARGE_BYTES or one with half a character."""
LINES_AT_ONCE = 512
"""How many lines of one stream are read before other tasks get a turn."""
MIN_SECRET_CHARS = 12
"""The least length of a key that is looked for in answers. Servers that need none get a placeholder
(`none`, `ollama`), which an answer may well contain."""
CONNECT_TIMEOUT_MS = 10_000.0
KEEPALIVE_TIMEOUT_S = 30.0
END_WAIT_S = 1.0
"""How long the end of a stream is waited for once its answer is whole and metered."""


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
        room: ReplyRoom = ROOM,
    ) -> None:
        self.errors = EndpointErrors(component, secret, now_ms)
        """Makes the errors of this endpoint."""
        self._base_url = base_url
        self._room = room
        self._held: dict[aiohttp.ClientResponse, HeldReply] = {}
        """The room of each reply that is being read with aiohttp."""
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
        """Make a request and return its reply, or raise a BackendError within `timeout_ms`, or
        RepliesFull."""
        with self._room.reply(timeout_ms) as held:
            return await self._replied(method, path, content, headers or {}, timeout_ms, held)

    async def ask(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_ms: float,
        read: Callable[[Reply], T],
    ) -> T:
        """Make a request and return what a function makes of its reply, in a thread if that takes long.
        Raises what `send` and the function raise."""
        with self._room.reply(timeout_ms) as held:
            reply = await self._replied(method, path, content, headers or {}, timeout_ms, held)
            return await _made(held, reply.content, partial(read, reply))

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
        with self._room.reply(timeout_ms) as held:
            try:
                async with self._asked(
                    method, path, content, headers, timeout_ms, held
                ) as response:
                    if response.status != 200:
                        received = await self.bounded(response)
                        raise self.errors.failure(response.status, response.headers, received)
                    reading = True
                    yield response
            except (TimeoutError, aiohttp.ClientError, OSError, ReplyBroken) as error:
                raise self._unanswered(error, timeout_ms, held) from error
            except ValueError as error:
                if reading:
                    raise
                raise self.errors.unsendable(error) from error

    async def read(
        self, response: aiohttp.ClientResponse, content: bytes, read: Callable[[bytes], T]
    ) -> T:
        """Return what a function makes of a whole reply that came where a stream was asked for, in a
        thread if that takes long."""
        return await _made(self._held[response], content, partial(read, content))

    def is_long(self, response: aiohttp.ClientResponse) -> bool:
        """Return whether a reply that was read took long, as it will to be written again."""
        return self._held[response].is_long

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
            value = reply_value(content)
        except ValueError as error:
            reason = f"not JSON: {cut_text(content)}"
            raise self.errors.malformed(reason, read_bytes=size) from error
        if not isinstance(value, dict):
            reason = f"not a JSON object: {cut_text(content)}"
            raise self.errors.malformed(reason, read_bytes=size)
        return value

    async def events(
        self, response: aiohttp.ClientResponse, answer: Assembly
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield the JSON objects of a stream of server-sent events, until `[DONE]`, at which `answer`
        is closed, or the end."""
        if (encoding := encoding_of(response.headers)) is not None:
            response.close()
            raise self.errors.malformed(
                f"it is encoded as {encoding[:40]}, which was not asked for"
            )
        split, data = EventLines(), EventData()
        size = 0
        async for received in _received(response, answer):
            size += len(received)
            lines = split.add(received)
            if size > MAX_REPLY_BYTES or split.left_bytes + data.held_bytes > MAX_EVENT_BYTES:
                response.close()
                limit = MAX_REPLY_BYTES if size > MAX_REPLY_BYTES else MAX_EVENT_BYTES
                raise self.errors.too_large(
                    f"its stream, or one event of it, has more than {limit} bytes"
                )
            for number, line in enumerate(lines, 1):
                if number % LINES_AT_ONCE == 0:
                    await asyncio.sleep(0)
                event = data.add(line)
                if event == DONE:
                    answer.close()
                    return
                if event and _takes_long(event):
                    yield await self._large_event(response, event)
                    self._held[response].release()
                elif event:
                    yield self.object_of(event)
            lines, line, event = (
                [],
                b"",
                b"",
            )  # what is not counted must not wait for the next piece

    async def bounded(self, response: aiohttp.ClientResponse) -> bytes:
        """Read a whole reply of at most MAX_REPLY_BYTES; of a failure, as much as can be read."""
        failed = response.status != OK
        if (encoding := encoding_of(response.headers)) is not None:
            response.close()
            if failed:
                return b""
            raise self.errors.malformed(
                f"it is encoded as {encoding[:40]}, which was not asked for"
            )
        content, held = bytearray(), self._held[response]
        expected = min(response.content_length or 0, MAX_REPLY_BYTES)
        try:
            async for chunk in response.content.iter_any():
                content += chunk
                if len(content) > MAX_REPLY_BYTES:
                    response.close()
                    break
                await held.wait_for(max(len(content), expected))
        except TimeoutError:
            raise
        except (aiohttp.ClientError, OSError) as error:
            raise ReplyBroken(str(error), None if failed else len(content)) from error
        if len(content) > MAX_REPLY_BYTES and not failed:
            raise self.errors.too_large(TOO_LARGE, MAX_REPLY_BYTES)
        return bytes(content)

    def _unanswered(self, error: Exception, timeout_ms: float, held: HeldReply) -> HocketError:
        if isinstance(error, TimeoutError) and held.lacked_room:
            return self._room.full()  # the time was not the server's
        return self.errors.unanswered(error, timeout_ms)

    async def _large_event(
        self, response: aiohttp.ClientResponse, content: bytes
    ) -> dict[str, Any]:
        """Return the object of an event of a stream, read in a thread."""
        if marks(content) > MAX_EVENT_VALUES:
            response.close()
            raise self.errors.too_large(
                f"one event of its stream has more than {MAX_EVENT_VALUES} values"
            )
        return LargeEvent(
            await _made_beside(self._held[response], content, partial(self.object_of, content))
        )

    async def _replied(
        self,
        method: str,
        path: str,
        content: bytes | None,
        headers: Mapping[str, str],
        timeout_ms: float,
        held: HeldReply,
    ) -> Reply:
        if self._plain is not None and is_plain(path):
            return await self._sent(self._plain, method, path, content, headers, timeout_ms, held)
        try:
            async with self._asked(method, path, content, headers, timeout_ms, held) as response:
                received = await self.bounded(response)
                if response.status != 200:
                    raise self.errors.failure(response.status, response.headers, received)
                return Reply(response.headers, received)
        except (TimeoutError, aiohttp.ClientError, OSError, ReplyBroken) as error:
            raise self._unanswered(error, timeout_ms, held) from error
        except ValueError as error:
            raise self.errors.unsendable(error) from error

    async def _sent(
        self,
        connections: HttpConnections,
        method: str,
        path: str,
        content: bytes | None,
        headers: Mapping[str, str],
        timeout_ms: float,
        held: HeldReply,
    ) -> Reply:
        try:
            response = await connections.ask(
                method,
                path,
                content,
                headers,
                timeout_ms=timeout_ms,
                connect_ms=min(timeout_ms, CONNECT_TIMEOUT_MS),
                held=held,
            )
        except ReplyTooLarge as error:
            if error.status != OK:
                raise self.errors.failure(error.status, error.headers, b"") from None
            raise self.errors.too_large(TOO_LARGE, MAX_REPLY_BYTES) from None
        except ReplyEncoded as error:
            raise self.errors.malformed(str(error)) from None
        except (TimeoutError, ConnectingTimedOut, OSError, ReplyBroken) as error:
            raise self._unanswered(error, timeout_ms, held) from error
        except ValueError as error:
            raise self.errors.unsendable(error) from error
        if response.status != OK:
            raise self.errors.failure(response.status, response.headers, response.content)
        return Reply(response.headers, response.content)

    @asynccontextmanager
    async def _asked(
        self,
        method: str,
        path: str,
        content: bytes | None,
        headers: Mapping[str, str] | None,
        timeout_ms: float,
        held: HeldReply,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        async with self._session.request(
            method,
            f"{self._base_url}/{path}",
            data=content,
            headers=headers,
            timeout=aiohttp.ClientTimeout(
                total=timeout_ms / 1000,
                sock_connect=min(timeout_ms, CONNECT_TIMEOUT_MS) / 1000,
            ),
            allow_redirects=False,
        ) as response:
            self._held[response] = held
            try:
                yield response
            finally:
                del self._held[response]


async def _made(held: HeldReply, content: bytes, make: Callable[[], T]) -> T:
    """Return what a function makes of a reply or a part of one, in a thread if that takes long, and once
    there is room for its values."""
    if not _takes_long(content):
        return make()
    return await _made_beside(held, content, make)


async def _made_beside(held: HeldReply, content: bytes, make: Callable[[], T]) -> T:
    held.is_long = True
    weight = await held.read_beside(partial(read_bytes, content))
    await held.wait_for(max(weight, len(content)))
    return await held.read_beside(make)


def _takes_long(content: bytes) -> bool:
    if takes_long(content, MANY_VALUES):
        return True
    return len(content) > QUICK_BYTES and may_be_cut(content)


async def _received(response: aiohttp.ClientResponse, answer: Assembly) -> AsyncIterator[bytes]:
    """Yield the pieces of a stream.

    Once its answer is whole, a connection that fails is the end; once that is metered as well, what
    may follow is waited for only a moment, because some servers leave the connection open.
    """
    loop = asyncio.get_running_loop()
    until_s: float | None = None
    while True:
        if not answer.settled:
            until_s = None
        elif until_s is None:
            until_s = loop.time() + END_WAIT_S
        try:
            async with asyncio.timeout_at(until_s):
                received = await response.content.readany()
        except (TimeoutError, aiohttp.ClientError, OSError):
            if not answer.ended:
                raise
            return
        if not received:
            return
        yield received
