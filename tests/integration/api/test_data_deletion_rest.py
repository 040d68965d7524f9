"""A tenant's data, or a customer's, is deleted over REST: all of it, by admins only, and named twice."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from hocket.admin.data import endpoints
from hocket.kit.postgres import data_deletion
from support.rest_rig import Rest, bearer, running_rest

RUNS = """
INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority, input,
    accepted_at, deadline_at, finished_at, labels)
SELECT tenant || '-' || customer || n, 0, tenant, 'p', 1, 'succeeded', 'standard', '{}', now(), now(),
    now(), jsonb_build_object('customer', customer)
FROM unnest(ARRAY['default', 'rival']) tenant, unnest(ARRAY['one', 'two']) customer,
    generate_series(1, 3) n
"""
LEFT = "SELECT array_agg(DISTINCT tenant || '/' || (labels ->> 'customer')) FROM hocket.run"


@pytest.fixture
async def rest(nats_url: str, database_url: str) -> AsyncIterator[Rest]:
    async with running_rest(nats_url, database_url) as rest:
        await rest.pool.execute(RUNS)
        yield rest


async def test_a_customers_data_goes_and_then_the_tenants(rest: Rest) -> None:
    wanted = {"tenant": "default", "label": {"customer": "one"}}
    counted = await rest.post("/v1/data/delete", {**wanted, "dry_run": True})
    assert (counted.status, counted.body["complete"], counted.body["rows"]["runs"]) == (
        200,
        False,
        3,
    )
    deleted = await rest.post("/v1/data/delete", wanted)
    assert (deleted.status, deleted.body["complete"], deleted.body["rows"]["runs"]) == (
        200,
        True,
        3,
    )
    assert sorted(await rest.pool.fetchval(LEFT)) == ["default/two", "rival/one", "rival/two"]
    assert (await rest.post("/v1/data/delete", {"tenant": "default"})).body["complete"]
    assert sorted(await rest.pool.fetchval(LEFT)) == ["rival/one", "rival/two"]
    audited = await rest.pool.fetch("SELECT action, target FROM hocket.audit ORDER BY 1")
    told = [tuple(row) for row in audited if row["action"].startswith("data.")]
    assert sorted(told) == [
        (action, target)
        for action in ("data.delete", "data.deleted")
        for target in ("label:customer=one", "tenant:default")
    ]


async def test_nothing_goes_of_another_tenant_in_flight_or_by_mistake(rest: Rest) -> None:
    other = await rest.post("/v1/data/delete", {"tenant": "rival"})
    assert (other.status, other.body["code"]) == (409, "tenant_unconfirmed")
    two = {"tenant": "default", "label": {"customer": "one", "team": "x"}}
    assert (await rest.post("/v1/data/delete", two)).status == 422
    key = await rest.make_key("developer")
    denied = await rest.post("/v1/data/delete", {"tenant": "default"}, headers=bearer(key))
    assert (denied.status, denied.body["code"]) == (403, "permission_missing")
    await rest.pool.execute(
        "UPDATE hocket.run SET finished_at = NULL, status = 'running' WHERE run_id = 'default-one1'"
    )
    busy = await rest.post("/v1/data/delete", {"tenant": "default"})
    assert (busy.status, busy.body["code"]) == (409, "data_in_use")
    assert await rest.pool.fetchval("SELECT count(*) FROM hocket.run") == 12


@pytest.mark.parametrize("given", [0, 1, "false", "no", "off", None])
async def test_whether_it_is_a_dry_run_is_never_guessed(rest: Rest, given: object) -> None:
    guessed = await rest.post("/v1/data/delete", {"tenant": "default", "dry_run": given})
    assert (guessed.status, guessed.body["field"]) == (422, "dry_run")
    assert await rest.pool.fetchval("SELECT count(*) FROM hocket.run") == 12


async def test_a_deletion_that_has_no_time_left_says_so_and_the_next_goes_on(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as short:
        short.setattr(endpoints, "DELETION_S", 0.0)
        cut = await rest.post("/v1/data/delete", {"tenant": "default"})
        assert (cut.status, cut.body["complete"]) == (200, False)
    assert (await rest.post("/v1/data/delete", {"tenant": "default"})).body["complete"]
    assert sorted(await rest.pool.fetchval(LEFT)) == ["rival/one", "rival/two"]


async def test_a_deletion_goes_on_where_counting_takes_longer_than_a_request(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slow(*_: object) -> dict[str, int]:
        await asyncio.sleep(60)
        return {}

    monkeypatch.setattr(endpoints, "DELETION_S", 5.0)
    monkeypatch.setattr(data_deletion, "counted", slow)
    deleted = await rest.post("/v1/data/delete", {"tenant": "default"})
    assert (deleted.body["complete"], deleted.body["rows"]["runs"]) == (True, 6)
    assert sorted(await rest.pool.fetchval(LEFT)) == ["rival/one", "rival/two"]
