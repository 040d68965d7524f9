"""nats-py's client with our own parser, made to recover from every failure.

States are the client's: connected, reconnecting, and closed, by `close` alone. No error of the server,
no server that hangs, and no shortage of memory in this process ends the connection for good: whatever
stops the client's reading, its pings or a reconnect starts another reconnect, until one succeeds.

It overrides undocumented parts of nats-py, which is why the version of nats-py is pinned; `test_bus.py`
and `test_bus_faults.py` in `tests/integration` would notice a change.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from hocket.kit.nats.connection.cancellable_client import CancellableClient
from hocket.kit.nats.protocol import Wire

RECONNECT_WAIT_S = 0.1
SUBSCRIPTION_MESSAGES = 1_000_000
SUBSCRIPTION_BYTES = 512 * 1024 * 1024
ACK_PREFIX = b"PUB $JS.ACK."
ACK_PREFIX_END = len(ACK_PREFIX)

log = structlog.get_logger(__name__)


class ReconnectingClient(CancellableClient):
    """nats-py's client, which keeps reconnecting whatever happens. What the callbacks of subscriptions
    raise is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.posts_inbox = ""
        """Commands that ask for an answer below this are made again after a reconnect by whoever made
        them. What of them was not sent when the connection was lost is dropped."""
        self.wire = Wire(self)
        self._ps = self.wire  # type: ignore[assignment]

    def _remove_sub(self, sid: int, max_msgs: int = 0) -> None:
        self.wire.direct.pop(sid, None)
        super()._remove_sub(sid, max_msgs)

    async def _read_loop(self) -> None:
        self.wire.reset()  # anything partly read came from the previous connection
        await super()._read_loop()
        await self._come_back(self._reading_task, "what the server sends could not be read")

    async def _process_err(self, err_msg: str) -> None:
        # the client's own method would close for good; the server closes the connection, so reconnect
        error = NatsError(f"the server said {err_msg}")
        log.warning("bus_error", bus=self.options["name"], error=str(error))
        if "permissions violation" not in err_msg.lower():
            await self._process_op_err(error)

    async def _process_op_err(self, e: Exception) -> None:
        status = self._status
        try:
            await super()._process_op_err(e)
        except Exception:  # no reconnect has started; the next ping starts one
            self._status = status
            raise

    async def _attempt_reconnect(self) -> None:
        while not self.is_closed:
            try:
                self._drop_connection()
                await super()._attempt_reconnect()
                return
            except Exception as error:  # the client's own method gives up on non-network errors
                log.warning("bus_reconnect_failed", error=repr(error))
                self._status = Client.RECONNECTING
                await asyncio.sleep(RECONNECT_WAIT_S)

    def _drop_connection(self) -> None:
        # an orderly close waits until everything is sent, which is for ever if the server hangs
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()
        # an acknowledgement names a message by its sequence; the server may come back with another
        # message at that sequence
        kept = [command for command in self._pending if ACK_PREFIX not in command[:ACK_PREFIX_END]]
        if self.posts_inbox:
            reply = f" {self.posts_inbox}.".encode()
            kept = [command for command in kept if reply not in command.partition(b"\r\n")[0]]
        self._pending, self._pending_data_size = kept, sum(map(len, kept))

    async def _flusher(self) -> None:
        try:
            await super()._flusher()
        except Exception as error:
            log.warning("bus_not_flushed", error=repr(error))
        await self._come_back(self._flusher_task, "nothing could be written")

    async def _come_back(self, ended: asyncio.Task[None] | None, reason: str) -> None:
        """Reconnect if a task of the connection has ended: nats-py's tasks end silently when something
        other than the connection fails."""
        task = asyncio.current_task()
        if self.is_connected and task is ended and task is not None and not task.cancelling():
            await self._process_op_err(NatsError(reason))

    async def _ping_interval(self) -> None:
        # the client's own task ends for good when a ping cannot be written, and then nobody would notice
        # that the server is away
        while True:
            await asyncio.sleep(self.options["ping_interval"])
            try:
                await self._ping()
            except Exception as error:
                log.warning("bus_not_pinged", error=repr(error))

    async def _ping(self) -> None:
        """Ping the server; reconnect if earlier pings were not answered, or this one cannot be sent."""
        if not self.is_connected:
            return
        self._pings_outstanding += 1
        if self._pings_outstanding > self.options["max_outstanding_pings"]:
            await self._process_op_err(NatsError("the server answers no ping"))
            return
        try:
            await self._send_ping()
        except Exception as error:
            await self._process_op_err(NatsError(repr(error)))

    async def _send_ping(self, future: asyncio.Future[Any] | None = None) -> None:
        # the client's own ping overtakes what waits to be written, so `flush` would return before the
        # server has read a subscription
        if self._pending and self._transport is not None and self.is_connected:
            self._transport.writelines(self._pending)
            self._pending = []
            self._pending_data_size = 0
        await super()._send_ping(future)

    async def subscribe(
        self,
        subject: str,
        queue: str = "",
        cb: Callable[[Msg], Awaitable[None]] | None = None,
        future: asyncio.Future[Any] | None = None,
        max_msgs: int = 0,
        pending_msgs_limit: int = SUBSCRIPTION_MESSAGES,
        pending_bytes_limit: int = SUBSCRIPTION_BYTES,
    ) -> Subscription:
        logged = None if cb is None else _logged(cb, subject)
        return await super().subscribe(
            subject, queue, logged, future, max_msgs, pending_msgs_limit, pending_bytes_limit
        )


def _logged(
    callback: Callable[[Msg], Awaitable[None]], subject: str
) -> Callable[[Msg], Awaitable[None]]:
    """Wrap a callback so that what it raises is logged: the client would silently ignore it."""

    async def call(message: Msg) -> None:
        try:
            await callback(message)
        except Exception:
            log.exception("bus_callback_failed", subscribed=subject, subject=message.subject)

    return call
