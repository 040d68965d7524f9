"""nats-py's client, made to lose no cancellation and to always close completely.

nats-py waits with `asyncio.wait_for`, which before Python 3.12 can lose a cancellation that arrives
together with the answer, and it ignores a cancellation while it flushes: the cancelled task would carry
on, and a caller that waits for it to end would wait for ever.

In nats-py, closing stops half way if its task is cancelled or its last bytes cannot be written, and a
second `close` does nothing: the socket and the tasks of the subscriptions would remain.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import structlog
from nats.aio.client import Client, Srv
from nats.aio.msg import Msg

from hocket.kit.nats.connection.lenient_client import LenientClient

log = structlog.get_logger(__name__)

T = TypeVar("T")


class CancellableClient(LenientClient):
    """A client whose waits raise CancelledError if their task was cancelled in the meantime."""

    _connecting: asyncio.Task[Any] | None = None
    _cancellations = 0
    """How often the task that connects had been cancelled before."""

    async def connect(self, *arguments: Any, **named: Any) -> None:
        self._connecting = task = _current_task()
        self._cancellations = task.cancelling()
        await _heeding_cancellation(super().connect, *arguments, **named)

    async def _connect_to_server(self, s: Srv) -> None:
        # every attempt to connect begins here: if the previous one lost a cancellation and failed, for
        # example because nobody listens or the password is wrong, the client would go on for ever
        task = _current_task()
        if task.cancelling() > (self._cancellations if task is self._connecting else 0):
            raise asyncio.CancelledError
        await super()._connect_to_server(s)

    async def close(self) -> None:
        await _heeding_cancellation(super().close)

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        if self.is_closed:  # by another task, which may not have finished
            await super()._close(status, do_cbs)
            return
        try:
            await super()._close(status, do_cbs)
        except OSError as error:
            log.debug("bus_closed_early", error=repr(error))
        finally:
            let_go(self)

    async def request(self, *arguments: Any, **named: Any) -> Msg:
        return await _heeding_cancellation(super().request, *arguments, **named)

    async def flush(self, *arguments: Any, **named: Any) -> None:
        await _heeding_cancellation(super().flush, *arguments, **named)

    async def _flush_pending(self, force_flush: bool = False) -> Any:
        # publishing and (un)subscribing wait here
        return await _heeding_cancellation(super()._flush_pending, force_flush)

    async def _process_pong(self) -> None:
        # the answer to a flush that nobody waits for any more would end the client's read loop
        if self._pongs and self._pongs[0].done():
            self._pongs[0] = asyncio.get_running_loop().create_future()
        await super()._process_pong()


def let_go(client: Client) -> None:
    """Release what a closed client still holds: its socket and the tasks of its subscriptions."""
    for subscription in client._subs.values():
        task = subscription._wait_for_msgs_task
        if task is not None and not task.done():
            task.cancel()
    client._subs.clear()
    if client._transport is not None:
        client._transport.close()  # type: ignore[no-untyped-call]


async def _heeding_cancellation(
    wait: Callable[..., Awaitable[T]], *arguments: Any, **named: Any
) -> T:
    """Await an operation of the client; raise CancelledError if the task was cancelled in the
    meantime."""
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
