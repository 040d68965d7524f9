"""A dedicated engine that is killed: the same call is served by the other pool, the breaker opens, and
the engine is used again when it is back."""

import asyncio
import itertools
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hocket.kit.nats.bus import Bus
from hocket.kit.process import clock
from hocket.schemas.messages import Attribution, CallReply, CallRequest, ChatMessage
from support.gateway.gateway_process import call, records, running_gateway
from support.gateway.mock_upstream import Upstream, running_upstream

BOUND_S = 60.0
HOCKET = str(Path(sys.executable).with_name("hocket"))
numbers = itertools.count(1)


@pytest.fixture
async def cloud() -> AsyncIterator[Upstream]:
    async with running_upstream() as running:
        yield running


@asynccontextmanager
async def engine(port: int = 0) -> AsyncIterator[tuple[str, "asyncio.subprocess.Process"]]:
    """Run an emulated engine and give its URL; kill it at the end."""
    process = await asyncio.create_subprocess_exec(
        *(HOCKET, "emulate", "--model", "writer", "--port", str(port), "--output-tokens", "1"),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), BOUND_S)
        yield line.decode().split()[-1], process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.wait()


def models(dedicated: str, cloud: Upstream) -> dict[str, Any]:
    backends = [
        {"name": "own", "base_url": dedicated, "model": "writer"},
        {"name": "cloud", "base_url": cloud.base_url, "model": "m-1", "mode": "serverless"},
    ]
    return {"writer": {"mode": "auto", "backends": backends}}


async def asked(bus: Bus) -> CallReply:
    request = CallRequest(
        call_id=f"r1:draft:1:1:{next(numbers)}",
        model="writer",
        messages=(ChatMessage(role="user", content="How often?"),),
        deadline_at_ms=clock.now_ms() + BOUND_S * 1000,
        attribution=Attribution(pipeline="report", run_id="r1", node="draft", step="draft"),
    )
    return await call(bus, request)


async def used_until(bus: Bus, backend: str) -> None:
    """Ask until a backend answers."""
    async with asyncio.timeout(BOUND_S):
        while (await asked(bus)).backend != backend:
            pass


async def test_a_dead_dedicated_engine_spills_within_one_call_and_is_used_again_when_it_is_back(
    bus: Bus, nats_url: str, cloud: Upstream, tmp_path: Path
) -> None:
    async with engine() as (url, process):
        port = int(url.rpartition(":")[2].partition("/")[0])
        async with running_gateway(nats_url, tmp_path, models(url, cloud)) as gateway:
            assert (await asked(bus)).backend == "own"
            process.send_signal(signal.SIGKILL)
            await process.wait()
            replies = [await asked(bus) for _ in range(4)]
            assert [(one.backend, one.error) for one in replies] == [("cloud", None)] * 4
            opened = await gateway.logged("breaker_opened")
            assert opened["backend"] == "own"
            booked = [(one.backend, one.status) for one in await records(bus)]
            async with engine(port):
                await used_until(bus, "own")
                assert (await gateway.logged("breaker_closed"))["backend"] == "own"
    spilled = [("own", "error"), ("cloud", "ok")]
    assert booked[:7] == [("own", "ok"), *spilled * 3]
