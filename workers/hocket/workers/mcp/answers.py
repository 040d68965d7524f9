"""Answers as they arrive: bounded and checked before the SDK reads them."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2
from aiohttp import ClientError, ClientResponse

from hocket.schemas.checks.plain_json import parse_json
from hocket.schemas.errors import InvalidInput
from hocket.workers.http.remote_errors import reason_of
from hocket.workers.mcp.errors import McpAnswerInvalid, McpAnswerTooLarge, McpUnreachable
from hocket.workers.mcp.events import Event, Events
from hocket.workers.mcp.guard import Guard
from hocket.workers.mcp.parts import PARTS_AT_ONCE

MAX_EVENTS = 2_000
"""The most events in one answer that is an event stream."""
MAX_ANSWER_VALUES = 200_000
"""The most JSON values in an answer."""
MAX_BLOCKS = 20_000
"""The most parts (texts, images, links) in a tool's answer. To read each takes 30 us, and
130 us if it is not valid."""
READ_IN_THREAD_BYTES = 100_000


class Answer(httpx2.AsyncByteStream):
    """The bytes of an answer, up to a limit over all of its streams; they end with their call."""

    def __init__(self, response: ClientResponse, limit: int, component: str, guard: Guard) -> None:
        self.received = guard.received
        self._response = response
        self._limit = limit
        self._component = component
        self._guard = guard
        self._held = guard.holds(response.close)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        received = self.received
        try:
            async for chunk in self._response.content.iter_any():
                received.size_bytes += len(chunk)
                if received.size_bytes > self._limit:
                    raise self.too_large(f"{self._limit} bytes")
                yield chunk
        except (ClientError, OSError) as error:
            reason = reason_of(error)
            if not received.is_resumable:  # otherwise the SDK asks for the rest
                self._guard.breaks(McpUnreachable(reason=reason, component=self._component))
            raise httpx2.ReadError(reason) from error
        finally:
            await self.aclose()

    def too_large(self, limit: str) -> httpx2.ReadError:
        """Break the call because the answer exceeds a limit; return the error for its reader."""
        self._guard.breaks(McpAnswerTooLarge(limit=limit, component=self._component))
        return httpx2.ReadError("it is too large")

    def refuse(self, error: InvalidInput) -> None:
        """Break the call because of what the answer holds."""
        self._guard.breaks(McpAnswerInvalid(reason=str(error), component=self._component))

    async def aclose(self) -> None:
        """Close the connection, unless the answer was read to its end."""
        self._guard.let_go(self._held)
        self._response.close()


class EventStream(httpx2.AsyncByteStream):
    """An answer that is a stream of events, each of which is counted and checked on its way."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._events = Events()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._answer:
            for event in self._counted(self._events.completed(chunk)):
                yield await self._checked(event)
        for event in self._counted(self._events.at_end()):
            yield await self._checked(event)

    def _counted(self, completed: Iterator[Event]) -> list[Event]:
        """Return the events of a part of the stream, unless they are too many. They are counted before
        any is passed on, because the SDK takes half a millisecond for each."""
        events = list(completed)
        received = self._answer.received
        received.events += len(events)
        if received.events > MAX_EVENTS:
            raise self._answer.too_large(f"{MAX_EVENTS} events")
        return events

    async def _checked(self, event: Event) -> bytes:
        try:
            message, parts = await check(event.message)
        except InvalidInput as error:
            self._answer.refuse(error)
            raise httpx2.ReadError("it cannot be read") from error
        self._answer.received.is_resumable |= event.has_id
        if not parts:
            return event.whole
        self._answer.received.parts = parts
        return event.with_message(message)

    async def aclose(self) -> None:
        """Close the connection, unless the answer was read to its end."""
        await self._answer.aclose()


async def check(body: bytes) -> tuple[bytes, list[Any]]:
    """Return an answer as the SDK gets it, and the parts of a tool's answer that are left out of it,
    because they are more than PARTS_AT_ONCE. Raises InvalidInput if the JSON nests too deep, or has too
    many values or parts."""
    if not body:
        return body, []
    if len(body) <= READ_IN_THREAD_BYTES:
        return _check(body)
    return await asyncio.to_thread(_check, body)


def _check(body: bytes) -> tuple[bytes, list[Any]]:
    message = parse_json(body, "answer", max_values=MAX_ANSWER_VALUES)
    result = message.get("result") if isinstance(message, dict) else None
    content = result.get("content") if isinstance(result, dict) else None
    if result is None or not isinstance(content, list) or len(content) <= PARTS_AT_ONCE:
        return body, []
    if len(content) > MAX_BLOCKS:
        raise InvalidInput(
            field="answer.result.content",
            reason=f"it has {len(content)} parts; the limit is {MAX_BLOCKS}",
            cure="Send fewer.",
        )
    message["result"] = {**result, "content": []}
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode(), content
