"""What a connection may not do: say nothing, or be one too many. Against a real door, over TCP."""

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
