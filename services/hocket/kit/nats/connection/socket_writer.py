"""Writes commands to the socket of a connection, batched per iteration of the event loop.

What is written in one iteration goes to the socket at its end, bypassing the client's flusher as long as
the socket keeps up. A `prompt` writer passes it to the socket immediately if little was written in the
previous iteration. Of nats-py's client, it uses `_pending`, `_pending_data_size`, `_flush_queue` and
`_transport`.
"""

import asyncio
from typing import Any

import structlog

from hocket.kit.nats.connection.client import ReconnectingClient

QUIET = 3
"""If no more messages than this were sent in an iteration of the loop, those of the next one go to the
socket immediately, up to MAX_AT_ONCE."""
MAX_AT_ONCE = 64

log = structlog.get_logger(__name__)


class SocketWriter:
    """Passes commands to the socket, or to the client while the socket is behind."""

    def __init__(self, client: ReconnectingClient, *, prompt: bool) -> None:
        self._client: Any = client
        self._loop = asyncio.get_running_loop()
        self._flushing = False
        self._prompt = self._quiet = prompt
        self._sent = 0
        self._writing: Any = None
        """The stream to which this iteration's commands are written immediately; None if they are
        not."""

    @property
    def is_behind(self) -> bool:
        """Whether earlier commands have not left yet: writing more would only pile them up."""
        return bool(self._client._pending)

    def write(self, command: bytes) -> None:
        """Write immediately while traffic is low, because batching would gain nothing; otherwise at the
        end of this iteration of the loop. Commands leave in the order of the calls either way."""
        client = self._client
        if not self._flushing:
            self._loop.call_soon(self._flush)
            self._flushing = True
            at_once = self._quiet and not client._pending
            self._writing = self._ready_writer() if at_once else None
            self._sent = 0
        self._sent += 1
        if self._writing is not None:
            self._writing.write(command)
            if self._sent >= MAX_AT_ONCE:
                self._writing = None
            return
        client._pending.append(command)
        client._pending_data_size += len(command)

    def _flush(self) -> None:
        """Pass what waits to the socket, or to the client's flusher if the socket is behind."""
        self._flushing = False
        self._writing = None
        self._quiet = self._prompt and self._sent <= QUIET
        client = self._client
        if not client._pending or not client.is_connected:
            return
        writer = self._ready_writer()
        if writer is not None:
            waiting, client._pending, client._pending_data_size = client._pending, [], 0
            _write(writer, waiting)
        elif client._flush_queue is not None and client._flush_queue.empty():
            client._flush_queue.put_nowait(self._loop.create_future())

    def _ready_writer(self) -> Any:
        """Return where to write, None while the socket is behind or gone, or new: before the client has
        greeted the server on it, what is written would not be encrypted, and break the login."""
        if not self._client.is_connected:
            return None
        writer: Any = getattr(self._client._transport, "_io_writer", None)
        ready = writer is not None and not writer.is_closing()
        return writer if ready and not writer.transport.get_write_buffer_size() else None


def _write(writer: Any, commands: list[bytes]) -> None:
    try:
        writer.writelines(commands)
    except Exception as error:  # requests and posts would wait for ever for an answer
        log.warning("bus_not_written", error=repr(error))
        writer.transport.abort()  # all of it is sent again over a new connection
