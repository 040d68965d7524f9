"""What is written goes to the socket of a connection that is open, and otherwise waits for one."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hocket.kit.nats.connection.client import ReconnectingClient
from hocket.kit.nats.connection.socket_writer import SocketWriter

COMMAND = b"PUB a 1\r\nx\r\n"


class Socket:
    """The socket of a connection, from the moment it is open."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.transport = SimpleNamespace(get_write_buffer_size=lambda: 0)

    def is_closing(self) -> bool:
        return False

    def write(self, command: bytes) -> None:
        self.written.append(command)

    def writelines(self, commands: list[bytes]) -> None:
        self.written += commands


def client_of(socket: Socket, *, is_connected: bool) -> Any:
    return SimpleNamespace(
        is_connected=is_connected,
        _pending=[],
        _pending_data_size=0,
        _flush_queue=None,
        _transport=SimpleNamespace(_io_writer=socket),
    )


@pytest.mark.parametrize("prompt", [False, True])
async def test_nothing_is_written_before_the_server_was_greeted(*, prompt: bool) -> None:
    """While it reconnects, a client has a socket on which neither TLS nor the login has begun."""
    socket = Socket()
    client = client_of(socket, is_connected=False)
    writer = SocketWriter(cast(ReconnectingClient, client), prompt=prompt)

    writer.write(COMMAND)
    await asyncio.sleep(0)

    assert (socket.written, client._pending) == ([], [COMMAND])


@pytest.mark.parametrize("prompt", [False, True])
async def test_what_is_written_goes_to_the_socket_at_the_end_of_the_iteration_or_at_once(
    *, prompt: bool
) -> None:
    socket = Socket()
    client = client_of(socket, is_connected=True)
    writer = SocketWriter(cast(ReconnectingClient, client), prompt=prompt)

    writer.write(COMMAND)

    assert socket.written == ([COMMAND] if prompt else [])
    await asyncio.sleep(0)
    assert socket.written == [COMMAND]
