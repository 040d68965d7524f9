"""A bound on what a Postgres server may send for one query, whatever the query makes of it.

asyncpg keeps a whole answer, and a whole message, in memory before anybody can count it. So the bytes
are counted where they come in: between the transport and asyncpg's own protocol. Beyond the bound the
connection is aborted, and the server ends the statement with it.
"""

import asyncio
from typing import Any, Final

MAX_ANSWER_BYTES: Final = 32 * 1024 * 1024


class BoundedWire(asyncio.Protocol):
    """Stands before a connection's protocol and counts what it gets."""

    def __init__(self, connection: Any) -> None:
        """Take the place of the protocol of an open asyncpg connection."""
        self.is_exceeded = False
        self._left = MAX_ANSWER_BYTES
        self._transport: asyncio.Transport = connection._transport
        self._inner: Any = connection._protocol
        self._transport.set_protocol(self)

    def begin(self) -> None:
        """Count anew."""
        self._left = MAX_ANSWER_BYTES

    def data_received(self, data: bytes) -> None:
        """Hand on what came, or give the connection up."""
        self._left -= len(data)
        if self._left >= 0:
            self._inner.data_received(data)
        elif not self.is_exceeded:
            self.is_exceeded = True
            self._transport.abort()

    def eof_received(self) -> bool | None:
        """Hand it on."""
        kept: bool | None = self._inner.eof_received()
        return kept

    def connection_lost(self, exc: Exception | None) -> None:
        """Hand it on."""
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        """Hand it on."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Hand it on."""
        self._inner.resume_writing()
