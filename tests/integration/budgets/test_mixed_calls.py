"""A budget of each level holds over whatever spends from it: calls of workers and of the HTTP door,
whole and streamed, of several choices, of vectors, raced, cancelled, by four gateways that know nothing
of the model and are started anew meanwhile. The engines' own meters judge.

`HOCKET_TEST_CALLS` says how many calls; `make budget-test` makes a thousand at each level."""

import asyncio
import os
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from hocket.kit.nats.bus import Bus
from hocket.schemas import subjects
from hocket.schemas.messages import Attribution, CallCancelled
from support.gateway.gateway_process import call
from support.gateway.judged_house import BOUND_S, OUTPUT_USD, House, asks, equal, judged_house
from support.ledger_rig import until

CALLS = int(os.environ.get("HOCKET_TEST_CALLS", "120"))
GATEWAYS = ("one", "two", "three", "four")
CHOICES = 3
BUDGET_USD = Decimal("0.00001") * CALLS
"""A fifth of what the calls would come to."""
ONE_CALL_USD = CHOICES * 48 * OUTPUT_USD / 1_000_000
LEVELS = ("run", "pipeline", "label", "tenant") if CALLS >= 1_000 else ("label",)
LIMIT = {"usd": float(BUDGET_USD), "per": "month"}
SECTIONS: dict[str, dict[str, Any]] = {
    "run": {},
    "pipeline": {"budgets": {"pipelines": {"report": LIMIT}}},
    "label": {"budgets": {"labels": {"team=search": LIMIT}}},
    "tenant": {"budgets": {"tenants": {"default": LIMIT}}},
}
HEADERS = {"X-Hocket-Pipeline": "report", "X-Hocket-Labels": "team=search"}


async def works(house: House, number: int, run_usd: Decimal | None) -> str:
    """Make a call of one kind or another; return which."""
    gateway = house.gateways[number % len(house.gateways)]
    labels = {"team": "search"}
    attribution = Attribution(run_id="agent-7", pipeline="report", node="draft", labels=labels)
    wanted = asks(number, attribution=attribution, budget_usd=run_usd)
    asked: dict[str, Any] = {"budget_usd": run_usd, **HEADERS}
    match number % 6:
        case 0:
            await house.streamed(gateway, f"s{number}", pieces=None, **asked)
            return "streamed"
        case 1:
            await house.embedded(gateway, f"e{number}", **asked)
            return "vectors"
        case 2:
            message = {"role": "user", "content": "How often, and how else?"}
            body = {"messages": [message], "n": CHOICES, "max_tokens": 8 + number % 40}
            await house.posted(gateway, "chat/completions", f"n{number}", body, **asked)
            return "choices"
        case 3:
            asking = asyncio.create_task(call(house.bus, wanted))
            await asyncio.sleep(0.02 * (number % 5))
            gone = CallCancelled(call_id=wanted.call_id).model_dump_json().encode()
            house.bus.publish_nowait(subjects.GATEWAY_CANCEL, gone)
            await asking
            return "cancelled"
    await call(house.bus, wanted)
    return "called"


@pytest.mark.parametrize("level", LEVELS)
async def test_no_mix_of_calls_spends_more_than_a_budget_and_almost_all_of_it_can_be_spent(
    bus: Bus, nats_url: str, database_url: str, tmp_path: Path, level: str
) -> None:
    run_usd = BUDGET_USD if level == "run" else None
    sections = SECTIONS[level]
    async with judged_house(bus, nats_url, database_url, tmp_path, GATEWAYS, **sections) as house:
        async with asyncio.timeout(2 * BOUND_S):
            slow = {"kind": "delay", "delay_s": 0.5, "count": 2}
            await house.script(*[{"kind": "none", "count": 10}, slow] * 5)
            third = range(CALLS // 3)
            first = asyncio.gather(
                *(works(house, number, run_usd) for number in third), return_exceptions=True
            )
            await until(lambda: _metered(house, 5))
            await house.starts("five")
            await house.stops()
            await first  # at the door that closed some are refused
            rest = range(len(third), CALLS)
            kinds = await asyncio.gather(*(works(house, number, run_usd) for number in rest))
            await until(lambda: equal(house))
        spent_usd = await house.pool.fetchval("SELECT sum(cost_usd) FROM hocket.usage")
    assert BUDGET_USD * Decimal("0.95") <= spent_usd <= BUDGET_USD + ONE_CALL_USD
    assert min(Counter(kinds).values()) >= len(rest) // 6


async def _metered(house: House, calls: int) -> bool:
    return len(house.metered()) >= calls
