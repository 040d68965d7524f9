"""The bus when things go wrong: servers that are away, hang or complain, streams that refuse, callbacks
that raise."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing

import pytest
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from structlog.testing import capture_logs

from hocket.kit.embedded import EmbeddedServers
from hocket.kit.embedded.ports import LOOPBACK
from hocket.kit.nats import bus as bus_module
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.connection import connection, durable_publisher
from hocket.kit.nats.connection.cancellable_client import CancellableClient
from hocket.kit.nats.errors import BusUnavailable, PublishRefused
from hocket.schemas.errors import PayloadTooLarge

BOUND_S = 20
STREAM = "ONE"
SUBJECT = "one.place"


@pytest.fixture
async def bus(nats_url: str) -> AsyncIterator[Bus]:
    bus = await Bus.connect(nats_url, name="test")
    yield bus
    await bus.close()


@pytest.fixture
async def stream(bus: Bus) -> str:
    """The subject of a work queue with a place for one message."""
    config = {
        "name": STREAM,
        "subjects": [SUBJECT],
        "retention": "workqueue",
        "discard": "new",
        "max_msgs": 1,
    }
    answer = await bus.api(f"STREAM.CREATE.{STREAM}", config, timeout_ms=5_000)
    assert "error" not in answer
    return SUBJECT


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not condition():  # noqa: ASYNC110 (states of the client, which tells nobody)
            await asyncio.sleep(0.01)


def lost_from_now(bus: Bus) -> Callable[[], bool]:
    """Whether the connection was lost after this call: it may be back before anybody looks."""
    back = asyncio.Event()
    bus.on_reconnect.append(back.set)
    return lambda: back.is_set() or not bus.connected


def answering(bus: Bus) -> Callable[[Msg], Awaitable[None]]:
    async def answer(message: Msg) -> None:
        bus.publish_nowait(message.reply, b"yes")

    return answer


class Wire:
    """A TCP proxy before NATS that notes what clients send and can hold it back."""

    def __init__(self, server_port: int) -> None:
        self.sent = bytearray()
        self.url = ""
        self._server_port = server_port
        self._open = asyncio.Event()
        self._open.set()
        self._pumps: list[asyncio.Task[None]] = []

    @classmethod
    @asynccontextmanager
    async def to(cls, nats_url: str) -> AsyncIterator["Wire"]:
        wire = cls(int(nats_url.rsplit(":", 1)[1]))
        server = await asyncio.start_server(wire._connected, LOOPBACK, 0)
        wire.url = f"{nats_url.rsplit(':', 1)[0]}:{server.sockets[0].getsockname()[1]}"
        try:
            yield wire
        finally:
            server.close()
            for pump in wire._pumps:
                pump.cancel()
            await asyncio.wait(wire._pumps)

    def hold(self) -> None:
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection(LOOPBACK, self._server_port)
        self._pumps += [
            asyncio.create_task(self._forward(reader, forth)),
            asyncio.create_task(self._return(back, writer)),
        ]

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer):
            while data := await reader.read(65_536):
                await self._open.wait()
                self.sent += data
                writer.write(data)

    async def _return(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer):
            while data := await reader.read(65_536):
                writer.write(data)


async def test_connecting_to_nobody_ends_and_says_where_without_the_password(
    unused_tcp_port: int,
) -> None:
    url = f"nats://me:secret@{LOOPBACK}:{unused_tcp_port}"
    with pytest.raises(
        BusUnavailable, match=f"{LOOPBACK}:{unused_tcp_port}: .*refused|failed"
    ) as e:
        await asyncio.wait_for(Bus.connect(url, name="test", timeout_s=0.3), BOUND_S)
    assert "secret" not in str(e.value)


async def test_a_complaint_of_the_server_does_not_end_the_connection(bus: Bus, stream: str) -> None:
    lost = lost_from_now(bus)
    bus._writer.write(b"THIS IS NO COMMAND\r\n")
    await until(lost)
    assert (await asyncio.wait_for(bus.publish_durable(stream, b"x"), BOUND_S)).seq == 1


async def test_a_server_that_hangs_counts_as_away_and_gets_the_post_when_it_goes_on(
    servers: EmbeddedServers, nats_url: str, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "PING_S", 0.1)
    bus = await Bus.connect(nats_url, name="hang")
    os.kill(servers.nats.pid, signal.SIGSTOP)
    try:
        # more than the sockets' buffers hold: an orderly close would wait for ever
        for _ in range(40):
            bus.publish_nowait("nobody", b"x" * 1_000_000)
        post = bus.publish_durable(stream, b"x")
        with capture_logs() as logs:
            await until(lambda: "bus_away" in [entry["event"] for entry in logs])
    finally:
        os.kill(servers.nats.pid, signal.SIGCONT)
    assert (await asyncio.wait_for(post, BOUND_S)).seq == 1
    await bus.close()


async def test_a_post_made_while_the_server_is_away_is_stored_when_it_is_back(
    bus: Bus, stream: str, servers: EmbeddedServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable_publisher, "ACK_TIMEOUT_S", 3_600)
    lost = lost_from_now(bus)
    os.kill(servers.nats.pid, signal.SIGKILL)
    await until(lost)
    stored = await asyncio.wait_for(bus.publish_durable(stream, b"x"), BOUND_S)
    assert (stored.seq, stored.repeated) == (1, False)
    await servers.nats.wait_ready()


async def test_every_reconnect_callback_is_called_though_one_raises(
    bus: Bus, servers: EmbeddedServers
) -> None:
    called = asyncio.Event()
    bus.on_reconnect.append(lambda: print(1 / 0))
    bus.on_reconnect.append(called.set)
    with capture_logs() as logs:
        await servers.nats.kill()
        await asyncio.wait_for(called.wait(), BOUND_S)
    assert [entry["event"] for entry in logs].count("bus_reconnect_callback_failed") == 1


@pytest.mark.parametrize("subject", ["a b", "", "a\r\nPUB b 1", "a\tb", " a"])
async def test_what_is_no_subject_is_refused_and_others_go_on(
    bus: Bus, stream: str, subject: str
) -> None:
    with pytest.raises(PublishRefused, match="not a subject"):
        bus.publish_nowait(subject, b"x")
    with pytest.raises(PublishRefused, match="not a subject"):
        bus.publish_durable(subject, b"x")
    assert bus.publisher.unacknowledged == 0
    await bus.publish(stream, b"x", timeout_ms=5_000)


async def test_headers_count_towards_the_servers_limit(bus: Bus, stream: str) -> None:
    room = bus.nc.max_payload - bus_module.RESERVE_BYTES
    with pytest.raises(PayloadTooLarge):
        bus.publish_durable(stream, b"x" * (room - 100), headers={"a": "b" * 100})
    with pytest.raises(PayloadTooLarge):
        bus.publish_nowait("nobody", b"x" * bus.nc.max_payload, headers={"a": "b"})
    await bus.publish(stream, b"x" * (room - 200), headers={"a": "b" * 10}, timeout_ms=5_000)


async def test_a_post_to_a_full_queue_waits_for_room_and_its_publisher_is_told_why(
    bus: Bus, stream: str
) -> None:
    await bus.publish(stream, b"1", timeout_ms=5_000)
    with capture_logs() as logs, pytest.raises(BusUnavailable, match="maximum messages exceeded"):
        await bus.publish(stream, b"2", timeout_ms=300)
    assert "bus_post_refused_for_now" in [entry["event"] for entry in logs]
    waiting = bus.publish_durable(stream, b"3")
    await bus.js.purge_stream(STREAM)
    assert not (await asyncio.wait_for(waiting, BOUND_S)).duplicate


async def test_a_post_is_kept_until_its_stream_is_there(bus: Bus) -> None:
    post = bus.publish_durable("later.place", b"x")
    await bus.nc.flush()
    answer = await bus.api(
        "STREAM.CREATE.LATER", {"name": "LATER", "subjects": ["later.*"]}, timeout_ms=5_000
    )
    assert "error" not in answer
    stored = await asyncio.wait_for(post, BOUND_S)
    assert (stored.stream, stored.repeated) == ("LATER", True)


async def test_what_a_stream_can_never_take_ends_with_the_reason(bus: Bus) -> None:
    config = {"name": "TINY", "subjects": ["tiny"], "max_msg_size": 8}
    await bus.api("STREAM.CREATE.TINY", config, timeout_ms=5_000)
    with pytest.raises(PublishRefused, match="size exceeds maximum"):
        await bus.publish("tiny", b"x" * 100, timeout_ms=5_000)


async def test_the_same_message_id_is_stored_once(bus: Bus) -> None:
    await bus.api("STREAM.CREATE.IDS", {"name": "IDS", "subjects": ["ids"]}, timeout_ms=5_000)
    first = await bus.publish("ids", b"x", msg_id="m")
    again = await bus.publish("ids", b"y", msg_id="m")
    other, another = await asyncio.gather(
        bus.publish_durable("ids", b"x"), bus.publish_durable("ids", b"x")
    )
    assert (again.seq, again.duplicate, again.repeated) == (first.seq, True, False)
    assert not other.duplicate
    assert not another.duplicate


async def test_room_waits_for_acknowledgements(nats_url: str, bus: Bus, stream: str) -> None:
    small = await Bus.connect(nats_url, name="small", window=1)
    post = small.publish_durable(stream, b"x")
    await asyncio.wait_for(small.wait_for_capacity(), BOUND_S)
    assert post.done()
    await small.close()


async def test_what_a_callback_raises_is_logged_and_the_next_message_handled(bus: Bus) -> None:
    handled = asyncio.Event()

    async def callback(message: Msg) -> None:
        if message.data == b"bad":
            raise ConnectionError("in my callback")
        handled.set()

    with capture_logs() as logs:
        await bus.subscribe("here", callback)
        bus.publish_nowait("here", b"bad")
        bus.publish_nowait("here", b"good")
        await asyncio.wait_for(handled.wait(), BOUND_S)
    assert [entry["event"] for entry in logs] == ["bus_callback_failed"]


async def test_when_subscribe_returns_the_server_has_read_it(nats_url: str, bus: Bus) -> None:
    async with Wire.to(nats_url) as wire:
        slow = await Bus.connect(wire.url, name="slow")
        wire.hold()
        subscribing = asyncio.create_task(slow.subscribe("here", answering(slow)))
        await bus.nc.flush()
        assert not subscribing.done()
        wire.release()
        await asyncio.wait_for(subscribing, BOUND_S)
        assert wire.sent.rindex(b"SUB here") < wire.sent.rindex(b"PING")
        assert (await bus.request("here", b"", timeout_ms=5_000)).data == b"yes"
        await slow.close()


async def test_an_answer_to_a_flush_that_was_given_up_does_not_end_the_connection(
    nats_url: str, stream: str
) -> None:
    async with Wire.to(nats_url) as wire:
        bus = await Bus.connect(wire.url, name="impatient")
        wire.hold()
        flushing = asyncio.create_task(bus.nc.flush())
        await until(lambda: len(bus.nc._pongs) == 1)
        flushing.cancel()
        await asyncio.wait({flushing})
        wire.release()
        assert (await asyncio.wait_for(bus.publish_durable(stream, b"x"), BOUND_S)).seq == 1
        await bus.close()


async def test_a_cancellation_that_comes_with_the_answer_is_not_forgotten(nats_url: str) -> None:
    async with Wire.to(nats_url) as wire:
        bus = await Bus.connect(wire.url, name="cancelled")
        wire.hold()
        flushing = asyncio.create_task(bus.nc.flush())
        await until(lambda: len(bus.nc._pongs) == 1)
        bus.nc._pongs.pop().set_result(True)
        flushing.cancel()
        await asyncio.wait({flushing})
        assert flushing.cancelled()
        wire.release()
        await bus.close()


async def test_closing_waits_for_acknowledgements(nats_url: str, bus: Bus) -> None:
    in_memory = {"name": "IDS", "subjects": ["ids"], "storage": "memory"}  # 500 flushes take long
    await bus.api("STREAM.CREATE.IDS", in_memory, timeout_ms=5_000)
    ending = await Bus.connect(nats_url, name="ending")
    posts = [ending.publish_durable("ids", b"x") for _ in range(500)]
    await ending.close()
    assert sorted(post.result().seq for post in posts) == list(range(1, 501))


async def test_who_waits_for_a_post_hears_that_the_bus_was_closed(
    nats_url: str, bus: Bus, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus_module, "CLOSE_TIMEOUT_S", 0.2)
    await bus.publish(stream, b"the only place")
    ending = await Bus.connect(nats_url, name="ending")
    post = ending.publish_durable(stream, b"x")
    await ending.close()
    with pytest.raises(BusUnavailable, match="closed"):
        await post
    with pytest.raises(BusUnavailable, match="closed"):
        ending.publish_durable(stream, b"x")


@pytest.mark.parametrize(
    ("lost", "ping_s"),
    [("_transport.read", 3_600), ("_process_connect_init", 3_600), ("_send_ping", 0.1)],
)
async def test_a_client_without_memory_for_a_moment_comes_back_by_itself(
    servers: EmbeddedServers,
    nats_url: str,
    stream: str,
    lost: str,
    ping_s: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What nats-py does not foresee ends its reading, its pings and its reconnects for good."""
    monkeypatch.setattr(connection, "PING_S", ping_s)
    bus = await Bus.connect(nats_url, name="short")
    came_back, failed = asyncio.Event(), asyncio.Event()
    bus.on_reconnect.append(came_back.set)
    owner, _, name = lost.rpartition(".")
    place = getattr(bus.nc, owner) if owner else bus.nc
    whole = getattr(place, name)

    async def without_memory(*arguments: object) -> object:
        if failed.is_set():
            return await whole(*arguments)
        failed.set()
        raise MemoryError

    monkeypatch.setattr(place, name, without_memory)
    if lost == "_process_connect_init":
        await servers.nats.kill()
    else:
        bus.publish_nowait(bus.publisher.inbox, b"")
    try:
        await asyncio.wait_for(came_back.wait(), BOUND_S)
        assert failed.is_set()
        await bus.publish(stream, b"x", timeout_ms=5_000)
        assert (await bus.request("$JS.API.INFO", b"", timeout_ms=5_000)).data
    finally:
        await bus.close()


async def test_a_post_that_servers_have_not_agreed_on_yet_is_posted_until_it_is_stored(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable_publisher, "REFUSED_RETRY_S", 0.01)
    reason = "duplicate message id is in process"
    in_process = {"error": {"code": 409, "err_code": 10_158, "description": reason}}
    answers = [{"stream": "A", **in_process}, {"stream": "A", "seq": 7, "duplicate": True}]

    async def answer(message: Msg) -> None:
        bus.publish_nowait(message.reply, json.dumps(answers.pop(0)).encode())

    await bus.subscribe("agreed.later", answer)
    ack = await asyncio.wait_for(bus.publish_durable("agreed.later", b"once"), BOUND_S)
    assert (ack.seq, ack.repeated, answers) == (7, True, [])


@pytest.fixture
async def client(nats_url: str) -> CancellableClient:
    """A client with a subscription, and bytes that are not written yet."""
    client = CancellableClient()
    await client.connect(nats_url, pending_size=1024 * 1024)
    await client.subscribe("one.place", cb=nothing)
    await client.flush()
    client._pending.append(b"PING\r\n")
    client._pending_data_size += 6
    return client


async def nothing(_message: Msg) -> None:
    """Take a message."""


async def test_a_close_that_is_cancelled_leaves_nothing_open(client: CancellableClient) -> None:
    (subscription,) = client._subs.values()
    closing_task = asyncio.create_task(client.close())
    await asyncio.sleep(0)
    closing_task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing_task
    await until(lambda: has_let_go(client, subscription))


async def test_a_close_whose_last_bytes_cannot_be_written_leaves_nothing_open(
    client: CancellableClient,
) -> None:
    (subscription,) = client._subs.values()
    assert client._transport is not None
    client._transport._io_writer.transport.abort()
    await client.close()
    await until(lambda: has_let_go(client, subscription))


def has_let_go(client: CancellableClient, subscription: Subscription) -> bool:
    assert client._transport is not None
    assert subscription._wait_for_msgs_task is not None
    is_closing: bool = client._transport._io_writer.transport.is_closing()
    return is_closing and subscription._wait_for_msgs_task.done()
