"""The sockets between the real NATS client and the simulated server: bytes in order, with a delay.

A connection keeps the order of its bytes in each direction, as TCP does; every chunk has a random
delay. A connection can stall (nothing arrives for a while) and break: bytes in transit are lost, the
server knows at once, and the client reads an end of file.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from nats.aio.transport import Transport

if TYPE_CHECKING:
    from simulation.engine.nats_server import Server
    from simulation.engine.world import Process


class Connection:
    """Both ends of one socket."""

    def __init__(self, server: "Server", process: "Process", number: int) -> None:
        self.server = server
        self.process = process
        self.number = number
        self.open = True
        self.stalled_until_s = 0.0
        self.buffer = bytearray()
        """Bytes of an incomplete command, on the server's side."""
        self._world = server.world
        self._down: list[bytes] = []
        self._down_at_s = 0.0
        self._up_at_s = 0.0
        self._received = bytearray()
        self._waiting: asyncio.Future[None] | None = None
        self.ended = False

    # ---- to the client ----------------------------------------------------------------------

    def to_client(self, data: bytes) -> None:
        """Send bytes, together with those that are still waiting to leave."""
        if not self.open:
            return
        self._down.append(data)
        if len(self._down) == 1:
            self._down_at_s = self._later(self._down_at_s)
            self._world.at(self._down_at_s, self._arrive_at_client)

    def _arrive_at_client(self) -> None:
        data, self._down = b"".join(self._down), []
        if not self.open or self.ended:
            return
        self._received += data
        self._wake()

    async def read(self) -> bytes:
        """Return what has arrived, waiting if there is nothing; empty at the end of the stream."""
        while not self._received and not self.ended:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        data = bytes(self._received)
        self._received.clear()
        return data

    async def read_line(self) -> bytes:
        while b"\n" not in self._received and not self.ended:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        end = self._received.find(b"\n") + 1
        line = bytes(self._received[:end])
        del self._received[:end]
        return line

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    # ---- to the server ----------------------------------------------------------------------

    def to_server(self, data: bytes) -> None:
        if self.open:
            self._up_at_s = self._later(self._up_at_s)
            self._world.at(self._up_at_s, self._arrive_at_server, data)

    def _arrive_at_server(self, data: bytes) -> None:
        if self.open:
            self.server.receive(self, data)

    # ---- ends -------------------------------------------------------------------------------

    def break_(self, reason: str) -> None:
        """Lose what is in transit; the client notices a little later."""
        if not self.open:
            return
        self.open = False
        self._world.note("nats", f"connection {self.number} of {self.process.name}: {reason}")
        self.server.forget(self)
        self._world.after(self.server.latency_s(), self._end)

    def _end(self) -> None:
        self.ended = True
        self._wake()

    def _later(self, not_before_s: float) -> float:
        return max(not_before_s, self.stalled_until_s, self._world.now_s + self.server.latency_s())


class SimulatedTransport(Transport):
    """The object that nats-py uses as its TCP transport."""

    server: "Server"

    def __init__(self) -> None:
        self._connection: Connection | None = None

    async def connect(self, uri: Any, buffer_size: int, connect_timeout: float) -> None:
        loop: Any = asyncio.get_running_loop()
        await asyncio.sleep(self.server.latency_s())
        self._connection = self.server.connect(loop.process)

    async def connect_tls(self, *arguments: Any, **named: Any) -> None:
        raise AssertionError("no TLS in a simulation")

    def write(self, payload: bytes) -> None:
        assert self._connection is not None
        self._connection.to_server(bytes(payload))

    def writelines(self, payload: list[bytes]) -> None:
        assert self._connection is not None
        self._connection.to_server(b"".join(payload))

    async def read(self, buffer_size: int) -> bytes:
        assert self._connection is not None
        return await self._connection.read()

    async def readline(self) -> bytes:
        assert self._connection is not None
        return await self._connection.read_line()

    async def drain(self) -> None:
        assert self._connection is not None
        if self._connection.ended:
            raise ConnectionResetError("the connection was lost")

    async def wait_closed(self) -> None:
        return

    def close(self) -> None:
        if self._connection is not None:
            self._connection.break_("closed by its client")

    def at_eof(self) -> bool:
        connection = self._connection
        return connection is None or (connection.ended and not connection._received)

    def __bool__(self) -> bool:
        return self._connection is not None
