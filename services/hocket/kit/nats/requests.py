"""Requests on core NATS whose answers come to one inbox.

A request of the client's has a task, a timer and a queued message each; here it is a line written and a
future. Who asks bounds the wait.
"""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.nats.protocol import RawMessage

if TYPE_CHECKING:
    from nats.aio.subscription import Subscription

NOBODY_LISTENS = b"NATS/1.0 503"
"""How the server begins its answer to a request that nobody is subscribed for."""


class Requests:
    """Asks on one subject, from `open` to `close`."""

    def __init__(self, bus: Bus, subject: str) -> None:
        self._bus = bus
        self._subject = subject
        self._inbox = ""
        self._subscription: Subscription | None = None
        self._waiting: dict[str, asyncio.Future[RawMessage]] = {}
        self._count = 0

    async def open(self) -> None:
        """Listen for answers."""
        self._inbox = self._bus.nc.new_inbox()
        self._subscription = await self._bus.subscribe_raw(f"{self._inbox}.*", self._answered)

    def ask(
        self, payload: bytes, headers: Mapping[str, str] | None = None
    ) -> asyncio.Future[RawMessage]:
        """Send a request. The future ends with the answer, or with BusUnavailable where nobody listens;
        whoever stops waiting cancels it. While the server is away nothing is sent, and nothing ends."""
        self._count += 1
        token = str(self._count)
        self._bus.publish_nowait(self._subject, payload, headers, reply=f"{self._inbox}.{token}")
        future: asyncio.Future[RawMessage] = asyncio.get_running_loop().create_future()
        self._waiting[token] = future
        future.add_done_callback(lambda _: self._waiting.pop(token, None))
        return future

    def cancel_all(self) -> None:
        """Cancel every future."""
        for future in list(self._waiting.values()):
            future.cancel()

    async def close(self) -> None:
        """Listen no longer."""
        if self._subscription is not None:
            await self._subscription.unsubscribe()

    def _answered(self, message: RawMessage) -> None:
        future = self._waiting.get(message.subject.rpartition(".")[2])
        if future is None or future.done():
            return
        if message.head.startswith(NOBODY_LISTENS):
            future.set_exception(BusUnavailable(reason=f"nobody listens on {self._subject}"))
        else:
            future.set_result(message)
