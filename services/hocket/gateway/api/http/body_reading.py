"""Reads bodies into calls. Large ones and those with many values are read in a thread, one at a time,
because that takes up to seconds, in which no other call would go on.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from hocket.gateway.api.http.intake import Body, parsed_bytes
from hocket.gateway.backends.large_work import begun
from hocket.gateway.core.calls.body_fields import unusual_fields
from hocket.gateway.core.calls.request_content import tokens
from hocket.gateway.core.protocols.json_size import LARGE_BYTES, takes_long
from hocket.kit.request_turns import give_way
from hocket.schemas.messages import CallRequest

T = TypeVar("T")

MANY_VALUES = 10_000
"""A body of more than QUICK_BYTES with at least so many values is read in a thread, like one of more
than LARGE_BYTES."""


class BodyReading:
    """Reads the bodies of one door."""

    def __init__(self) -> None:
        self._one = asyncio.Semaphore(1)

    async def read(
        self, held: Body, read: Callable[[bytes], T], prepare: Callable[[T], object]
    ) -> T:
        """Return what `read` makes of a body, or raise what it raises. If it is done in a thread, so is
        `prepare`: what would take long later. If the caller is cancelled, the body is released once
        nothing reads it any more.

        Raises BodiesFull if there is no room for its values.
        """
        await _weigh(held)
        content, held.content = held.content, b""
        if not takes_long(content, MANY_VALUES):
            return read(content)

        def read_apart() -> T:
            made = read(content)
            prepare(made)
            return made

        return await _awaited(held, self._begun(read_apart))

    async def _begun(self, read: Callable[[], T]) -> "asyncio.Task[T]":
        await self._one.acquire()
        reading = asyncio.create_task(asyncio.to_thread(read), name="read a large body")
        reading.add_done_callback(lambda _: self._one.release())
        return reading


async def _weigh(held: Body) -> None:
    if len(held.content) <= LARGE_BYTES:
        held.weigh(parsed_bytes(held.content))
        return
    held.weigh(await _awaited(held, begun(partial(parsed_bytes, held.content))))


async def _awaited(held: Body, beginning: "Coroutine[Any, Any, asyncio.Task[T]]") -> T:
    """Return the result of work on a body that begins when it has its turn. If the caller is cancelled,
    the body is released: at once, or when the thread has ended that works on it."""
    give_way()
    working: asyncio.Task[T] | None = None
    try:
        working = await beginning
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        if working is None:
            held.release()
        else:
            working.add_done_callback(lambda done: _forget(held, done))
        raise


def _forget(held: Body, done: "asyncio.Task[T]") -> None:
    held.release()
    if not done.cancelled():
        done.exception()  # it was raised to nobody


def look_through(request: CallRequest) -> None:
    """Find out what is noted on a call, because that takes long for a large one."""
    tokens(request)
    unusual_fields(request)
