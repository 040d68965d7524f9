"""The emulator's own meter judges the ledger: over retries, hedges, streams, cancelled calls and a
killed gateway, what the engines metered is what is booked, to the token."""

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from hocket.kit.nats.bus import Bus
from hocket.schemas import subjects
from hocket.schemas.messages import Attribution, CallCancelled, CallRequest
from support.gateway.gateway_process import call
from support.gateway.judged_house import (
    BOUND_S,
    OUTPUT_USD,
    House,
    asks,
    base_of,
    equal,
    judged_house,
)
from support.ledger_rig import drained, heard, until

KNOWN_CALLS = 24
"""Calls from which a model knows what is slow."""

CANCELLED_HEDGES = """
SELECT count(*) FROM hocket.usage WHERE kind = 'speculation' AND status = 'cancelled'
"""


@pytest.fixture
async def house(
    bus: Bus, nats_url: str, database_url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[House]:
    names = getattr(request, "param", ("one",))
    async with judged_house(bus, nats_url, database_url, tmp_path, names) as running:
        yield running


async def hedged(house: House) -> None:
    """Call until a hedge was cancelled: what counts as slow is learned, and grows on a busy machine."""
    for turn in itertools.count():
        slow = {"kind": "delay", "delay_s": 0.5 * 2 ** min(turn, 3), "count": 4}
        await house.script({"kind": "none", "count": 4}, slow)
        first = 1_000 + 16 * turn
        await asyncio.gather(*(call(house.bus, asks(n)) for n in range(first, first + 16)))
        await until(lambda: equal(house))
        if await house.pool.fetchval(CANCELLED_HEDGES):
            return


async def test_what_the_engines_metered_is_what_the_ledger_has_to_the_token(house: House) -> None:
    async with asyncio.timeout(BOUND_S):
        known = [call(house.bus, asks(number)) for number in range(KNOWN_CALLS)]
        assert all(reply.error is None for reply in await asyncio.gather(*known))
    async with asyncio.timeout(BOUND_S):
        await hedged(house)
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
        await until(lambda: equal(house))
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
    assert lost == {base_of(row["call_id"]) for row in opened}
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
        await house.stops()
        await first  # at the door that closed some are refused
        await asyncio.gather(*map(works, range(1_000, 1_350)))
        await until(lambda: equal(house))
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
