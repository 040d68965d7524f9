"""Callers that close their connection against a backend that writes, and charges for, the whole answer
all the same: budgets hold, and every dollar has a row."""

import asyncio
import json
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.streams import ensure_streams
from hocket.schemas import subjects
from hocket.schemas.messages import UsageRecord
from support.gateway.gateway_process import BOUND_S, Gateway, running_gateway
from support.gateway.mock_upstream import Upstream, delta, running_upstream

BUDGET_USD = Decimal("0.05")
CALL_USD = Decimal("0.035")
"""What an answer of 35 tokens costs at 1,000 dollars a million."""
CLOSED = 12
PRICES = {"output_usd_per_mtok": "1000"}
COUNTS = {"prompt_tokens": 9, "completion_tokens": 35}
USAGE = {"choices": [], "usage": COUNTS}
WHOLE = {"choices": [{"message": {"content": "tidal"}, "finish_reason": "stop"}], "usage": COUNTS}


class Metering:
    """Answers each call in full once its caller has gone, and charges for it."""

    def __init__(self) -> None:
        self.usd = Decimal(0)
        self.gone: asyncio.Queue[None] = asyncio.Queue()
        self.asked: asyncio.Queue[None] = asyncio.Queue()

    async def answer(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        self.usd += CALL_USD
        self.asked.put_nowait(None)
        if not body.get("stream"):
            await self.gone.get()
            return web.json_response(WHOLE)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await _send(response, delta(content="ti"))
        await self.gone.get()
        for event in (delta(content="dal"), delta("stop"), USAGE):
            await _send(response, event)
        await response.write(b"data: [DONE]\n\n")
        return response


async def _send(response: web.StreamResponse, event: dict[str, Any]) -> None:
    await response.write(f"data: {json.dumps(event)}\n\n".encode())


class World:
    """A gateway, what is behind it, and the records that it books, as they come."""

    def __init__(self, gateway: Gateway, meter: Metering) -> None:
        self.gateway = gateway
        self.meter = meter
        self._records: asyncio.Queue[UsageRecord] = asyncio.Queue()
        self.booked: list[UsageRecord] = []

    async def on_usage(self, message: Any) -> None:
        for line in message.data.splitlines():
            self._records.put_nowait(UsageRecord.model_validate_json(line))

    async def record(self) -> UsageRecord:
        self.booked.append(await asyncio.wait_for(self._records.get(), BOUND_S))
        return self.booked[-1]

    @property
    def booked_usd(self) -> Decimal:
        return sum((one.cost_usd for one in self.booked), Decimal(0))


@pytest.fixture
async def world(nats_url: str, tmp_path: Path) -> AsyncIterator[World]:
    bus = await Bus.connect(nats_url, name="test")
    await ensure_streams(bus)
    meter = Metering()
    async with running_upstream() as upstream:
        upstream.answer = meter.answer
        async with running_gateway(
            nats_url,
            tmp_path,
            _models(upstream),
            budgets={"tenants": {"acme": {"usd": str(BUDGET_USD), "per": "month"}}},
        ) as gateway:
            world = World(gateway, meter)
            await bus.subscribe(subjects.USAGE_SUBJECT, world.on_usage)
            yield world
    await bus.close()


def _models(upstream: Upstream) -> dict[str, Any]:
    backend = {"base_url": upstream.base_url, "model": "m-1", "prices": PRICES}
    return {"writer": {"backends": [backend], "breaker": False, "retries": 0}}


async def ask(
    session: aiohttp.ClientSession, world: World, *, stream: bool, **headers: str
) -> aiohttp.ClientResponse:
    body = {
        "model": "writer",
        "messages": [{"role": "user", "content": "How high is the tide?"}],
        "stream": stream,
        "max_tokens": 40,
    }
    headers["X-Hocket-Tenant"] = "acme"
    return await session.post(f"{world.gateway.url}/chat/completions", json=body, headers=headers)


async def test_a_budget_holds_within_one_call_although_all_streams_are_closed(
    world: World,
) -> None:
    refused = 0
    async with aiohttp.ClientSession() as session:
        for _ in range(CLOSED):
            response = await ask(session, world, stream=True)
            if response.status != 200:
                assert (await response.json())["error"]["code"] == "budget_exceeded"
                refused += 1
                continue
            await response.content.readuntil(b"\n\n")
            response.close()
            await world.gateway.logged("call_read_on")
            world.meter.gone.put_nowait(None)
            record = await world.record()
            assert (record.status, record.output_tokens, record.estimated) == (
                "cancelled",
                35,
                False,
            )
    assert world.meter.usd <= BUDGET_USD + CALL_USD
    assert world.booked_usd == world.meter.usd
    assert refused == CLOSED - len(world.booked)


async def test_a_whole_answer_whose_caller_went_away_is_booked_as_metered(world: World) -> None:
    async with aiohttp.ClientSession() as session:
        asking = asyncio.create_task(ask(session, world, stream=False))
        await asyncio.wait_for(world.meter.asked.get(), BOUND_S)
        asking.cancel()
        await asyncio.wait({asking})
    await world.gateway.logged("call_read_on")
    world.meter.gone.put_nowait(None)
    assert ((await world.record()).status, world.booked_usd) == ("cancelled", CALL_USD)


async def test_a_caller_out_of_time_gets_its_answer_at_once_and_the_cost_is_booked_as_metered(
    world: World,
) -> None:
    async with aiohttp.ClientSession() as session:
        response = await ask(session, world, stream=False, **{"X-Hocket-Timeout-Ms": "400"})
        assert response.status == 504
        assert (await response.json())["error"]["code"] == "backend_timed_out"
    assert world.booked == []
    world.meter.gone.put_nowait(None)
    record = await world.record()
    assert (record.status, record.error_code) == ("error", "backend_timed_out")
    assert world.booked_usd == CALL_USD
