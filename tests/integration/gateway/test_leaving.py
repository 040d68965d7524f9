"""Processes with a door for clients that are asked to stop: not ready from then on, but open until those
who send them requests know it."""

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from hocket.kit.nats.bus import Bus
from support.gateway.gateway_process import running_gateway
from support.gateway.mock_upstream import Upstream, running_upstream
from support.shared.processes import ForkedProcess, started_with_output

BOUND_S = 60.0
DELAY = "HOCKET_DRAIN_DELAY_S"
SHUTTING_DOWN = "the process is shutting down"
ASK = {"model": "writer", "messages": [{"role": "user", "content": "How high is the tide?"}]}


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    async with running_upstream() as running:
        yield running


def models(upstream: Upstream) -> dict[str, Any]:
    return {"writer": {"backends": [{"base_url": upstream.base_url, "model": "m-1"}]}}


async def got(url: str) -> tuple[int, str]:
    """GET over a connection of its own; status 0 if it is refused."""
    try:
        async with aiohttp.request("GET", url) as answer:
            return answer.status, await answer.text()
    except aiohttp.ClientConnectionError:
        return 0, ""


async def asked(url: str) -> int:
    """Ask a model over a connection of its own."""
    async with aiohttp.request("POST", f"{url}/chat/completions", json=ASK) as answer:
        return answer.status


async def until(claim: Callable[[int], bool], url: str) -> str:
    async with asyncio.timeout(BOUND_S):
        while True:
            status, body = await got(url)
            if claim(status):
                return body
            await asyncio.sleep(0.05)


def readiness(folder: Path, name: str) -> str:
    (fact,) = (folder / "run").glob(f"{name}-*.json")
    return f"{json.loads(fact.read_text())['health_url']}/readyz"


async def test_a_gateway_that_is_asked_to_stop_is_not_ready_and_still_answers_new_connections(
    bus: Bus, nats_url: str, upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DELAY, "60")
    async with running_gateway(nats_url, tmp_path, models(upstream)) as gateway:
        health = readiness(tmp_path, "gateway")
        assert (await got(health))[0] == 200
        gateway.process.terminate()
        assert SHUTTING_DOWN in await until(lambda status: status == 503, health)
        for _ in range(3):
            assert await asked(gateway.url) == 200
        gateway.process.send_signal(signal.SIGTERM)  # asked again, it does not wait
        async with asyncio.timeout(BOUND_S):
            assert await gateway.process.wait() == 0


async def test_a_gateway_that_drains_is_not_ready_either(
    bus: Bus, nats_url: str, upstream: Upstream, tmp_path: Path
) -> None:
    """Without a delay, the door closes at once, and calls in flight end."""
    upstream.answer = upstream.hangs
    async with running_gateway(nats_url, tmp_path, models(upstream)) as gateway:
        health = readiness(tmp_path, "gateway")
        call = asyncio.create_task(asked(gateway.url))
        await asyncio.wait_for(upstream.called.wait(), BOUND_S)
        gateway.process.terminate()
        assert SHUTTING_DOWN in await until(lambda status: status == 503, health)
        await until(lambda status: status == 0, f"{gateway.url}/models")
        assert (await got(health))[0] == 503
        upstream.release.set()
        assert await call == 200
        async with asyncio.timeout(BOUND_S):
            assert await gateway.process.wait() == 0


@asynccontextmanager
async def running_rest(
    nats_url: str, database_url: str, folder: Path
) -> AsyncIterator[tuple[ForkedProcess, str]]:
    """Run a process of the REST service; yields it and its URL."""
    environment = {
        **os.environ,
        "NATS_URL": nats_url,
        "DATABASE_URL": database_url,
        "HOCKET_DATA_DIR": str(folder),
        "HOCKET_API_PORT": "0",
    }
    process = await started_with_output("hocket.admin", environment)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(BOUND_S):
            entry: dict[str, Any] = {}
            while entry.get("event") != "api_ready":
                entry = json.loads(await process.stdout.readline())
        yield process, entry["url"]
    finally:
        process.kill()
        await process.wait()


async def test_rest_that_is_asked_to_stop_is_not_ready_at_either_port_and_still_takes_connections(
    bus: Bus, nats_url: str, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DELAY, "2")
    async with running_rest(nats_url, database_url, tmp_path) as (process, url):
        health = readiness(tmp_path, "admin")
        assert [(await got(one))[0] for one in (health, f"{url}/readyz")] == [200, 200]
        began_s = time.monotonic()
        process.terminate()
        assert "shutting down" in await until(lambda status: status == 503, f"{url}/readyz")
        assert SHUTTING_DOWN in await until(lambda status: status == 503, health)
        assert (await got(f"{url}/healthz"))[0] == 200
        async with asyncio.timeout(BOUND_S):
            assert await process.wait() == 0
        assert time.monotonic() - began_s >= 2
        assert (await got(f"{url}/healthz"))[0] == 0


async def test_without_a_delay_rest_ends_at_once(
    bus: Bus, nats_url: str, database_url: str, tmp_path: Path
) -> None:
    async with running_rest(nats_url, database_url, tmp_path) as (process, _url):
        began_s = time.monotonic()
        process.terminate()
        async with asyncio.timeout(BOUND_S):
            assert await process.wait() == 0
        assert time.monotonic() - began_s < 20
