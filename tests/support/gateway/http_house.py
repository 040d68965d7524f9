"""A gateway with an open HTTP door, in front of an emulated engine (tools, embeddings, streams) and a
scripted upstream.

`house`, `upstream` and `client` are fixtures for modules that import them.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from openai import AsyncOpenAI

from hocket.emulator.configuration import parse
from hocket.emulator.running import running
from hocket.kit.embedded import EmbeddedServers
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.streams import ensure_streams
from hocket.schemas.messages import UsageRecord
from support.gateway.gateway_process import BOUND_S, Gateway, records, running_gateway
from support.gateway.mock_upstream import Upstream, running_upstream

PRICES = {"input_usd_per_mtok": "1", "output_usd_per_mtok": "2"}
STOPS: Any = {"prices": PRICES, "stops_on_disconnect": True}


@dataclass
class House:
    """A gateway and what is behind it."""

    gateway: Gateway
    upstream: Upstream
    bus: Bus

    def client(self, **options: Any) -> AsyncOpenAI:
        options = {"api_key": "none needed", "max_retries": 0, **options}
        return AsyncOpenAI(base_url=self.gateway.url, **options)

    async def booked(self, run_id: str) -> UsageRecord:
        """Return the only record of a run; it is stored before the answer is sent."""
        found = [one for one in await records(self.bus) if one.attribution.run_id == run_id]
        assert len(found) == 1, found
        return found[0]

    async def eventually_booked(self, run_id: str) -> UsageRecord:
        """Return the record of a run whose caller did not wait for the answer."""
        async with asyncio.timeout(BOUND_S):
            while True:
                for record in await records(self.bus):
                    if record.attribution.run_id == run_id:
                        return record


def models(upstream: Upstream, engine_url: str) -> dict[str, Any]:
    scripted = {"name": "scripted", "base_url": upstream.base_url, "model": "m-1", **STOPS}
    engine = {"base_url": f"{engine_url}/v1", "model": "engine", **STOPS}
    never = {"breaker": False, "retries": 0}
    return {
        "scripted": {"backends": [scripted], **never},
        "guarded": {"backends": [scripted | {"name": "first"}, engine | {"name": "spare"}]},
        "engine": {"backends": [engine]},
        "claude": {"backends": [{**engine, "kind": "anthropic", "base_url": engine_url}]},
        "tiered": {"backends": [scripted | {"name": "tiered", "pass_fields": ["service_tier"]}]},
    }


@pytest.fixture(scope="module")
async def house(
    servers: EmbeddedServers, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[House]:
    bus = await Bus.connect(servers.nats_url, name="test")
    await ensure_streams(bus)
    fast = {"prefill_tokens_per_s": 1e6, "decode_tokens_per_s": 2_000, "batch_tokens_per_s": 1e6}
    engines = parse({"engines": [{"port": 0, "profile": {"model": "engine", **fast}}]})
    async with (
        running_upstream() as upstream,
        running(engines) as (engine,),
        running_gateway(
            servers.nats_url, tmp_path_factory.mktemp("gateway"), models(upstream, engine.url)
        ) as gateway,
    ):
        yield House(gateway, upstream, bus)
    for stream in await bus.js.streams_info():
        assert stream.config.name is not None
        await bus.js.delete_stream(stream.config.name)
    await bus.close()


@pytest.fixture
async def upstream(house: House) -> Upstream:
    """The scripted upstream, reset as if it had never been called."""
    house.upstream.answer = house.upstream.completes
    for event in (house.upstream.called, house.upstream.release, house.upstream.cancelled):
        event.clear()
    house.upstream.bodies.clear()
    return house.upstream


@pytest.fixture
async def client(house: House) -> AsyncIterator[AsyncOpenAI]:
    async with house.client() as client:
        yield client
