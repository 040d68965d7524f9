"""Searches and reports take long, and a process has few connections to the database."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hocket.admin.context import READS_OF_TENANT
from hocket.admin.queries import Pool
from hocket.admin.runs import reads
from hocket.admin.runs.reads import RunFilter
from support.rest_rig import Rest, bearer, running_rest

BOUND_S = 60.0
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
