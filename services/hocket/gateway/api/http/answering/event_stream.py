"""An answer that is streamed as it is produced."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import structlog
from aiohttp import web

from hocket.gateway.api.http import identity
from hocket.gateway.api.http.answers import Answers, takes_long
from hocket.gateway.backends.large_work import beside
from hocket.gateway.backends.protocol import Chunk, LargeEvent
from hocket.gateway.core.protocols.json_size import LARGE_BYTES
from hocket.gateway.core.protocols.single_chunk import says_more
from hocket.schemas.messages import CallReply

log = structlog.get_logger()


class EventStream:
    """Sends the events of a stream to a caller; a disconnected caller is not an error here."""

    def __init__(self, request: web.BaseRequest, answers: Answers, call_id: str) -> None:
        self._request = request
        self._answers = answers
        self._closed = False
        self.told_more = asyncio.Event()
        """Set once the answer has more than the text and the tool calls that its reply will have."""
        self._writing: asyncio.Future[bytes] | None = None
        """Events that are being written in a thread."""
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
        """Whether the caller has received anything."""
        return self._response.prepared

    async def chunk(self, chunk: Chunk) -> None:
        """Send a piece of the answer, unless it is closed."""
        if not self.told_more.is_set() and says_more(chunk.openai or {}):
            self.told_more.set()
        if self._closed:
            return
        is_long = isinstance(chunk.openai, LargeEvent) or len(chunk.text) > LARGE_BYTES
        if is_long or self._writing is not None:
            events = await self._written(partial(self._answers.chunk, chunk), is_long=is_long)
        else:
            events = self._answers.chunk(chunk)
        if not self._closed:
            await self._send(events)

    def close(self) -> bool:
        """Send no more pieces, although the call goes on; return whether it has begun."""
        self._closed = True
        return self.begun

    async def end(self, reply: CallReply) -> web.StreamResponse:
        """Send the last events of the answer."""
        last = partial(self._answers.end, reply)
        return await self._ended(await self._written(last, is_long=takes_long(reply)))

    async def failed(self, body: dict[str, Any]) -> web.StreamResponse:
        """Send an error, which ends the answer."""
        last = partial(self._answers.failed, body)
        return await self._ended(await self._written(last, is_long=False))

    async def _written(self, write: Callable[[], bytes], *, is_long: bool) -> bytes:
        """Return events, written in a thread if that takes long, and after those that came before: also
        if their call was stopped meanwhile, because they change what is known of the answer."""
        if self._writing is not None and not self._writing.done():
            await asyncio.wait((self._writing,))
        if not is_long:
            return write()
        self._writing = asyncio.ensure_future(beside(write))
        self._writing.add_done_callback(_forget)
        return await asyncio.shield(self._writing)

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
            log.debug("stream_caller_gone")  # its handler is already being cancelled


def _forget(writing: "asyncio.Future[bytes]") -> None:
    """Drop what was raised; whoever waits for it gets it, too."""
    if not writing.cancelled():
        writing.exception()
