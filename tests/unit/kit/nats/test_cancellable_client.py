"""A task that is cancelled while nats-py's client waits ends."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from hocket.kit.nats.connection.cancellable_client import CancellableClient


@pytest.fixture
async def client() -> AsyncIterator[CancellableClient]:
    """A connected client whose flusher has more to do than it takes."""
    client = CancellableClient()
    client._status = CancellableClient.CONNECTED
    client._flusher_task = asyncio.create_task(asyncio.Event().wait())  # type: ignore[assignment]
    client._flush_queue = asyncio.Queue(1)
    client._flush_queue.put_nowait(asyncio.get_running_loop().create_future())
    yield client
    client._flusher_task.cancel()


async def until_it_waits() -> None:
    """Let a task go on until it waits for something that does not come."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_subscriber_that_is_cancelled_while_it_flushes_ends(
    client: CancellableClient,
) -> None:
    task = asyncio.create_task(client.subscribe("a.b"))
    await until_it_waits()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_request_whose_answer_comes_with_a_cancellation_is_cancelled() -> None:
    client = CancellableClient()
    client._status = CancellableClient.CONNECTED
    runs: asyncio.Task[bool] = asyncio.create_task(asyncio.Event().wait())
    client._reading_task = client._flusher_task = runs  # type: ignore[assignment]
    pongs: list[asyncio.Future[bool]] = []

    async def sent(future: asyncio.Future[bool]) -> None:
        pongs.append(future)

    client._send_ping = sent  # type: ignore[method-assign,assignment]
    task = asyncio.create_task(client.flush())
    await until_it_waits()
    pongs[0].set_result(True)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    runs.cancel()
