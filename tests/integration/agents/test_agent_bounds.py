"""An agent on a platform over real servers, with a model server over HTTP and tools of three kinds (a
function, a tool of an MCP server, a pipeline): its turns are steps that cost what the model server
metered, and its bounds end it with an answer."""

import asyncio
import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest
from mcp.server.mcpserver import MCPServer

from hocket.cli.local.platform import Platform
from hocket.cli.remote.api import Api
from hocket.emulator.configuration import parse
from hocket.emulator.running import running
from support.tools.mcp_server import served

BOUND_S = 60.0
CODE = """
import asyncio


async def total(given):
    return {"usd": given["pieces"] * given["price"]}


async def survey(given):
    return f"readers like {given['topic']}"


async def linger(given):
    await asyncio.sleep(6)
    return "at last"


async def refuse(given):
    raise ValueError("closed")
"""
INPUT_USD, OUTPUT_USD = Decimal(100), Decimal(300)
"""Of a million tokens."""
LOOK_USD = Decimal("0.0005")
"""Of a call of the MCP server."""
MANY = 1e6
ENGINE = {
    "model": "llm",
    "decode_tokens_per_s": MANY,
    "batch_tokens_per_s": MANY,
    "prefill_tokens_per_s": MANY,
    "cache_blocks": 0,
    "output_tokens": 16,
    "tool_turns": 3,
}
SURVEY = {
    "pipeline": "survey",
    "input": {"type": "object", "required": ["topic"]},
    "nodes": {
        "read": {
            "type": "python",
            "handler": "desk:survey",
            "with": {"topic": "{{ input.topic }}"},
        }
    },
    "output": "{{ nodes.read.output }}",
}


def taking(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(properties), "properties": properties}


# in the order in which the engine calls them
TOOLS: dict[str, Any] = {
    "total": {
        "parameters": taking(pieces={"type": "integer", "minimum": 2}, price={"const": 12.5}),
        "node": {"type": "python", "handler": "desk:total"},
    },
    "survey": {
        "parameters": taking(topic={"enum": ["tides"]}),
        "node": {"type": "pipeline", "pipeline": "survey"},
    },
    "find_books": {"node": {"type": "mcp", "server": "library", "tool": "find_books"}},
}
ASK: dict[str, Any] = {
    "type": "agent",
    "model": "writer",
    "with": {"question": "What do two books on tides cost?"},
    "tools": TOOLS,
}
LEDGER = """
SELECT node, cost_usd, unpriced FROM report.ledger WHERE kind = 'tool' AND pipeline = 'priced'
"""
LIBRARY = MCPServer("library")


@LIBRARY.tool()
def find_books(subject: str) -> list[str]:
    """Find books on a subject."""
    return [f"All about {subject}"]


@dataclass(frozen=True)
class House:
    """The platform, and where its model server tells what it metered."""

    platform: Platform
    engine_url: str

    @property
    def api(self) -> Api:
        return self.platform.api()

    async def metered(self) -> list[dict[str, Any]]:
        """Return the requests that the model server had, the earliest first."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{self.engine_url}/emulator/journal") as answer,
        ):
            return list((await answer.json())["requests"])


@dataclass(frozen=True)
class Asked:
    """A run of an agent that has ended."""

    run: dict[str, Any]
    steps: dict[str, dict[str, Any]]
    calls: list[dict[str, Any]]
    """Rows of the ledger."""
    metered: list[dict[str, Any]]

    @property
    def rounds(self) -> list[str]:
        return sorted(key for key in self.steps if key.startswith("ask#") and "/" not in key)


@pytest.fixture(scope="module")
async def house() -> AsyncIterator[House]:
    folder = Path(tempfile.mkdtemp(prefix="hocket-"))
    (folder / "desk.py").write_text(CODE)
    config = folder / "hocket.yaml"
    engines = parse({"engines": [{"port": 0, "profile": ENGINE}]})
    async with running(engines) as (engine,):
        with served(LIBRARY) as tools_url:
            prices = {"input_usd_per_mtok": str(INPUT_USD), "output_usd_per_mtok": str(OUTPUT_USD)}
            backend = {"base_url": f"{engine.url}/v1", "model": "llm", "api_key": "none"}
            sections = {
                "models": {"writer": {"backends": [backend | {"prices": prices}]}},
                "node_types": {"python": {"modules": ["desk"]}},
                "mcp_servers": {
                    "library": {"url": tools_url, "private": True, "request_usd": str(LOOK_USD)}
                },
            }
            config.write_text(json.dumps(sections))
            environment = {"PYTHONPATH": str(folder)}
            async with Platform(folder / "d", env=environment, config=config) as platform:
                house = House(platform, engine.url)
                await asyncio.to_thread(house.api.post, "/v1/pipelines", SURVEY)
                yield house
    shutil.rmtree(folder)


async def ask(
    house: House, node: dict[str, Any], *, pipeline: str = "help", slo_ms: int = 60_000
) -> Asked:
    """Run a pipeline of one node, and return what came of it when the ledger has its calls."""
    api = house.api
    before = len(await house.metered())
    spec = {"pipeline": pipeline, "slo_ms": slo_ms, "nodes": {"ask": node}}
    spec["output"] = "{{ nodes.ask.output }}"
    applied = await asyncio.to_thread(api.post, "/v1/pipelines", spec)
    task = {"pipeline": pipeline, "version": applied["version"], "input": {}}
    accepted = await asyncio.to_thread(api.post, "/v1/runs", task)
    path = f"/v1/runs/{accepted['run_id']}"
    async with asyncio.timeout(BOUND_S):
        run = await _ended(api, path)
        metered = (await house.metered())[before:]
        calls = await _booked(api, run["run_id"], len(metered))
    listed = await asyncio.to_thread(api.get, f"{path}/steps?values=true&limit=100")
    steps = {step["step"]: step for step in listed["steps"]}
    return Asked(run, steps, calls, metered)


async def _ended(api: Api, path: str) -> dict[str, Any]:
    while True:
        run: dict[str, Any] = await asyncio.to_thread(api.get, path)
        if run["finished_at"] is not None:
            return run
        await asyncio.sleep(0.05)


async def _booked(api: Api, run_id: str, number: int) -> list[dict[str, Any]]:
    """Return the calls of a run once the ledger has so many."""
    while True:
        found = await asyncio.to_thread(api.get, f"/v1/calls?run={run_id}")
        if len(found["calls"]) >= number:
            return list(found["calls"])
        await asyncio.sleep(0.05)


def cost_usd(entry: dict[str, Any]) -> Decimal:
    """Return what a request costs by what the model server says that it had."""
    million = Decimal(1_000_000)
    prompt = entry["prompt_tokens"] * INPUT_USD / million
    return prompt + entry["completion_tokens"] * OUTPUT_USD / million


async def test_each_turn_is_a_step_with_its_tool_below_it_and_its_own_cost(house: House) -> None:
    asked = await ask(house, ASK, pipeline="priced")
    run, steps = asked.run, asked.steps
    assert run["status"] == "succeeded", run["error"]
    output = run["output"]
    assert (output["done"], output["rounds"], output["tool_calls"]) == (True, 4, 3)
    assert output["text"]
    assert set(steps) == {
        "ask", "ask#1", "ask#1/total_1", "ask#2", "ask#2/survey_1", "ask#3", "ask#3/find_books_1",
        "ask#4",
    }  # fmt: skip
    assert {key: step["error"] for key, step in steps.items() if step["error"]} == {}
    assert steps["ask#3/find_books_1"]["output"]["data"] == {"result": ["All about ore"]}
    assert steps["ask#1/total_1"]["output"] == {"usd": 25.0}
    assert steps["ask#2/survey_1"]["output"] == "readers like tides"
    told = [one["content"] for one in steps["ask#4"]["input"]["previous"]["messages"]]
    assert any("25.0" in (content or "") for content in told)
    assert [call["step"] for call in asked.calls] == ["ask#1", "ask#2", "ask#3", "ask#4"]
    assert [Decimal(call["cost_usd"]) for call in asked.calls] == [
        cost_usd(entry) for entry in asked.metered
    ]
    spent = sum(map(cost_usd, asked.metered))
    assert Decimal(output["usage"]["cost_usd"]) == spent
    assert Decimal(run["spent_usd"]) == spent + LOOK_USD
    cost = await asyncio.to_thread(house.api.get, f"/v1/runs/{run['run_id']}/cost")
    assert Decimal(cost["cost_usd"]) == spent + LOOK_USD
    (tool,) = cost["tools"]
    assert (tool["type"], tool["steps"], Decimal(tool["cost_usd"])) == ("mcp", 1, LOOK_USD)
    connection = await asyncpg.connect(house.platform.database_url)
    rows = await connection.fetch(LEDGER)
    await connection.close()
    assert {(row["node"], row["cost_usd"], row["unpriced"]) for row in rows} == {
        ("ask/find_books_1", LOOK_USD, 0), ("ask/total_1", None, 1),
    }  # fmt: skip


async def test_each_bound_ends_an_agent_with_an_answer_while_there_is_room_for_it(
    house: House,
) -> None:
    free = await ask(house, ASK)
    first = free.metered[0]
    tokens = first["prompt_tokens"] + first["completion_tokens"]
    usd = cost_usd(first)
    bounds: dict[str, Any] = {
        "max_rounds": 2,
        "max_total_tokens": 3 * tokens - 1,
        "budget_usd": str(3 * usd - Decimal("0.000001")),
    }
    for field, limit in bounds.items():
        asked = await ask(house, ASK | {field: limit})
        assert asked.run["status"] == "succeeded", (field, asked.run["error"])
        assert asked.rounds == ["ask#1", "ask#2"], field
        output = asked.run["output"]
        assert (output["rounds"], output["tool_calls"], bool(output["text"])) == (2, 1, True)
        used = output["usage"]
        assert used["input_tokens"] + used["output_tokens"] <= bounds["max_total_tokens"]
        assert Decimal(asked.run["spent_usd"]) <= Decimal(bounds["budget_usd"])


async def test_an_agent_answers_while_there_is_time_for_it(house: House) -> None:
    slow = TOOLS["total"] | {"node": {"type": "python", "handler": "desk:linger"}}
    tools = {"slow": slow, "total": TOOLS["total"]}
    asked = await ask(house, ASK | {"tools": tools}, slo_ms=15_000)
    assert asked.run["status"] == "succeeded", asked.run["error"]
    assert asked.rounds == ["ask#1", "ask#2"]
    assert asked.steps["ask#1/slow_1"]["output"] == "at last"
    assert asked.run["output"]["tool_calls"] == 1


async def test_nothing_begins_where_an_agents_money_is_spent(house: House) -> None:
    asked = await ask(house, ASK | {"budget_usd": "0.000001"})
    assert asked.run["status"] == "failed"
    assert asked.run["error"]["code"] == "agent_budget_exhausted"
    assert len(asked.metered) == 1
    assert asked.steps["ask#1/total_1"]["dispatched_at"] is None


async def test_an_agent_that_serves_in_place_of_a_node_is_asked_what_that_was(
    house: House,
) -> None:
    helper = {field: value for field, value in ASK.items() if field != "with"}
    closed = {"type": "python", "handler": "desk:refuse", "with": ASK["with"]}
    asked = await ask(house, closed | {"fallback": [{"node": helper}]})
    assert asked.run["status"] == "degraded", asked.run["error"]
    assert asked.run["output"]["rounds"] == 4
    assert asked.steps["ask!1#4"]["input"]["question"] == ASK["with"]["question"]
