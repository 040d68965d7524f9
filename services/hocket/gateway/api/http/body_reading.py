"""Reads bodies into calls. Those with many values are read in a thread, one at a time, because that
takes seconds, in which no other call would go on.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from hocket.gateway.api.http.intake import Body
from hocket.gateway.core.calls.body_fields import unusual_fields
from hocket.gateway.core.calls.request_content import tokens
from hocket.gateway.core.protocols.json_size import marks
from hocket.kit.request_turns import give_way
from hocket.schemas.messages import CallRequest

T = TypeVar("T")

SMALL_BYTES = 64 * 1024
MANY_VALUES = 10_000
"""A body of more than SMALL_BYTES with at least so many values is read in a thread. Long texts and
images are read at once."""


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
        held.weigh()
        content, held.content = held.content, b""
        if len(content) <= SMALL_BYTES or marks(content) < MANY_VALUES:
            return read(content)

        def read_apart() -> T:
            made = read(content)
            prepare(made)
            return made

        give_way()
        try:
            await self._one.acquire()
        except asyncio.CancelledError:
            held.release()
            raise
        reading = asyncio.create_task(asyncio.to_thread(read_apart), name="read a large body")
        reading.add_done_callback(lambda _: self._one.release())
        try:
            return await asyncio.shield(reading)
        except asyncio.CancelledError:  # the thread goes on to its end
            reading.add_done_callback(lambda done: _forget(held, done))
            raise


def _forget(held: Body, done: "asyncio.Task[T]") -> None:
    held.release()
    if not done.cancelled():
        done.exception()  # it was raised to nobody


def look_through(request: CallRequest) -> None:
    """Find out what is noted on a call, because that takes long for a large one."""
    tokens(request)
    unusual_fields(request)
