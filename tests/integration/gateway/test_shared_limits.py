"""Several gateway processes share the limit of a backend: together they fill it and never exceed it."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from hocket.kit.nats.bus import Bus
from hocket.kit.process import clock
from hocket.schemas.messages import CallRequest, ChatMessage
from support.gateway.gateway_process import Gateway, call, running_gateway
from support.gateway.mock_upstream import Upstream, running_upstream

BOUND_S = 60.0
LIMIT = 6
CALLS = 48


class Counted:
    """Calls at an upstream that hold until they are let go, and the most there ever were."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self.now = 0
        self.most = 0
        self._changed = asyncio.Event()
        upstream.answer = self.holds

    async def holds(self, request: web.Request, body: dict[str, Any]) -> web.Response:
        self._count(1)
        try:
            return await self.upstream.hangs(request, body)
        finally:
            self._count(-1)

    def _count(self, more: int) -> None:
        self.now += more
        self.most = max(self.most, self.now)
        self._changed.set()

    async def until(self, holds: Callable[[int], bool]) -> None:
        async with asyncio.timeout(BOUND_S):
            while not holds(self.now):
                self._changed.clear()
                await self._changed.wait()


@pytest.fixture
async def counted() -> AsyncIterator[Counted]:
    async with running_upstream() as upstream:
        yield Counted(upstream)


def request(number: int) -> CallRequest:
    return CallRequest(
        call_id=f"c{number}",
        model="writer",
        messages=(ChatMessage(role="user", content="How often?"),),
        deadline_at_ms=clock.now_ms() + 2 * BOUND_S * 1000,
    )


async def test_three_gateways_fill_a_limit_together_and_the_share_of_a_killed_one_returns(
    bus: Bus, nats_url: str, counted: Counted, tmp_path: Path
) -> None:
    backend = {"name": "b", "base_url": counted.upstream.base_url, "model": "m", "limit": LIMIT}
    models = {"writer": {"backends": [backend]}}
    async with AsyncExitStack() as running:
        gateways: list[Gateway] = []
        for name in ("one", "two", "three"):
            folder = tmp_path / name
            folder.mkdir()
            gateway = running_gateway(nats_url, folder, models)
            gateways.append(await running.enter_async_context(gateway))
        asking = [asyncio.create_task(call(bus, request(n))) for n in range(CALLS)]
        await counted.until(lambda calls: calls == LIMIT)
        os.kill(gateways[0].process.pid, signal.SIGKILL)
        await gateways[0].process.wait()
        await counted.until(lambda calls: calls < LIMIT)
        await counted.until(lambda calls: calls == LIMIT)
        counted.upstream.release.set()
        await counted.until(lambda calls: calls == 0)
        answers = asyncio.as_completed(asking, timeout=BOUND_S)
        texts = [(await next(answers)).text for _ in range(LIMIT)]
        for one in asking:  # the killed one's are not answered
            one.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
    assert texts == ["tidal"] * LIMIT
    assert counted.most == LIMIT


async def test_a_gateway_that_starts_gets_places_of_one_that_had_them_all(
    bus: Bus, nats_url: str, counted: Counted, tmp_path: Path
) -> None:
    backend = {"name": "b", "base_url": counted.upstream.base_url, "model": "m", "limit": 1}
    models = {"writer": {"backends": [backend]}}
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    counted.upstream.release.set()
    async with running_gateway(nats_url, tmp_path / "one", models):
        assert (await call(bus, request(-1))).text == "tidal"
        async with running_gateway(nats_url, tmp_path / "two", models) as second:
            replies = await asyncio.gather(*(call(bus, request(n)) for n in range(24)))
            second.process.terminate()
            await second.process.wait()
        last = await call(bus, request(99))
    assert [reply.text for reply in (*replies, last)] == ["tidal"] * 25
    assert counted.most == 1
