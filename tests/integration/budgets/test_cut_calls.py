"""Calls that are cut: what a run has spent is what its calls cost, agents are held to their budgets, and
a pipeline's own budget holds when it runs below another one."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from hocket.cli.local.platform import Platform
from support.places import HANDLERS

BOUND_S = 60
PRICE = Decimal("0.1")
CUT_S = 1.5
"""How long the engine takes for a call that is cut."""


def llm(prompt: str, **fields: Any) -> dict[str, Any]:
    return {"type": "llm", "model": "engine", "prompt": prompt, **fields}


PIPELINES: dict[str, dict[str, Any]] = {
    "cancelled": {"nodes": {"a": llm("slow")}},
    "late": {"nodes": {"a": llm("slow", timeout_ms=500, optional=True), "b": llm("quick")}},
    "raced": {"nodes": {"r": {"type": "race", "branches": {"x": llm("slow"), "y": llm("quick")}}}},
    "above": {"nodes": {"sub": {"type": "pipeline", "pipeline": "raced"}}},
    "agent": {
        "nodes": {
            "ask": {
                "type": "agent",
                "model": "engine",
                "with": {"question": "slow"},
                "timeout_ms": 500,
                "retry": {"max_attempts": 20, "backoff_ms": 500, "factor": 1},
                "budget_usd": 0.15,
                "tools": {
                    "echo": {
                        "description": "Say it again.",
                        "parameters": {"type": "object"},
                        "node": {"type": "python", "handler": "hocket.workers.builtin:echo"},
                    }
                },
            }
        }
    },
    "child": {"budget_usd": 0.1, "nodes": {"a": llm("quick"), "b": llm("quick", needs=["a"])}},
    "parent": {"nodes": {"sub": {"type": "pipeline", "pipeline": "child"}}},
    "mapped": {
        "budget_usd": 0.05,
        "nodes": {
            "m": {
                "type": "python",
                "handler": "charge_handlers:charge",
                "map": {"over": "range(60)"},
                "with": {"usd": "0.05"},
            }
        },
    },
}


async def answer(request: web.Request) -> web.Response:
    asked = await request.text()
    await asyncio.sleep(CUT_S if "slow" in asked else 0)
    message = {"role": "assistant", "content": "ok"}
    return web.json_response(
        {
            "object": "chat.completion",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 2},
        }
    )


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    # not under pytest's own folder: another pytest closes that one to Postgres' account
    with tempfile.TemporaryDirectory(prefix="hocket-", ignore_cleanup_errors=True) as made:
        yield Path(made)


@pytest.fixture(scope="module")
async def platform(folder: Path) -> AsyncIterator[Platform]:
    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = "http://{}:{}/v1".format(*runner.addresses[0])
    prices = {"request_usd": float(PRICE)}
    engine = {"kind": "openai", "base_url": url, "model": "m", "breaker": False, "prices": prices}
    models = {"engine": {"backends": [engine]}}
    config = folder / "hocket.yaml"
    config.write_text(yaml.safe_dump({"models": models, "access": {"open": True}}))
    environment = {"HOCKET_HANDLERS": "charge_handlers", "PYTHONPATH": HANDLERS}
    async with Platform(folder / "data", env=environment, config=config) as running:
        for name, spec in PIPELINES.items():
            document = {"pipeline": name, "slo_ms": 60_000, **spec}
            await asyncio.to_thread(running.api().post, "/v1/pipelines", document)
        yield running
    await runner.cleanup()


async def get(platform: Platform, path: str) -> Any:
    return await asyncio.to_thread(platform.api().get, path)


async def begin(platform: Platform, pipeline: str) -> str:
    task = {"pipeline": pipeline, "input": {}}
    begun = await asyncio.to_thread(platform.api().post, "/v1/runs", task)
    return str(begun["run_id"])


async def seen_when(platform: Platform, run_id: str, spent: Decimal | None = None) -> Any:
    """Return a run once it has ended, and as soon as it has spent an amount."""
    async with asyncio.timeout(BOUND_S):
        while True:
            seen = await get(platform, f"/v1/runs/{run_id}")
            if seen["finished_at"] is not None and spent in (None, Decimal(seen["spent_usd"])):
                return seen
            await asyncio.sleep(0.1)


@pytest.mark.parametrize(
    ("pipeline", "status", "calls"),
    [("cancelled", "cancelled", 1), ("late", "degraded", 2), ("raced", "succeeded", 2)],
)
async def test_a_run_has_spent_what_its_cut_calls_cost(
    platform: Platform, pipeline: str, status: str, calls: int
) -> None:
    run_id = await begin(platform, pipeline)
    if pipeline == "cancelled":
        await asyncio.sleep(CUT_S / 2)
        await asyncio.to_thread(platform.api().post, f"/v1/runs/{run_id}/cancel", {})
    seen = await seen_when(platform, run_id, calls * PRICE)
    assert seen["status"] == status
    async with asyncio.timeout(BOUND_S):
        while True:
            cost = await get(platform, f"/v1/runs/{run_id}/cost")
            if Decimal(cost["cost_usd"]) == calls * PRICE:
                break
            await asyncio.sleep(0.1)


async def test_the_run_above_has_spent_what_was_cut_below_it(platform: Platform) -> None:
    seen = await seen_when(platform, await begin(platform, "above"), 2 * PRICE)
    assert seen["status"] == "succeeded"


async def test_an_agent_whose_rounds_run_out_of_time_ends_at_its_budget(platform: Platform) -> None:
    run_id = await begin(platform, "agent")
    seen = await seen_when(platform, run_id)
    assert seen["error"]["code"] == "agent_budget_exhausted"
    assert Decimal(seen["spent_usd"]) <= 5 * PRICE  # rounds that were being read on


async def test_a_pipeline_s_budget_holds_below_a_run_without_one(platform: Platform) -> None:
    seen = await seen_when(platform, await begin(platform, "parent"), PRICE)
    assert seen["status"] == "failed"


async def test_a_map_whose_items_charge_does_not_spend_its_budget_many_times(
    platform: Platform,
) -> None:
    run_id = await begin(platform, "mapped")
    seen = await seen_when(platform, run_id)
    assert seen["error"]["code"] == "budget_exhausted"
    assert Decimal(seen["spent_usd"]) <= Decimal("0.20")
