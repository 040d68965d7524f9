"""Answers that do not wait for a disk: whoever is killed behind them, every call that was answered is
booked, with its price.

NATS is stopped while the answers go out, so that nothing that they cost can have been stored."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from hocket.kit.embedded import EmbeddedServers
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.streams import ensure_streams
from hocket.schemas import subjects
from support.gateway.gateway_process import (
    BOUND_MS,
    BOUND_S,
    Gateway,
    opened,
    records,
    running_gateway,
)
from support.gateway.mock_upstream import Upstream, running_upstream

CALLS = 40
CALL_USD = Decimal("0.000256")
"""100 tokens at 2 dollars a million, 20 cached ones at none, 7 at 8."""


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    async with running_upstream() as running:
        running.answer = running.hangs
        yield running


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[EmbeddedServers]:
    async with EmbeddedServers(tmp_path / "servers", postgres=False) as running:
        yield running


def models(upstream: Upstream) -> dict[str, Any]:
    prices = {"input_usd_per_mtok": "2", "cached_usd_per_mtok": "0", "output_usd_per_mtok": "8"}
    backend = {"name": "b", "base_url": upstream.base_url, "model": "m", "prices": prices}
    return {"writer": {"backends": [backend]}}


async def asked(session: aiohttp.ClientSession, gateway: Gateway) -> str:
    """Make a call and return its id, when it is answered."""
    body = {"model": "writer", "messages": [{"role": "user", "content": "How often?"}]}
    async with session.post(f"{gateway.url}/chat/completions", json=body) as response:
        answer = await response.json()
        assert answer["choices"][0]["message"]["content"] == "tidal", answer
        return response.headers["x-request-id"]


async def all_announced(bus: Bus) -> None:
    """Wait until every call is announced, and the gateway has heard that it is."""
    async with asyncio.timeout(BOUND_S):
        while len(await opened(bus)) < CALLS:  # noqa: ASYNC110 - the state of another process
            await asyncio.sleep(0.01)
    await bus.request(subjects.GATEWAY_MODELS, b"", timeout_ms=BOUND_MS)


async def booked(bus: Bus) -> dict[str, Decimal]:
    """Return what was booked for each call, when all are."""
    async with asyncio.timeout(BOUND_S):
        while True:
            found = {one.call_id: one.cost_usd for one in await records(bus)}
            if len(found) >= CALLS:
                return found
            await asyncio.sleep(0.01)


async def killed(gateway: Gateway) -> None:
    os.kill(gateway.process.pid, signal.SIGKILL)
    await gateway.process.wait()


@pytest.mark.parametrize("victims", ["gateway", "nats", "gateway and nats"])
async def test_what_was_answered_is_booked_after_the_kill_of(
    victims: str, servers: EmbeddedServers, upstream: Upstream, tmp_path: Path
) -> None:
    bus = await Bus.connect(servers.nats_url, name="test")
    await ensure_streams(bus)
    section = models(upstream)
    async with running_gateway(
        servers.nats_url, tmp_path, section, answers_after="journal"
    ) as first:
        async with aiohttp.ClientSession() as session:
            asking = [asyncio.create_task(asked(session, first)) for _ in range(CALLS)]
            await all_announced(bus)
            os.kill(servers.nats.pid, signal.SIGSTOP)
            upstream.release.set()
            answered = await asyncio.wait_for(asyncio.gather(*asking), BOUND_S)
        if "gateway" in victims:
            await killed(first)
        if "nats" in victims:
            await servers.nats.kill()
            await servers.nats.wait_ready()
        else:
            os.kill(servers.nats.pid, signal.SIGCONT)
        if "gateway" in victims:
            async with running_gateway(
                servers.nats_url, tmp_path, section, answers_after="journal"
            ):
                found = await booked(bus)
        else:
            found = await booked(bus)
    await bus.close()
    assert found == dict.fromkeys(answered, CALL_USD)


async def test_a_gateway_that_stops_leaves_no_journal(
    servers: EmbeddedServers, upstream: Upstream, tmp_path: Path
) -> None:
    upstream.answer = upstream.completes
    bus = await Bus.connect(servers.nats_url, name="test")
    await ensure_streams(bus)
    async with running_gateway(
        servers.nats_url, tmp_path, models(upstream), answers_after="journal"
    ) as gateway:
        async with aiohttp.ClientSession() as session:
            answered = await asyncio.gather(*(asked(session, gateway) for _ in range(CALLS)))
        gateway.process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(gateway.process.wait(), BOUND_S)
    found = await records(bus)
    await bus.close()
    assert sorted(one.call_id for one in found) == sorted(answered)
    assert list((tmp_path / "usage").iterdir()) == []
