"""Writes commands to the socket of a connection, those of one turn of the event loop together.

What was written in one turn goes to the socket at its end, without the client's flusher as long as the
socket takes it. A `prompt` writer gives it to the socket at once where little was written in the turn
before. Of nats-py's client it uses `_pending`, `_pending_data_size`, `_flush_queue` and `_transport`.
"""

import asyncio
from typing import Any

import structlog

from hocket.kit.nats.connection.client import ReconnectingClient

QUIET = 3
"""Where no more messages than this were sent in a turn of the loop, those of the next one go to the
socket at once, up to MAX_AT_ONCE."""
MAX_AT_ONCE = 64

log = structlog.get_logger(__name__)


class SocketWriter:
    """Gives commands to the socket, or to the client while the socket is behind."""

    def __init__(self, client: ReconnectingClient, *, prompt: bool) -> None:
        self._client: Any = client
        self._loop = asyncio.get_running_loop()
        self._flushing = False
        self._prompt = self._quiet = prompt
        self._sent = 0
        self._writing: Any = None
        """Where what is sent in this turn goes at once, if it does."""

    @property
    def is_behind(self) -> bool:
        """Whether what was written before has not even left: writing more would only pile up."""
        return bool(self._client._pending)

    def write(self, command: bytes) -> None:
        """Write at once where little is written, because then nothing would share the write; otherwise
        at the end of this turn of the loop. What is sent side by side arrives so either way."""
        client = self._client
        if not self._flushing:
            self._loop.call_soon(self._flush)
            self._flushing = True
            self._writing = None if client._pending or not self._quiet else self._ready_writer()
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
        """Give to the socket what waits, or to the client's flusher where the socket is behind."""
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
        """Return where to write, None while the socket is behind or gone."""
        writer: Any = getattr(self._client._transport, "_io_writer", None)
        ready = writer is not None and not writer.is_closing()
        return writer if ready and not writer.transport.get_write_buffer_size() else None


def _write(writer: Any, commands: list[bytes]) -> None:
    try:
        writer.writelines(commands)
    except Exception as error:  # what is asked and told would wait for an answer for ever
        log.warning("bus_not_written", error=repr(error))
        writer.transport.abort()  # with a new connection all of it is asked anew
