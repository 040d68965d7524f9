"""What a connection may not do: say nothing, or be one too many. Against a real door, over TCP."""

import asyncio

import pytest

from hocket.gateway.api.http import connections
from support.gateway.door_rig import MODELS, asks, closed, running, status
from support.gateway.routing_rig import Rig, says


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


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        (("10.0.0.7", 1), "10.0.0.7"),
        (("2001:db8::7", 1, 0, 0), "2001:db8::/64"),
        (("2001:db8:0:0:1:2:3:4", 1, 0, 0), "2001:db8::/64"),
        (("2001:db8:0:1::7", 1, 0, 0), "2001:db8:0:1::/64"),
        (("fe80::7%eth0", 1, 0, 2), "fe80::/64"),
        ("", ""),
        (None, ""),
    ],
)
def test_addresses_of_a_network_of_ipv6_count_as_one(peer: object, address: str) -> None:
    transport = asyncio.BaseTransport({"peername": peer})
    assert connections.address_of(transport) == address
