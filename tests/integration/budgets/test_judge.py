"""The emulator's own meter judges the ledger: over retries, hedges, streams, cancelled calls and a
killed gateway, what the engines metered is what is booked, to the token."""

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest

from hocket.emulator.configuration import parse
from hocket.emulator.running import RunningEngine, running
from hocket.kit.nats.bus import Bus
from hocket.kit.postgres.database import connect_pool
from hocket.kit.process import clock
from hocket.schemas import subjects
from hocket.schemas.messages import Attribution, CallCancelled, CallRequest, ChatMessage
from support.gateway.gateway_process import Gateway, call, running_gateway
from support.ledger_rig import drained, heard, running_ledger, until

BOUND_S = 60.0
INPUT_USD, OUTPUT_USD = Decimal("0.5"), Decimal(2)
PRICES = {"input_usd_per_mtok": str(INPUT_USD), "output_usd_per_mtok": str(OUTPUT_USD)}
HEDGE = {"quantile": 0.5, "min_ms": 30, "share": 1.0, "burst": 50}
KNOWN_CALLS = 24
"""Calls from which a model knows what is slow."""

CANCELLED_HEDGES = """
SELECT count(*) FROM hocket.usage WHERE kind = 'speculation' AND status = 'cancelled'
"""

Tokens = tuple[int, int]


@dataclass
class House:
    """Gateways before two engines, and a ledger."""

    bus: Bus
    pool: asyncpg.Pool
    engines: list[RunningEngine]
    gateways: list[Gateway]

    def metered(self) -> dict[str, Counter[Tokens]]:
        """What the engines metered, by call."""
        found: dict[str, Counter[Tokens]] = {}
        for one in self.engines:
            for entry in one.engine.journal.entries():
                tokens = (entry["prompt_tokens"], entry["completion_tokens"])
                if any(tokens):
                    found.setdefault(entry["request_id"], Counter())[tokens] += 1
        return found

    async def booked(self) -> dict[str, Counter[Tokens]]:
        """What the ledger has of it."""
        found: dict[str, Counter[Tokens]] = {}
        for row in await self.pool.fetch("SELECT * FROM hocket.usage"):
            tokens = (row["input_tokens"], row["output_tokens"])
            if not any(tokens):
                continue
            assert not row["estimated"], dict(row)
            cost_usd = (tokens[0] * INPUT_USD + tokens[1] * OUTPUT_USD) / 1_000_000
            assert row["cost_usd"] == cost_usd, dict(row)
            found.setdefault(_base(row["call_id"]), Counter())[tokens] += 1
        return found

    async def script(self, *faults: dict[str, Any]) -> None:
        """Have each engine's next requests go wrong."""
        async with aiohttp.ClientSession() as session:
            for one in self.engines:
                answer = await session.post(f"{one.url}/emulator/script", json=list(faults))
                answer.raise_for_status()

    async def streamed(
        self,
        gateway: Gateway,
        call_id: str,
        *,
        pieces: int | None,
        budget_usd: Decimal | None = None,
    ) -> None:
        """Ask for a stream at a gateway's door, and go away after so many pieces."""
        body = {
            "model": "writer",
            "stream": True,
            "messages": [{"role": "user", "content": "How often, at this door?"}],
            "max_tokens": 40,
        }
        headers = _headers(call_id, budget_usd)
        url = f"{gateway.url}/chat/completions"
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, json=body, headers=headers) as response,
        ):
            seen = 0
            async for _ in response.content:
                seen += 1
                if pieces is not None and seen > pieces:
                    return

    async def embedded(self, gateway: Gateway, call_id: str, *, budget_usd: Decimal) -> None:
        """Ask for vectors at a gateway's door."""
        body = {"model": "writer", "input": ["word " * 40, "another word"]}
        headers = _headers(call_id, budget_usd)
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{gateway.url}/embeddings", json=body, headers=headers) as response,
        ):
            await response.read()


async def _hedged(house: House) -> None:
    """Call until a hedge was cancelled: what counts as slow is learned, and grows on a busy machine."""
    for turn in itertools.count():
        slow = {"kind": "delay", "delay_s": 0.5 * 2 ** min(turn, 3), "count": 4}
        await house.script({"kind": "none", "count": 4}, slow)
        first = 1_000 + 16 * turn
        await asyncio.gather(*(call(house.bus, asks(n)) for n in range(first, first + 16)))
        await until(lambda: _equal(house))
        if await house.pool.fetchval(CANCELLED_HEDGES):
            return


def _headers(call_id: str, budget_usd: Decimal | None) -> dict[str, str]:
    budget = {} if budget_usd is None else {"X-Hocket-Budget-Usd": str(budget_usd)}
    return {"X-Hocket-Call-Id": call_id, "X-Hocket-Run-Id": "agent-7", **budget}


def _base(call_id: str) -> str:
    """Return the id of a call without what tells its requests apart."""
    parts = call_id.split(":")
    while parts[-1] == "h" or (parts[-1][:1] in "rt" and parts[-1][1:].isdecimal()):
        parts.pop()
    return ":".join(parts)


def asks(number: int, **fields: Any) -> CallRequest:
    return CallRequest.model_validate(
        {
            "call_id": f"judged:{number}",
            "model": "writer",
            "messages": (ChatMessage(role="user", content="word " * (1 + number % 17)),),
            "max_tokens": 8 + number % 40,
            "deadline_at_ms": clock.now_ms() + 1_000 * BOUND_S,
            "attribution": Attribution(run_id="r1", pipeline="report", node="draft"),
            **fields,
        }
    )


@pytest.fixture
async def house(
    bus: Bus, nats_url: str, database_url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[House]:
    fast = {"prefill_tokens_per_s": 1e6, "decode_tokens_per_s": 200, "batch_tokens_per_s": 1e6}
    profile = {"model": "llm", "max_running": 64, **fast}
    engines = parse({"engines": [{"port": 0, "replicas": 2, "profile": profile}]})
    pool = await connect_pool(database_url, size=2, name="test")
    async with running(engines) as emulated:
        models = {
            "writer": {
                "backends": [
                    {
                        "name": f"engine{number}",
                        "base_url": f"{one.url}/v1",
                        "model": "llm",
                        "limit": 64,
                        "prices": PRICES,
                    }
                    for number, one in enumerate(emulated)
                ],
                "hedge": HEDGE,
                "retries": 3,
                "breaker": False,
            }
        }
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(running_ledger(bus, pool))
            gateways = []
            for name in getattr(request, "param", ("one",)):
                (tmp_path / name).mkdir()
                started = running_gateway(nats_url, tmp_path / name, models)
                gateways.append(await stack.enter_async_context(started))
            yield House(bus, pool, emulated, gateways)
    await pool.close()


async def test_what_the_engines_metered_is_what_the_ledger_has_to_the_token(house: House) -> None:
    async with asyncio.timeout(BOUND_S):
        known = [call(house.bus, asks(number)) for number in range(KNOWN_CALLS)]
        assert all(reply.error is None for reply in await asyncio.gather(*known))
    async with asyncio.timeout(BOUND_S):
        await _hedged(house)
    await house.script(
        *[{"kind": "status", "status": 503, "count": 3}, {"kind": "none", "count": 2}] * 6
    )
    work = [call(house.bus, asks(number)) for number in range(100, 160)]
    work += [
        house.streamed(house.gateways[0], f"stream-{number}", pieces=number % 3 or None)
        for number in range(12)
    ]
    stopped = [asks(number, max_tokens=60) for number in range(200, 215)]
    cancelled = [asyncio.create_task(call(house.bus, one)) for one in stopped]
    async with asyncio.timeout(BOUND_S):
        working = asyncio.gather(*work, return_exceptions=True)
        for one in stopped:
            gone = CallCancelled(call_id=one.call_id).model_dump_json().encode()
            await until(lambda one=one: _came(house, one.call_id))
            house.bus.publish_nowait(subjects.GATEWAY_CANCEL, gone)
        await asyncio.gather(working, *cancelled)
        await until(lambda: _equal(house))
    kinds = await house.pool.fetch("SELECT kind, status, count(*) FROM hocket.usage GROUP BY 1, 2")
    counts = {(row["kind"], row["status"]): row["count"] for row in kinds}
    assert counts.get(("speculation", "cancelled")), counts
    assert counts["call", "error"] > 0, "nothing was retried"
    assert counts["call", "cancelled"] > 0, "nothing was cancelled"


@pytest.mark.parametrize("house", [("one", "two")], indirect=True)
async def test_what_a_killed_gateway_had_answered_is_booked_and_the_rest_is_known_as_lost(
    house: House,
) -> None:
    wanted = [asks(number, max_tokens=100) for number in range(40)]
    first = {one.call_id: asyncio.create_task(call(house.bus, one)) for one in wanted}
    async with asyncio.timeout(BOUND_S):
        for one in wanted:
            await until(lambda one=one: _came(house, one.call_id))
        house.gateways[1].process.kill()
        await house.gateways[1].process.wait()
        replies = await asyncio.gather(
            *(_answered(house, one, first[one.call_id]) for one in wanted)
        )
        assert all(reply.error is None for reply in replies)
        await drained(house.bus)
        await heard(house.bus)
    metered, booked = house.metered(), await house.booked()
    missing = {
        call_id: tokens - booked.get(call_id, Counter()) for call_id, tokens in metered.items()
    }
    invented = {
        call_id: tokens - metered.get(call_id, Counter()) for call_id, tokens in booked.items()
    }
    assert not any(invented.values())
    lost = {call_id for call_id, tokens in missing.items() if tokens}
    opened = await house.pool.fetch("SELECT call_id FROM hocket.open_call")
    assert lost == {_base(row["call_id"]) for row in opened}
    assert 0 < len(lost) < len(wanted)


@pytest.mark.parametrize("house", [("one", "two", "three", "four")], indirect=True)
async def test_four_gateways_spend_a_runs_budget_by_both_doors_and_not_more(house: House) -> None:
    budget_usd = Decimal("0.008")
    one_call_usd = 48 * OUTPUT_USD / 1_000_000
    who = Attribution(run_id="agent-7", pipeline="report", node="draft")

    async def works(number: int) -> None:
        gateway = house.gateways[number % len(house.gateways)]
        if number % 4 == 0:
            await house.streamed(gateway, f"s{number}", pieces=None, budget_usd=budget_usd)
        elif number % 4 == 1:
            await house.embedded(gateway, f"e{number}", budget_usd=budget_usd)
        else:
            fields = {"attribution": who, "budget_usd": budget_usd}
            await call(house.bus, asks(number, **fields))

    async with asyncio.timeout(BOUND_S):
        first = asyncio.gather(*map(works, range(120)), return_exceptions=True)
        await until(lambda: _metered(house, 20))
        stopped = house.gateways.pop()
        stopped.process.terminate()
        await stopped.process.wait()
        await first  # at the door that closed some are refused
        await asyncio.gather(*map(works, range(1_000, 1_350)))
        await until(lambda: _equal(house))
    spent_usd = await house.pool.fetchval("SELECT sum(cost_usd) FROM hocket.usage")
    assert budget_usd * Decimal("0.95") <= spent_usd <= budget_usd + one_call_usd


async def _metered(house: House, calls: int) -> bool:
    return len(house.metered()) >= calls


async def _answered(house: House, wanted: CallRequest, asked: "asyncio.Task[Any]") -> Any:
    """Ask again for a call whose gateway may be dead; return whichever reply comes first."""
    again = asyncio.create_task(call(house.bus, wanted, again=True))
    done, pending = await asyncio.wait({asked, again}, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    return next(iter(done)).result()


async def _came(house: House, call_id: str) -> bool:
    return any(
        entry["request_id"] == call_id
        for one in house.engines
        for entry in one.engine.journal.entries()
    )


async def _equal(house: House) -> bool:
    await drained(house.bus)
    return house.metered() == await house.booked()
