"""Five pipelines of two tenants share one model: what reports say of each is what its own calls come to
in the engines' journals, by node and by label."""

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from hocket.emulator.configuration import parse
from hocket.emulator.running import RunningEngine, running
from hocket.kit.nats.bus import Bus
from hocket.kit.postgres.database import connect_pool
from hocket.kit.process import clock
from hocket.schemas.messages import Attribution, CallRequest, ChatMessage
from support.gateway.gateway_process import call, running_gateway
from support.ledger_rig import drained, running_ledger, until

BOUND_S = 60.0
INPUT_USD, OUTPUT_USD = Decimal("0.5"), Decimal(2)
PRICES = {"input_usd_per_mtok": str(INPUT_USD), "output_usd_per_mtok": str(OUTPUT_USD)}
CALLS = 400
PIPELINES = {"reply": "acme", "triage": "acme", "digest": "acme", "crawl": "rival", "plan": "rival"}
NODES = ("read", "draft", "check")
CUSTOMERS = ("one", "two", "three")

Whose = tuple[str, ...]
Spent = tuple[int, int, int, Decimal]
"""Calls, tokens in and out, US dollars."""


class Share:
    """What calls come to, added up by hand."""

    def __init__(self) -> None:
        self._sums: defaultdict[Whose, list[Any]] = defaultdict(lambda: [0, 0, 0, Decimal(0)])

    def add(self, whose: Whose, tokens_in: int, tokens_out: int) -> None:
        """Add a call."""
        usd = (tokens_in * INPUT_USD + tokens_out * OUTPUT_USD) / 1_000_000
        found = self._sums[whose]
        for place, much in enumerate((1, tokens_in, tokens_out, usd)):
            found[place] += much

    def all(self) -> dict[Whose, Spent]:
        """Return the sums."""
        return {whose: tuple(sums) for whose, sums in self._sums.items()}  # type: ignore[misc]


def asked(number: int, dice: random.Random) -> tuple[CallRequest, Whose]:
    """Return a call of one of the pipelines, and whose it is: tenant, pipeline, node, customer."""
    pipeline = dice.choice(list(PIPELINES))
    whose = (PIPELINES[pipeline], pipeline, dice.choice(NODES), dice.choice(CUSTOMERS))
    who = Attribution(
        tenant=whose[0],
        pipeline=pipeline,
        version=1,
        node=whose[2],
        run_id=f"{pipeline}-{number % 20}",
        labels={"customer": whose[3]},
    )
    request = CallRequest(
        call_id=f"shared:{number}",
        model="writer",
        messages=(ChatMessage(role="user", content="word " * dice.randint(1, 60)),),
        max_tokens=dice.randint(1, 30),
        deadline_at_ms=clock.now_ms() + 1_000 * BOUND_S,
        attribution=who,
    )
    return request, whose


@pytest.fixture
async def engines() -> AsyncIterator[list[RunningEngine]]:
    fast = {"prefill_tokens_per_s": 1e6, "decode_tokens_per_s": 2_000, "batch_tokens_per_s": 1e6}
    profile = {"model": "llm", "max_running": 64, **fast}
    document = {"engines": [{"port": 0, "replicas": 2, "profile": profile}]}
    async with running(parse(document)) as emulated:
        yield emulated


def metered(engines: list[RunningEngine]) -> dict[str, tuple[int, int]]:
    """Return the tokens of each call in the engines' journals."""
    found: Counter[str] = Counter()
    tokens = {}
    for one in engines:
        for entry in one.engine.journal.entries():
            found[entry["request_id"]] += 1
            tokens[entry["request_id"]] = (entry["prompt_tokens"], entry["completion_tokens"])
    assert set(found.values()) == {1}
    return tokens


async def test_each_pipelines_share_of_a_model_is_what_its_calls_come_to_in_the_engines_journals(
    bus: Bus, nats_url: str, database_url: str, tmp_path: Path, engines: list[RunningEngine]
) -> None:
    dice = random.Random(3)
    backends = [
        {
            "name": f"e{n}",
            "base_url": f"{one.url}/v1",
            "model": "llm",
            "limit": 32,
            "prices": PRICES,
        }
        for n, one in enumerate(engines)
    ]
    pool = await connect_pool(database_url, size=2, name="test")
    async with AsyncExitStack() as stack, asyncio.timeout(BOUND_S):
        stack.push_async_callback(pool.close)
        await stack.enter_async_context(running_ledger(bus, pool))
        started = running_gateway(nats_url, tmp_path, {"writer": {"backends": backends}})
        await stack.enter_async_context(started)
        work = [asked(number, dice) for number in range(CALLS)]
        replies = await asyncio.gather(*(call(bus, request) for request, _ in work))
        assert all(reply.error is None for reply in replies)

        async def all_booked() -> bool:
            await drained(bus)
            return bool(await pool.fetchval("SELECT count(*) = $1 FROM hocket.usage", CALLS))

        await until(all_booked)
        tokens = metered(engines)
        by_node, by_label, by_pipeline = Share(), Share(), Share()
        for request, (tenant, pipeline, node, customer) in work:
            spent = tokens[request.call_id]
            by_node.add((tenant, pipeline, node), *spent)
            by_label.add((tenant, pipeline, customer), *spent)
            by_pipeline.add((tenant, pipeline), *spent)

        sums = "sum(calls)::bigint, sum(input_tokens)::bigint, sum(output_tokens)::bigint, sum(cost_usd)"
        for view, columns, share in (
            ("cost_by_node", "tenant, pipeline, node", by_node),
            ("cost_by_label", "tenant, pipeline, value", by_label),
            ("cost_by_pipeline_day", "tenant, pipeline", by_pipeline),
        ):
            found = await _sums(
                pool, f"SELECT {columns}, {sums} FROM report.{view} GROUP BY {columns}"
            )
            assert found == share.all(), view


async def _sums(pool: asyncpg.Pool, query: str) -> dict[Whose, Spent]:
    return {tuple(row)[:-4]: tuple(row)[-4:] for row in await pool.fetch(query)}
