"""A TCP proxy between two parties that can fall silent like a partitioned network: bytes stop, but
connections stay open."""

import asyncio
from contextlib import suppress

from hocket.kit.embedded.ports import LOOPBACK

CHUNK = 65_536


class Link:
    """Listens on `port` and forwards everything to `target`."""

    def __init__(self, port: int, target: int) -> None:
        self.held = 0
        """How often there was something to forward while the link was cut."""
        self.port, self._target = port, target
        self._open = asyncio.Event()
        self._open.set()
        self._server: asyncio.Server | None = None
        self._passing: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accepted, LOOPBACK, self.port)

    def cut(self) -> None:
        """Stop forwarding, without closing connections."""
        self._open.clear()

    def heal(self) -> None:
        """Forward again. Existing connections are closed, as they are after a long silence."""
        self.drop()
        self._open.set()

    def drop(self) -> None:
        """Close all connections; new ones may be made."""
        for task in self._passing:
            task.cancel()

    async def stop(self) -> None:
        assert self._server is not None, "it was started"
        self._server.close()
        self.drop()
        await asyncio.gather(*self._passing, return_exceptions=True)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._joined(reader, writer))
        self._passing.add(task)
        task.add_done_callback(self._passing.discard)

    async def _joined(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        try:
            await self._open.wait()
            with suppress(OSError):  # the target may be down
                there, answers = await asyncio.open_connection(LOOPBACK, self._target)
                writers.append(answers)
                ways = [
                    asyncio.create_task(self._pass(reader, answers)),
                    asyncio.create_task(self._pass(there, writer)),
                ]
                try:
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for way in ways:
                        way.cancel()
                    await asyncio.gather(*ways, return_exceptions=True)
        finally:
            for one in writers:
                one.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK):
            self.held += not self._open.is_set()
            await self._open.wait()
            writer.write(data)
            await writer.drain()
