"""What nobody meters is estimated, within a tenth in sum of what the engine's own meter has."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from decimal import Decimal
from pathlib import Path

import pytest

from hocket.emulator.configuration import parse
from hocket.emulator.running import RunningEngine, running
from hocket.kit.nats.bus import Bus
from hocket.kit.postgres.database import connect_pool
from hocket.kit.process import clock
from hocket.schemas import subjects
from hocket.schemas.messages import Attribution, CallCancelled, CallRequest, ChatMessage
from support.gateway.gateway_process import call, running_gateway
from support.ledger_rig import drained, running_ledger, until

BOUND_S = 120.0
TOKENS_PER_S = 60
"""What the engine writes, a fraction of what no engine exceeds."""
KNOWN = 48
STOPPED = 60
AT_ONCE = 12
PRICES = {"input_usd_per_mtok": "0.5", "output_usd_per_mtok": "2"}
WITHIN = Decimal("0.1")


def asks(name: str, tokens: int) -> CallRequest:
    return CallRequest(
        call_id=name,
        model="writer",
        messages=(ChatMessage(role="user", content="How often?"),),
        max_tokens=tokens,
        deadline_at_ms=clock.now_ms() + 1_000 * BOUND_S,
        attribution=Attribution(run_id="r1", pipeline="report", node="draft"),
    )


@pytest.fixture
async def engine() -> AsyncIterator[RunningEngine]:
    profile = {
        "model": "llm",
        "max_running": 64,
        "output_tokens": 600,
        "prefill_tokens_per_s": 1e6,
        "decode_tokens_per_s": TOKENS_PER_S,
        "batch_tokens_per_s": 1e6,
    }
    async with running(parse({"engines": [{"port": 0, "profile": profile}]})) as engines:
        yield engines[0]


async def test_whole_answers_that_were_stopped_are_booked_within_a_tenth_of_what_was_written(
    bus: Bus, nats_url: str, database_url: str, tmp_path: Path, engine: RunningEngine
) -> None:
    dice = random.Random(11)
    backend = {
        "name": "e",
        "base_url": f"{engine.url}/v1",
        "model": "llm",
        "limit": 64,
        "prices": PRICES,
        "stops_on_disconnect": True,
    }
    pool = await connect_pool(database_url, size=2, name="test")

    turns = asyncio.Semaphore(AT_ONCE)

    async def whole(number: int) -> None:
        async with turns:
            reply = await call(bus, asks(f"known-{number}", dice.randint(60, 240)))
        assert reply.error is None

    async def stopped(number: int) -> None:
        async with turns:
            await stop_one(number)

    async def stop_one(number: int) -> None:
        name = f"stopped-{number}"
        asking = asyncio.create_task(call(bus, asks(name, 600)))
        after = dice.randint(60, 240)

        async def has_written() -> bool:
            entries = engine.engine.journal.entries()
            return any(one["request_id"] == name for one in entries)

        await until(has_written)
        await asyncio.sleep(after / TOKENS_PER_S)  # what is measured: the engine writes meanwhile
        gone = CallCancelled(call_id=name).model_dump_json().encode()
        bus.publish_nowait(subjects.GATEWAY_CANCEL, gone)
        await asking

    async with AsyncExitStack() as stack, asyncio.timeout(BOUND_S):
        stack.push_async_callback(pool.close)
        await stack.enter_async_context(running_ledger(bus, pool))
        started = running_gateway(nats_url, tmp_path, {"writer": {"backends": [backend]}})
        await stack.enter_async_context(started)
        await asyncio.gather(*map(whole, range(KNOWN)))
        await asyncio.gather(*map(stopped, range(STOPPED)))

        async def all_booked() -> bool:
            await drained(bus)
            rows = await pool.fetchval("SELECT count(*) FROM hocket.usage")
            return bool(rows == KNOWN + STOPPED)

        await until(all_booked)
        booked = await pool.fetchrow(
            "SELECT sum(cost_usd) AS usd, sum(output_tokens) AS tokens FROM hocket.usage"
            " WHERE estimated"
        )
    metered = [
        one for one in engine.engine.journal.entries() if one["request_id"].startswith("stopped")
    ]
    tokens = sum(one["completion_tokens"] for one in metered)
    usd = (sum(one["prompt_tokens"] for one in metered) * Decimal("0.5") + tokens * 2) / 1_000_000
    assert abs(booked["tokens"] - tokens) <= WITHIN * tokens, (booked["tokens"], tokens)
    assert abs(booked["usd"] - usd) <= WITHIN * usd, (booked["usd"], usd)
