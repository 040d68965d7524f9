"""An answer that is streamed as it is produced."""

from typing import Any

import structlog
from aiohttp import web

from hocket.gateway.api.http import identity
from hocket.gateway.api.http.answers import Answers
from hocket.gateway.backends.protocol import Chunk
from hocket.schemas.messages import CallReply

log = structlog.get_logger()


class EventStream:
    """Sends the events of a stream to a caller; a disconnected caller is not an error here."""

    def __init__(self, request: web.BaseRequest, answers: Answers, call_id: str) -> None:
        self._request = request
        self._answers = answers
        self._closed = False
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
        if not self._closed:
            await self._send(self._answers.chunk(chunk))

    def close(self) -> bool:
        """Send no more pieces, although the call goes on; return whether it has begun."""
        self._closed = True
        return self.begun

    async def end(self, reply: CallReply) -> web.StreamResponse:
        """Send the last events of the answer."""
        return await self._ended(self._answers.end(reply))

    async def failed(self, body: dict[str, Any]) -> web.StreamResponse:
        """Send an error, which ends the answer."""
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
            log.debug("stream_caller_gone")  # its handler is already being cancelled
