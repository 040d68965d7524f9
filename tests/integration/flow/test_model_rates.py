"""Two gateways hold a tenant to its rate together, and REST and the command line show it."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hocket.cli.app import app as cli
from hocket.kit.nats.bus import Bus
from hocket.kit.process import clock
from hocket.schemas.messages import Attribution, CallReply, CallRequest, ChatMessage
from support.gateway.gateway_process import call, running_gateway
from support.gateway.mock_upstream import Upstream, running_upstream
from support.rest_rig import Rest, running_rest

RATES = [{"tenant": "acme", "model": "writer", "requests_per_min": 10, "beyond": "refuse"}]
CALLS = 40
WAIT_MS = 30_000.0


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    async with running_upstream() as upstream:
        yield upstream


@pytest.fixture
async def rest(nats_url: str, database_url: str) -> AsyncIterator[Rest]:
    async with running_rest(nats_url, database_url) as rest:
        yield rest


async def ask(bus: Bus, tenant: str, number: int) -> CallReply:
    request = CallRequest(
        call_id=f"{tenant}-{number}",
        model="writer",
        messages=(ChatMessage(role="user", content="hello"),),
        deadline_at_ms=clock.now_ms() + WAIT_MS,
        attribution=Attribution(tenant=tenant),
    )
    return await call(bus, request)


async def both_are_heard(rest: Rest) -> bool:
    answer = await rest.get("/v1/backends")
    return len(answer.body.get("gateways", ())) == 2 and not answer.body["silent"]


async def test_gateways_let_no_more_through_together_than_the_rate(
    rest: Rest, nats_url: str, upstream: Upstream, tmp_path: Path
) -> None:
    backend = {"name": "b", "base_url": upstream.base_url, "model": "m"}
    section = {"writer": {"backends": [backend]}}
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    async with (
        running_gateway(nats_url, folders[0], section, rates=RATES),
        running_gateway(nats_url, folders[1], section, rates=RATES),
    ):
        async with asyncio.timeout(60):
            while not await both_are_heard(rest):  # noqa: ASYNC110 (other processes)
                await asyncio.sleep(0.05)
        replies = await asyncio.gather(*(ask(rest.bus, "acme", n) for n in range(CALLS)))
        codes = [None if one.error is None else one.error.code for one in replies]
        assert codes.count(None) == 10, "each has half of it, and both get enough calls"
        assert codes.count("model_rate_reached") == CALLS - 10
        assert (await ask(rest.bus, "globex", 0)).error is None
        (rate,) = (await rest.get("/v1/model-rates")).body["rates"]
        assert (rate["tenant"], rate["model"], rate["requests"]) == ("acme", "writer", 10)
        environment = {"HOCKET_API_URL": rest.url, "HOCKET_API_KEY": rest.key}
        said = await asyncio.to_thread(
            CliRunner().invoke, cli, ["gateway", "rates", "--json"], env=environment
        )
        assert json.loads(said.stdout)["rates"][0]["requests_per_min"] == 10
        headers = {"Authorization": f"Bearer {await rest.make_key('viewer')}"}
        others = (await rest.get("/v1/model-rates", headers=headers)).body
        assert others["rates"] == [], "another tenant's rate is nobody's business"
