"""Counts the memory of all large replies, from their first bytes until they are sent on or given up.

If there is no room, a reply is read no further, so that its server waits, until others have gone. The
oldest one always has room, so that one can always end. Small replies are not counted.
"""

import asyncio
import math
from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import Any, Self, TypeVar

from hocket.gateway.backends.large_work import begun
from hocket.gateway.core.errors import GatewayFull
from hocket.gateway.core.protocols.json_size import QUICK_BYTES
from hocket.kit.process import clock

T = TypeVar("T")

MAX_REPLIES_BYTES = 128 * 1024 * 1024
"""The most bytes of replies of more than QUICK_BYTES that are held for all calls in flight; in memory,
a reply takes up to five times its size."""
ROOM_S = 60.0
"""How long a reply waits for room, if its call has so much time left."""
BUSY_RETRY_MS = 1_000.0

Told = Callable[[Exception | None], None]
"""Is told that there is room now, or why there will be none."""


class RepliesFull(GatewayFull):
    """The gateway already holds {limit_bytes} bytes of replies, and had no room for this one in time.
    Try again later, ask for less at once, or start another gateway."""


class ReplyRoom:
    """The room for the replies of one process."""

    def __init__(self, max_bytes: int = MAX_REPLIES_BYTES) -> None:
        self.held_bytes = 0
        self._max_bytes = max_bytes
        self._replies: dict[HeldReply, None] = {}
        """Those that hold room or wait for it, the oldest first."""

    def reply(self, timeout_ms: float = math.inf) -> "HeldReply":
        """Return the room of one reply, which takes none before the reply has arrived. From now on, its
        call has `timeout_ms`."""
        return HeldReply(self, timeout_ms)

    def full(self) -> RepliesFull:
        """Return the error for a reply that waited too long."""
        return RepliesFull(
            limit_bytes=self._max_bytes,
            component="gateway",
            retry_at_ms=clock.now_ms() + BUSY_RETRY_MS,
        )

    def take(self, reply: "HeldReply", more: int) -> bool:
        """Count `more` bytes of a reply if there is room for them; return whether there was."""
        self._replies.setdefault(reply)
        is_oldest = next(iter(self._replies)) is reply
        if more > 0 and self.held_bytes + more > self._max_bytes and not is_oldest:
            return False
        self.held_bytes += more
        if more < 0:
            self._settle()
        return True

    def remove(self, reply: "HeldReply", count: int) -> None:
        """Count a reply and its bytes no longer."""
        if reply in self._replies:
            del self._replies[reply]
            self.held_bytes -= count
            self._settle()

    def _settle(self) -> None:
        """Give free room to those that wait, the oldest first."""
        for reply in tuple(self._replies):
            reply.try_again()


class HeldReply:
    """The room of one reply, to be used in a `with` block. At its end the room is free again, but that
    of a reply that was read is kept within `kept_replies`, and that of a reply that a thread still
    reads until it has ended."""

    __slots__ = (
        "_began_ms",
        "_bytes",
        "_limit",
        "_reading",
        "_room",
        "_timeout_ms",
        "_told",
        "_waited_ms",
        "_waits_since_ms",
        "_wanted",
        "is_long",
    )

    def __init__(self, room: ReplyRoom, timeout_ms: float) -> None:
        self.is_long = False
        """Whether it takes long to be read, and to be written again."""
        self._room = room
        self._timeout_ms = timeout_ms
        self._began_ms = clock.monotonic_ms()
        self._waited_ms = 0.0
        self._waits_since_ms: float | None = None
        self._reading: asyncio.Future[Any] | None = None
        self._bytes = self._wanted = 0
        self._told: Told | None = None
        self._limit: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        kept = _kept.get()
        if kept is not None:
            kept.free()  # what its call got before was not enough, and must not stand in the way
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        kept = _kept.get()
        if kind is not None or kept is None or not kept.keep(self):
            self.release()

    @property
    def lacked_room(self) -> bool:
        """Whether its call's time has gone by without room, and not because of its server: it waits for
        room, or did for most of the time."""
        return self._waits_since_ms is not None or self._waited_ms > self._timeout_ms / 2

    def resize(self, count: int, told: Told) -> bool:
        """Let the reply take `count` bytes altogether; return whether there is room.

        If not, it must be read no further before `told` is called.
        """
        if count == self._bytes or (count <= QUICK_BYTES and not self._bytes):
            return True
        self._wanted = count
        if self._room.take(self, count - self._bytes):
            self._bytes = count
            self._wait_no_more()
            return True
        self._told = told
        if self._limit is None:
            now_ms = self._waits_since_ms = clock.monotonic_ms()
            left_s = (self._began_ms + self._timeout_ms - now_ms) / 1000
            loop = asyncio.get_running_loop()
            self._limit = loop.call_later(min(ROOM_S, left_s), self._give_up)
        return False

    async def wait_for(self, count: int) -> None:
        """Let the reply take `count` bytes altogether, once there is room; raise RepliesFull."""
        if self.resize(count, _ignore):
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._told = lambda error: _end(done, error)
        await done

    async def read_beside(self, read: Callable[[], T]) -> T:
        """Return what a function makes of the reply in a thread. The room is kept until that has ended,
        even if the call is cancelled before."""
        self._reading = reading = await begun(read)
        return await asyncio.shield(reading)

    def try_again(self) -> None:
        """Take the room it waits for, if there is enough now."""
        told = self._told
        if told is None or not self._room.take(self, self._wanted - self._bytes):
            return
        self._bytes = self._wanted
        self._wait_no_more()
        told(None)

    def release(self) -> None:
        """Free the room, once no thread reads the reply any more; a second call does nothing."""
        self._wait_no_more()
        if self._reading is not None and not self._reading.done():
            self._reading.add_done_callback(lambda _: self.release())
            return
        self._reading = None
        count, self._bytes = self._bytes, 0
        self._room.remove(self, count)

    def _give_up(self) -> None:
        told = self._told
        self._wait_no_more()
        if told is not None:
            told(self._room.full())

    def _wait_no_more(self) -> None:
        self._told = None
        if self._waits_since_ms is not None:
            self._waited_ms += clock.monotonic_ms() - self._waits_since_ms
            self._waits_since_ms = None
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None


class KeptReplies:
    """The room of the replies that are sent on to one caller."""

    __slots__ = ("_before", "_closed", "_replies")

    def __init__(self) -> None:
        self._replies: list[HeldReply] = []
        self._closed = False

    def __enter__(self) -> Self:
        self._before: Token[KeptReplies | None] = _kept.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _kept.reset(self._before)
        self._closed = True
        self.free()

    @property
    def are_long(self) -> bool:
        """Whether writing the answer takes long."""
        return any(reply.is_long for reply in self._replies)

    def keep(self, reply: HeldReply) -> bool:
        """Keep the room of a reply, unless the caller has gone; return whether it is kept."""
        if not self._closed:
            self._replies.append(reply)
        return not self._closed

    def free(self) -> None:
        """Free the room."""
        while self._replies:
            self._replies.pop().release()


_kept: ContextVar[KeptReplies | None] = ContextVar("kept_replies", default=None)

ROOM = ReplyRoom()
"""The room of this process."""


def kept_replies() -> KeptReplies:
    """Return what keeps the room of the replies to calls that are begun in its `with` block, until the
    end of that."""
    return KeptReplies()


def _ignore(_: Exception | None) -> None:
    """Leave it to a future, which is told instead."""


def _end(done: "asyncio.Future[None]", error: Exception | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
