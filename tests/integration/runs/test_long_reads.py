"""Searches and reports take long, and a process has few connections to the database."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import Any

import pytest

from hocket.admin.context import READS_OF_TENANT
from hocket.admin.queries import Pool
from hocket.admin.runs import reads
from hocket.admin.runs.reads import RunFilter
from hocket.kit.process.limits.tenant_places import TenantPlaces
from support.rest_rig import Rest, bearer, running_rest
from support.runs.rows import insert_run

BOUND_S = 60.0
RUN = "r" + "1" * 24
PIPELINE = {"pipeline": "p", "nodes": {"a": {"type": "signal", "signal": "go"}}}
MANY = 20
"""More than the connections of a process."""


@pytest.fixture
async def rest(nats_url: str, database_url: str) -> AsyncIterator[Rest]:
    async with running_rest(nats_url, database_url) as rest, asyncio.timeout(BOUND_S):
        yield rest


async def test_the_searches_of_a_tenant_leave_connections_for_others(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, done, begun = 0, asyncio.Event(), asyncio.Event()
    within_reach = reads.within_reach

    async def slow(pool: Pool, tenant: str, *others: Any) -> RunFilter:
        nonlocal reading
        if tenant == "default":
            async with pool.acquire():
                reading += 1
                if reading >= READS_OF_TENANT:
                    begun.set()
                await done.wait()
        return await within_reach(pool, tenant, *others)

    monkeypatch.setattr(reads, "within_reach", slow)
    other = bearer(await rest.make_key("admin", tenant="rival"))
    asked = [asyncio.create_task(rest.get("/v1/runs?contains=x")) for _ in range(MANY)]
    await begun.wait()
    for path in ("/v1/runs", "/v1/runs?contains=x", "/v1/costs/runs", "/v1/runs/r" + "0" * 24):
        answer = await rest.ask("GET", path, headers=other)
        assert answer.status in (200, 404)
    assert reading == READS_OF_TENANT
    done.set()
    assert {answer.status for answer in await asyncio.gather(*asked)} == {200}


@pytest.mark.parametrize(
    "path",
    [
        "/v1/flow",
        "/v1/flow/runs",
        "/v1/approvals",
        "/v1/calls/x",
        f"/v1/calls?run={RUN}",
        f"/v1/runs/{RUN}/cost",
        f"/v1/runs/{RUN}/compare?other={RUN}",
        f"/v1/runs/{RUN}/steps?values=true",
        "/v1/pipelines/p/canary",
        "/v1/dead-letters",
    ],
)
async def test_what_may_take_long_waits_for_a_place_of_its_tenant(
    rest: Rest, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """And it needs only one: who held one and waited for another might wait for ever."""
    taken: list[str] = []
    place = TenantPlaces.place

    def seen(places: TenantPlaces, tenant: str) -> AbstractAsyncContextManager[None]:
        if places is rest.app.state.context.long_reads:
            taken.append(tenant)
        return place(places, tenant)

    await rest.post("/v1/pipelines", PIPELINE)
    await insert_run(rest.pool, RUN, datetime.now(UTC))
    monkeypatch.setattr(TenantPlaces, "place", seen)
    answer = await rest.get(path)
    assert answer.status < 500, answer.body
    assert taken == ["default"]
