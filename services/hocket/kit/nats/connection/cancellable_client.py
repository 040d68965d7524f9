"""nats-py's client, in which no cancellation is lost.

nats-py waits with `asyncio.wait_for`, which until Python 3.12 forgets a cancellation that comes together
with the answer, and takes a cancellation while it flushes for nothing: a task that was cancelled there
would go on, and whoever waits for its end would wait for ever.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from nats.aio.client import Client
from nats.aio.msg import Msg

T = TypeVar("T")


class CancellableClient(Client):
    """A client whose waits end with CancelledError where their task was cancelled meanwhile."""

    _connecting: asyncio.Task[Any] | None = None
    _cancellations = 0
    """How often the task that connects had been cancelled before."""

    async def connect(self, *arguments: Any, **named: Any) -> None:
        self._connecting = task = _current_task()
        self._cancellations = task.cancelling()
        await _heeding_cancellation(super().connect, *arguments, **named)

    async def _select_next_server(self) -> None:
        # every attempt to connect begins here: where the one before lost a cancellation and failed,
        # as with a wrong password, the client would go on for ever
        task = _current_task()
        if task.cancelling() > (self._cancellations if task is self._connecting else 0):
            raise asyncio.CancelledError
        await super()._select_next_server()

    async def close(self) -> None:
        await _heeding_cancellation(super().close)

    async def request(self, *arguments: Any, **named: Any) -> Msg:
        return await _heeding_cancellation(super().request, *arguments, **named)

    async def flush(self, *arguments: Any, **named: Any) -> None:
        await _heeding_cancellation(super().flush, *arguments, **named)

    async def _flush_pending(self, force_flush: bool = False) -> Any:
        # publishing and (un)subscribing wait here
        return await _heeding_cancellation(super()._flush_pending, force_flush)

    async def _process_pong(self) -> None:
        # the answer to a flush that nobody waits for any more would end the client's reading
        if self._pongs and self._pongs[0].done():
            self._pongs[0] = asyncio.get_running_loop().create_future()
        await super()._process_pong()


async def _heeding_cancellation(
    wait: Callable[..., Awaitable[T]], *arguments: Any, **named: Any
) -> T:
    """Await what the client does; raise CancelledError where the task was cancelled meanwhile."""
    task = _current_task()
    before = task.cancelling()
    result = await wait(*arguments, **named)
    if task.cancelling() > before:
        raise asyncio.CancelledError
    return result


def _current_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None, "only tasks await"
    return task
