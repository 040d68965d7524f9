"""Sub-runs side by side spend one budget, that of the run at the top: over the gateways of four workers,
over sub-runs of sub-runs, and by the HTTP door."""

import asyncio
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import asyncpg
import nats
import pytest
import yaml

from hocket.cli.local.platform import Platform
from hocket.schemas import ids, subjects
from support.places import HANDLERS

BOUND_S = 120
PRICE = Decimal("0.3")
"""What a call costs."""
BUDGET = Decimal("0.9")
SUB_RUNS = 10
WORKERS = 4
"""Each has a gateway."""
MODELS = {
    "probe": {
        "backends": [
            {"function": "charge_handlers:complete", "prices": {"request_usd": float(PRICE)}}
        ]
    }
}
CALL = {"type": "llm", "model": "probe", "prompt": "?", "optional": True}
ASK = {
    "type": "python",
    "handler": "charge_handlers:ask",
    "with": {"model": "probe", "calls": 1, "url": "{{ input.url }}", "run_id": "{{ run.id }}"},
    "optional": True,
}


def pipeline(name: str, node: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"pipeline": name, "slo_ms": 240_000, "nodes": {"only": node}, "output": 1, **fields}


def below(child: str, **fields: Any) -> dict[str, Any]:
    return {"type": "pipeline", "pipeline": child, "with": {"url": "{{ input.url }}"}, **fields}


def side_by_side(child: str) -> dict[str, Any]:
    return below(child, map={"over": "{{ input.items }}"})


PIPELINES = [
    pipeline("calls", CALL),
    pipeline("asks", ASK),
    pipeline("between", below("calls")),
    pipeline("of-calls", side_by_side("calls"), budget_usd=float(BUDGET)),
    pipeline("of-asks", side_by_side("asks"), budget_usd=float(BUDGET)),
    pipeline("of-between", side_by_side("between"), budget_usd=float(BUDGET)),
    pipeline("free", side_by_side("calls")),
]
SPENT = """
WITH RECURSIVE tree AS (
    SELECT run_id FROM hocket.run WHERE run_id = $1
    UNION ALL
    SELECT r.run_id FROM hocket.run r JOIN tree t ON r.parent ->> 'run_id' = t.run_id
)
SELECT coalesce(sum(u.cost_usd), 0) FROM hocket.usage u JOIN tree t ON u.run_id = t.run_id
"""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    # not under pytest's own folder: another pytest closes that one to Postgres' account
    folder = Path(tempfile.mkdtemp(prefix="hocket-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
async def platform(folder: Path) -> AsyncIterator[Platform]:
    config = folder / "hocket.yaml"
    config.write_text(yaml.safe_dump({"models": MODELS, "access": {"open": True}}))
    environment = {"HOCKET_HANDLERS": "charge_handlers", "PYTHONPATH": HANDLERS}
    async with Platform(
        folder / "data", env=environment, config=config, workers=WORKERS, inline_gateway=True
    ) as running:
        for spec in PIPELINES:
            await asyncio.to_thread(running.api().post, "/v1/pipelines", spec)
        yield running


async def spent_usd(platform: Platform, name: str) -> tuple[Decimal, Decimal]:
    """Run a pipeline over ten items; return what the run says that it cost, and what the ledger has of
    all runs of its tree as soon as that is as much."""
    given = {"url": platform.gateway_url, "items": list(range(SUB_RUNS))}
    client = await nats.connect(platform.nats_url)
    key = f"sub-runs {name}"
    headers = {"Hocket-Idempotency-Key": key}
    subject = subjects.task("default", name)
    await client.jetstream().publish(subject, json.dumps(given).encode(), headers=headers)
    await client.close()
    run_id = ids.run_id("default", key)
    query = "SELECT spent_usd, facts FROM hocket.run WHERE run_id = $1 AND finished_at IS NOT NULL"
    connection = await asyncpg.connect(platform.database_url)
    try:
        async with asyncio.timeout(BOUND_S):
            while (row := await connection.fetchrow(query, run_id)) is None:  # noqa: ASYNC110 (a row)
                await asyncio.sleep(0.05)
            charges = json.loads(row["facts"] or "{}").get("charges", [])
            told = row["spent_usd"] + sum(Decimal(usd) for _, usd in charges)
            while (booked := await connection.fetchval(SPENT, run_id)) < told:  # noqa: ASYNC110 (likewise)
                await asyncio.sleep(0.05)
    finally:
        await connection.close()
    return told, booked


@pytest.mark.parametrize("name", ["of-calls", "of-between", "of-asks"])
async def test_ten_sub_runs_side_by_side_spend_the_budget_of_the_run_at_the_top_and_not_more(
    platform: Platform, name: str
) -> None:
    assert await spent_usd(platform, name) == (BUDGET, BUDGET)


async def test_sub_runs_of_a_run_without_a_budget_are_held_to_none(platform: Platform) -> None:
    assert await spent_usd(platform, "free") == (SUB_RUNS * PRICE, SUB_RUNS * PRICE)
