"""Limits how much a Postgres server may send for one query.

asyncpg keeps a whole answer, and a whole message, in memory before anything can count it. So bytes are
counted as they arrive, between the transport and asyncpg's own protocol. Beyond the limit the connection
is aborted, and with it the server ends the statement.

Bytes say little about arrays: the limit leaves room for millions of elements, and asyncpg decodes an
array as a whole on the event loop. So values are counted as well, while they are decoded: those of the
answer, and those of a piece of PIECE_BYTES, with the elements of all arrays of the row that it ends.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

MAX_ANSWER_BYTES: Final = 32 * 1024 * 1024
MAX_ANSWER_VALUES: Final = 1_000_000
"""The most values in one answer, including array elements but not nulls. Numbers in points, and values
that are expensive to read (`is_dear`), count as DEAR_VALUE."""
PIECE_BYTES: Final = 32 * 1024
MAX_PIECE_VALUES: Final = 100_000
"""The most values that are decoded at once; only a row with long arrays has so many."""
DEAR_VALUE: Final = 5


class TooManyValues(Exception):
    """An answer has more than MAX_ANSWER_VALUES values, or a row more than MAX_PIECE_VALUES."""


class ValueCount:
    """Counts the values of one answer while they are read."""

    __slots__ = ("_after", "_left")

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Start counting another answer."""
        self._after = MAX_ANSWER_VALUES
        self._left = 0
        self.begin_piece()

    def begin_piece(self) -> None:
        """Start counting the values of another piece of the answer."""
        whole = self._after + self._left
        self._left = min(whole, MAX_PIECE_VALUES)
        self._after = whole - self._left

    def counted(self, read: Callable[[Any], Any], *, is_dear: bool = False) -> Callable[[Any], Any]:
        """Return a function that reads a value and counts it; it raises TooManyValues."""

        def decode(value: Any) -> Any:
            self._left -= 1
            if self._left < 0:
                raise TooManyValues
            return read(value)

        def decode_dear(value: Any) -> Any:
            parts = value.count(",") if isinstance(value, str) else 0
            self._left -= DEAR_VALUE * (1 + parts)
            if self._left < 0:
                raise TooManyValues
            return read(value)

        return decode_dear if is_dear else decode


class BoundedWire(asyncio.Protocol):
    """Wraps a connection's protocol and counts the bytes that it receives."""

    def __init__(self, connection: Any, values: ValueCount) -> None:
        """Take the place of the protocol of an open asyncpg connection."""
        self._values = values
        self.is_exceeded = False
        self.is_left = False
        """Whether the server closed the connection, which its process does when it ends."""
        self._left = MAX_ANSWER_BYTES
        self._transport: asyncio.Transport = connection._transport
        self._inner: Any = connection._protocol
        self._transport.set_protocol(self)

    def begin(self) -> None:
        """Start counting another answer."""
        self._left = MAX_ANSWER_BYTES
        self._values.begin()

    def data_received(self, data: bytes) -> None:
        """Pass data on, or abort the connection beyond the limit."""
        self._left -= len(data)
        if self._left >= 0:
            for begin in range(0, len(data), PIECE_BYTES):
                self._values.begin_piece()
                self._inner.data_received(data[begin : begin + PIECE_BYTES])
        elif not self.is_exceeded:
            self.is_exceeded = True
            self._transport.abort()

    def eof_received(self) -> bool | None:
        """Pass it on. A pooler may close a connection that asyncpg closes while a statement goes on."""
        self.is_left = self.is_left or not self._inner.is_closed()
        kept: bool | None = self._inner.eof_received()
        return kept

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass it on."""
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        """Pass it on."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on."""
        self._inner.resume_writing()
