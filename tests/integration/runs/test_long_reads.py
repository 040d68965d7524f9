"""Searches and reports take long, and a process has few connections to the database."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from hocket.admin.context import READS_OF_TENANT
from hocket.admin.queries import Pool
from hocket.admin.runs import reads
from hocket.admin.runs.reads import RunFilter
from hocket.kit.process.limits.tenant_places import TenantPlaces
from hocket.schemas.rest import RunCost
from support.rest_rig import Rest, bearer, running_rest
from support.runs.rows import insert_run, insert_step

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


@pytest.mark.parametrize(
    "path",
    [
        f"/console/compare?a={RUN}&b={RUN}",
        f"/console/runs/{RUN}",
        f"/console/runs/{RUN}?view=steps",
        f"/console/runs/{RUN}?view=calls",
        f"/console/runs/{RUN}?view=logs",
        f"/console/runs/{RUN}?view=journal",
        f"/console/runs/{RUN}/steps/a",
        f"/console/runs/{RUN}/calls/c",
        f"/console/runs/{RUN}/timeline.json",
        f"/console/runs/{RUN}/timeline.json?node=a",
        f"/console/runs/{RUN}/graph.json",
    ],
)
async def test_a_page_of_the_console_waits_for_its_places_one_after_another(
    rest: Rest, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    taken: list[int] = []
    held = 0
    place = TenantPlaces.place

    @asynccontextmanager
    async def seen(places: TenantPlaces, tenant: str) -> AsyncIterator[None]:
        nonlocal held
        is_long = places is rest.app.state.context.long_reads
        async with place(places, tenant):
            held += is_long
            if is_long:
                taken.append(held)
            yield
            held -= is_long

    await rest.post("/v1/pipelines", PIPELINE)
    await insert_run(rest.pool, RUN, datetime.now(UTC), pipeline="p")
    await insert_step(rest.pool, RUN, "a", datetime.now(UTC))
    monkeypatch.setattr(TenantPlaces, "place", seen)
    answer = await rest.get(path)
    assert answer.status == 200, answer.body
    wanted = 2 if "view=" in path else 1  # the page, and its view
    assert taken == [1] * wanted


@pytest.mark.parametrize(
    "page", [f"/console/compare?a={RUN}&b={RUN}", f"/console/runs/{RUN}"], ids=["compare", "run"]
)
async def test_the_pages_of_a_run_leave_connections_for_others(
    rest: Rest, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    reading, done, begun = 0, asyncio.Event(), asyncio.Event()
    run_cost = reads.run_cost

    async def slow(pool: Pool, tenant: str, run_id: str) -> RunCost:
        nonlocal reading
        async with pool.acquire():
            reading += 1
            if reading >= READS_OF_TENANT:
                begun.set()
            await done.wait()
        return await run_cost(pool, tenant, run_id)

    await insert_run(rest.pool, RUN, datetime.now(UTC))
    monkeypatch.setattr(reads, "run_cost", slow)
    other = bearer(await rest.make_key("admin", tenant="rival"))
    asked = [asyncio.create_task(rest.get(page)) for _ in range(MANY)]
    try:
        await begun.wait()
        assert (await rest.ask("GET", "/v1/schedules", headers=other)).status == 200
        assert reading == READS_OF_TENANT
    finally:
        done.set()
    assert {answer.status for answer in await asyncio.gather(*asked)} == {200}
