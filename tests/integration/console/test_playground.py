"""The console's playground over a real gateway, ledger and NATS: whose money, what is told, who may."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from hocket.schemas.capabilities import Capabilities
from hocket.schemas.labels import KEY_LABEL
from support.gateway.gateway_process import records, running_gateway
from support.gateway.mock_upstream import Upstream, running_upstream
from support.ledger_rig import running_ledger
from support.rest_rig import Rest, bearer, running_rest

BOUND_S = 60.0
SECRET = "0123456789abcdef" * 4
PRICES = {"input_usd_per_mtok": "2", "cached_usd_per_mtok": "0.5", "output_usd_per_mtok": "8"}
CALL = {"model": "writer", "prompt": "How often?"}


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    async with running_upstream() as running:
        yield running


@pytest.fixture
async def rest(
    nats_url: str, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Rest]:
    monkeypatch.setenv("HOCKET_CAPABILITY_KEY", SECRET)
    seals = Capabilities([SECRET.encode()])
    async with running_rest(nats_url, database_url, capabilities=seals) as rest:
        yield rest


def section(upstream: Upstream) -> dict[str, Any]:
    backend = {"base_url": upstream.base_url, "model": "m-1", "stops_on_disconnect": True}
    first = {**backend, "name": "dear", "prices": {**PRICES, "output_usd_per_mtok": "80"}}
    return {"writer": {"backends": [first, {**backend, "name": "cheap", "prices": PRICES}]}}


async def called(rest: Rest, key: str, body: Any = CALL, **headers: str) -> tuple[int, str]:
    url = f"{rest.url}/console/playground/calls"
    async with (
        aiohttp.ClientSession(headers=bearer(key) | headers) as session,
        session.post(url, json=body) as reply,
    ):
        return reply.status, await reply.text()


def events(text: str) -> list[tuple[str, dict[str, str]]]:
    blocks = [block.splitlines() for block in text.split("\n\n") if "event: " in block]
    return [(name[7:], json.loads(data[6:])) for name, data in blocks]


async def test_a_call_tells_its_answer_its_price_and_its_decision(
    rest: Rest, nats_url: str, upstream: Upstream, tmp_path: Path
) -> None:
    key = await rest.make_key("developer", "acme")
    async with running_gateway(nats_url, tmp_path, section(upstream)):
        status, text = await called(rest, key, {**CALL, "system": "Be short.", "max_tokens": 9})
        (booked,) = await records(rest.bus)
        async with running_ledger(rest.bus, rest.pool):
            _, again = await called(rest, key)
    told = dict(events(text))
    assert status == 200
    assert [name for name, _ in events(text)] == ["piece", "reply", "decision"] or told["piece"]
    assert told["reply"]["text"] == "tidal"
    for said in ("100", "127", "$2", "$0.5", "$8", "booked"):
        assert said in told["reply"]["html"], said
    assert "differs" not in told["reply"]["html"], "the lines add up to what is booked"
    assert upstream.bodies[0]["max_tokens"] == 9
    assert [one["role"] for one in upstream.bodies[0]["messages"]] == ["system", "user"]
    who = booked.attribution
    assert (who.tenant, list(who.labels or {})) == ("acme", [KEY_LABEL])
    assert who.labels is not None
    assert who.labels[KEY_LABEL] in key
    assert "not booked this call yet" in told["decision"]["html"]
    decided = dict(events(again))["decision"]["html"]
    assert "dear" in decided
    assert "ranked after" in decided or "chosen" in decided


async def test_the_budgets_of_the_tenant_and_of_the_key_hold(
    rest: Rest, nats_url: str, upstream: Upstream, tmp_path: Path
) -> None:
    poor, rich = await rest.make_key("developer", "poor"), await rest.make_key("developer", "rich")
    own = rich.split("_")[1]
    budgets = {
        "tenants": {"poor": {"usd": 0.000001}},
        "labels": {f"{KEY_LABEL}={own}": {"usd": 0.000001}},
    }
    async with running_gateway(nats_url, tmp_path, section(upstream), budgets=budgets):
        for key in (poor, rich):
            _, text = await called(rest, key)
            assert "budget_exceeded" in dict(events(text))["reply"]["html"]
    assert upstream.bodies == []


async def test_a_caller_that_leaves_stops_the_call(
    rest: Rest, nats_url: str, upstream: Upstream, tmp_path: Path
) -> None:
    upstream.answer = upstream.hangs
    key = await rest.make_key("developer", "acme")
    async with running_gateway(nats_url, tmp_path, section(upstream)):
        calling = asyncio.create_task(called(rest, key))
        await asyncio.wait_for(upstream.called.wait(), BOUND_S)
        calling.cancel()
        await asyncio.wait_for(upstream.cancelled.wait(), BOUND_S)


async def test_strangers_pages_other_keys_and_wrong_forms_are_refused(rest: Rest) -> None:
    narrow = await rest.make_key("developer", "acme", models=("editor",))
    viewer = await rest.make_key("viewer", "acme")
    evil = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    for key, body, headers, wanted, code in (
        (rest.key, CALL, evil, 403, "origin_refused"),
        (viewer, CALL, {}, 403, "permission_missing"),
        (narrow, CALL, {}, 403, "model_forbidden"),
        (rest.key, {**CALL, "prompt": ""}, {}, 422, "prompt"),
        (rest.key, {**CALL, "model": "a\nb"}, {}, 422, "model"),
        (rest.key, {**CALL, "model": "a\x7f"}, {}, 422, "model"),
        (rest.key, {**CALL, "max_tokens": 0}, {}, 422, "max_tokens"),
        (rest.key, {**CALL, "tenant": "rival"}, {}, 422, "tenant"),
    ):
        status, text = await called(rest, key, body, **headers)
        assert (status, code in text) == (wanted, True), text


async def test_without_a_gateway_the_page_and_a_call_say_so(rest: Rest) -> None:
    async with aiohttp.ClientSession(headers=bearer(rest.key)) as session:
        page = await (await session.get(f"{rest.url}/console/playground")).text()
    _, text = await called(rest, rest.key)
    assert "No gateway answers" in page
    assert "gateway_away" in dict(events(text))["reply"]["html"]
