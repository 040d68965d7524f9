"""A NATS client that writes arbitrary bytes anywhere, as a forger would: subjects, headers and bodies
are sent unchecked."""

import asyncio
import json
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

ANSWER_S = 20.0


class Forger:
    """One raw connection."""

    def __init__(self, nats_url: str) -> None:
        self._url = urlsplit(nats_url)
        self.refused = 0
        """Number of errors from the server."""

    async def __aenter__(self) -> Self:
        assert self._url.hostname is not None
        self._reader, self._writer = await asyncio.open_connection(
            self._url.hostname, self._url.port or 4222, limit=1 << 24
        )
        told = {
            "verbose": False,
            "headers": True,
            "user": self._url.username,
            "pass": self._url.password,
        }
        self._writer.write(b"CONNECT %b\r\n" % json.dumps(told).encode())
        await self.flushed()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._writer.close()

    def write(self, subject: bytes, body: bytes, head: bytes = b"", reply: bytes = b"") -> None:
        """Publish; the server may refuse it."""
        where = b"%b %b" % (subject, reply) if reply else subject
        if head:
            line = b"HPUB %b %d %d" % (where, len(head), len(head) + len(body))
        else:
            line = b"PUB %b %d" % (where, len(body))
        self._writer.write(b"%b\r\n%b%b\r\n" % (line, head, body))

    async def flushed(self) -> None:
        """Wait until the server has read all that was written."""
        self._writer.write(b"PING\r\n")
        async with asyncio.timeout(ANSWER_S):
            while line := await self._reader.readline():
                if line.startswith(b"PONG"):
                    return
                if line.startswith(b"PING"):
                    self._writer.write(b"PONG\r\n")
                self.refused += line.startswith(b"-ERR")
        raise ConnectionError("the server closed the connection of the forger")


def head_of(*lines: bytes) -> bytes:
    """Return the bytes of headers."""
    return b"NATS/1.0\r\n" + b"".join(line + b"\r\n" for line in lines) + b"\r\n"
