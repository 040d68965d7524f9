"""Where an emulated engine listens."""

import socket

import aiohttp
import pytest

from hocket.emulator.configuration import EmulatorConfig, EngineGroup
from hocket.emulator.core.profile import EngineProfile
from hocket.emulator.running import EnginePortTaken, running
from hocket.emulator.server import EmulatedEngine
from support.shared.ipv6 import needs_ipv6


@pytest.mark.parametrize(
    ("host", "place"),
    [
        ("127.0.0.1", "http://127.0.0.1:"),
        pytest.param("::1", "http://[::1]:", marks=needs_ipv6),
    ],
)
async def test_the_address_of_an_engine_is_one_that_clients_can_use(host: str, place: str) -> None:
    engine = EmulatedEngine(EngineProfile())
    url = await engine.start(host, 0)
    try:
        assert url.startswith(place)
        async with aiohttp.ClientSession() as session, session.get(f"{url}/health") as answer:
            assert answer.status == 200
    finally:
        await engine.stop()


@needs_ipv6
async def test_a_taken_address_is_told_as_clients_write_it() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as taken:
        port = taken.getsockname()[1]
        config = EmulatorConfig(
            host="::1", engines=(EngineGroup(profile=EngineProfile(), port=port),)
        )
        with pytest.raises(EnginePortTaken, match=rf"cannot listen on \[::1\]:{port}: "):
            async with running(config):
                pass
