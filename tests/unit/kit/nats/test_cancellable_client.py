"""A task that is cancelled while nats-py's client waits ends."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from nats.aio.transport import TcpTransport
from nats.errors import AuthorizationError

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


async def test_a_cancellation_that_an_attempt_to_connect_loses_ends_the_next_one() -> None:
    """The server refuses the password at the very moment in which the time to connect is over."""
    attempts = 0

    async def refused() -> None:
        nonlocal attempts
        attempts += 1
        assert attempts < 5, "it goes on for ever"
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:  # as `wait_for` does when the answer has come as well
            raise AuthorizationError from None

    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        url = f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        client = CancellableClient()
        client._process_connect_init = refused  # type: ignore[method-assign]
        connecting = asyncio.create_task(
            client.connect(url, max_reconnect_attempts=-1, reconnect_time_wait=0)
        )
        while not attempts:  # noqa: ASYNC110
            await asyncio.sleep(0)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
    assert attempts == 1


class RefusingTransport(TcpTransport):
    """A connection that is refused at the very moment in which the time to connect is over."""

    attempts = 0

    async def connect(self, *_: object, **_named: object) -> None:
        self.attempts += 1
        if self.attempts > 1:
            raise asyncio.CancelledError("it would go on for ever")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:  # as `wait_for` does when the connection has failed as well
            raise ConnectionRefusedError from None

    def __bool__(self) -> bool:
        return True


async def test_a_cancellation_that_is_lost_while_nobody_listens_ends_the_next_attempt() -> None:
    client = CancellableClient()
    client._transport = transport = RefusingTransport()  # type: ignore[no-untyped-call]
    connecting = asyncio.create_task(
        client.connect("nats://127.0.0.1:1", max_reconnect_attempts=-1, reconnect_time_wait=0)
    )
    await until_it_waits()
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    assert transport.attempts == 1
