"""What a connection may not do: say nothing, or be one too many. Against a real door, over TCP."""

import asyncio
from contextlib import suppress

import pytest

from hocket.gateway.api.http import connections
from hocket.gateway.backends.protocol import Chunks
from hocket.schemas.messages import CallRequest, Completion
from support.gateway.door_rig import MODELS, asks, closed, running, status
from support.gateway.routing_rig import BOUND_S, Rig, says


@pytest.mark.parametrize("said", [b"", b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nX-A: "])
async def test_a_connection_without_a_whole_head_is_closed(
    said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.2)
    monkeypatch.setattr(connections, "LOOK_S", 0.1)
    async with running(Rig(MODELS, a=says("tidal"))) as door:
        reader, writer = await door.connect()
        writer.write(said)
        await closed(reader)
        writer.close()


async def test_one_connection_too_many_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 2)
    async with running(Rig(MODELS, a=says("tidal"))) as door:
        one, two, three = [await door.connect() for _ in range(3)]
        await closed(three[0])
        for reader, writer in (one, two):
            writer.write(door.request(asks()))
            assert await status(reader) == 200
        for _, writer in (one, two, three):
            writer.close()


async def test_an_address_leaves_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 8)
    async with running(Rig(MODELS, a=says("tidal"))) as door:
        held = [await door.connect() for _ in range(7)]
        await closed(held[6][0])  # six hold three times what is free then
        other = await door.connect(source="127.0.0.2")
        other[1].write(door.request(asks()))
        assert await status(other[0]) == 200
        reader, writer = held[0]
        writer.write(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        await reader.read()  # to the end: it makes room again
        again = await door.connect()
        again[1].write(door.request(asks()))
        assert await status(again[0]) == 200
        for _, writer in [*held, other, again]:
            writer.close()


async def test_of_answers_that_nobody_reads_the_longest_are_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "MAX_UNREAD_BYTES", 50_000_000)
    monkeypatch.setattr(connections, "LOOK_S", 0.1)
    texts = iter(["x" * 20_000_000, "x" * 10_000_000, "x" * 30_000_000, "x" * 15_000_000])
    answering = says("")

    async def behave(_: CallRequest, __: Chunks | None) -> Completion:
        return Completion(text=next(texts))

    answering.behaviour = behave
    closed, close_for = asyncio.Event(), connections._Connection.close_for

    def noted(connection: connections._Connection, reason: str) -> None:
        close_for(connection, reason)
        closed.set()

    monkeypatch.setattr(connections._Connection, "close_for", noted)
    async with running(Rig(MODELS, a=answering)) as door:
        held = []
        for number in range(4):
            held.append(await door.connect(buffer_bytes=2**10))
            held[-1][1].write(door.request(asks()))
            async with asyncio.timeout(BOUND_S):
                while len(door.rig.records) <= number:  # noqa: ASYNC110 - a list tells nobody
                    await asyncio.sleep(0.01)
        await asyncio.wait_for(closed.wait(), BOUND_S)
        sizes = [await _size(reader) for reader, _ in held]
        for _, writer in held:
            writer.close()
    assert [size > 9_000_000 for size in sizes] == [True, True, False, True]


async def _size(reader: asyncio.StreamReader) -> int:
    """Return how much of an answer comes, until 9 MB or its end."""
    size = 0
    with suppress(ConnectionError):
        async with asyncio.timeout(BOUND_S):
            while size <= 9_000_000 and (part := await reader.read(2**20)):
                size += len(part)
    return size


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        (("10.0.0.7", 1), "10.0.0.7"),
        (("2001:db8::7", 1, 0, 0), "2001:db8::/64"),
        (("2001:db8:0:0:1:2:3:4", 1, 0, 0), "2001:db8::/64"),
        (("2001:db8:0:1::7", 1, 0, 0), "2001:db8:0:1::/64"),
        (("fe80::7%eth0", 1, 0, 2), "fe80::/64"),
        (("::ffff:10.0.0.7", 1, 0, 0), "10.0.0.7"),
        ("", ""),
        (None, ""),
    ],
)
def test_addresses_of_a_network_of_ipv6_count_as_one(peer: object, address: str) -> None:
    transport = asyncio.BaseTransport({"peername": peer})
    assert connections.address_of(transport) == address
