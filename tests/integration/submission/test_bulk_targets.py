"""Which runs a bulk operation means: counted with few connections, and just those are changed."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import asyncpg
import pytest

from hocket.admin.bulk import operations, store, targets
from hocket.admin.context import READS_OF_TENANT
from hocket.schemas import subjects
from hocket.schemas.administration.bulk import BulkFilter
from hocket.schemas.messages import read_log
from support.ledger_rig import until
from support.rest_rig import Rest, running_rest

BOUND_S = 60.0
NOW = datetime.now(UTC)
HOUR = timedelta(hours=1)
INSERT = """
INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority, input,
    accepted_at, deadline_at, finished_at, spent_usd, parent, facts)
VALUES ($1, 0, 'default', 'greet', 1, $2, 'standard', '{"name": "Ada"}', $3, $4, $5, $6,
    CASE WHEN $7::text IS NOT NULL THEN jsonb_build_object('run_id', $7::text) END, $8)
"""
CALL = """
INSERT INTO hocket.usage (call_id, tenant, run_id, model, backend, status, cost_usd, started_at,
    latency_ms)
VALUES ($1, 'default', $2, 'm', 'b', 'ok', $3, $4, 1)
"""
WAITING = "SELECT count(*) FROM pg_locks WHERE relation = 'hocket.run'::regclass AND NOT granted"


@pytest.fixture
async def rest(
    nats_url: str, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Rest]:
    monkeypatch.setattr(operations, "SETTLE_S", 0.0)  # there is no coordinator to wait for
    async with running_rest(nats_url, database_url) as rest, asyncio.timeout(BOUND_S):
        yield rest


def run_id(number: int) -> str:
    return f"r{number:024x}"


async def add(rest: Rest, number: int, **facts: Any) -> str:
    """Insert a run, accepted `number` minutes ago unless `accepted_at` is given."""
    accepted_at = facts.get("accepted_at", NOW - timedelta(minutes=number))
    status = facts.get("status", "running")
    stored = {name: facts[name] for name in ("origin", "paused_at_ms") if name in facts}
    await rest.pool.execute(
        INSERT,
        run_id(number),
        status,
        accepted_at,
        facts.get("deadline_at", NOW + HOUR),
        None if status == "running" else accepted_at,
        facts.get("spent_usd", 0),
        facts.get("parent"),
        json.dumps(stored) if stored else None,
    )
    return run_id(number)


async def worked_off(rest: Rest, operation_id: str) -> dict[str, Any]:
    """Change pages of the only operation until it is done; return it with the number of pages."""
    for pages in range(1, 50):
        row = await rest.pool.fetchrow(store.CLAIM, "one", store.LEASE_S)
        await operations.change_page(rest.app.state.context, "one", row)
        await rest.pool.execute(store.RELEASE, operation_id, "one")
        shown = (await rest.get(f"/v1/bulk/operations/{operation_id}")).body
        if shown["state"] == "done":
            return {**shown, "pages": pages}
    raise AssertionError("it has no end")


async def cancelled(rest: Rest) -> set[str]:
    """Return the runs that the logs were asked to cancel."""
    last = (await rest.bus.js.stream_info(subjects.LOG)).state.last_seq
    messages = [await rest.bus.js.get_msg(subjects.LOG, seq) for seq in range(1, last + 1)]
    return {event.run_id for one in messages for event in read_log("cancel", one.data or b"")}


@asynccontextmanager
async def locked_runs(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """Keep everything that reads runs waiting while the block lasts."""
    connection = await asyncpg.connect(database_url)
    try:
        async with connection.transaction():
            await connection.execute("LOCK TABLE hocket.run IN ACCESS EXCLUSIVE MODE")
            yield connection
    finally:
        await connection.close()


async def test_many_previews_of_a_tenant_leave_connections_to_others(
    rest: Rest, database_url: str
) -> None:
    asked = {"action": "retry", "filter": {"deadline_missed": True}}
    async with locked_runs(database_url) as connection:
        previews = [asyncio.create_task(rest.post("/v1/bulk/preview", asked)) for _ in range(10)]
        tenants = rest.app.state.context.long_reads._tenants

        async def all_came() -> bool:
            return "default" in tenants and tenants["default"].clients == len(previews)

        async def some_count() -> bool:
            return int(await connection.fetchval(WAITING)) >= READS_OF_TENANT

        await until(all_came)
        await until(some_count)
        assert (await rest.get("/v1/bulk/operations")).status == 200
        assert await connection.fetchval(WAITING) == READS_OF_TENANT
    assert {(one.status, one.body["matching"]) for one in await asyncio.gather(*previews)} == {
        (200, 0)
    }


@pytest.mark.parametrize("path", ["preview", "operations"])
async def test_a_count_that_takes_too_long_is_answered_with_what_to_do(
    rest: Rest, database_url: str, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    async with locked_runs(database_url):
        monkeypatch.setattr(targets, "COUNT_TIMEOUT_S", 0.05)
        refused = await rest.post(f"/v1/bulk/{path}", {"action": "cancel"})
    assert (refused.status, refused.error["code"]) == (422, "bulk_count_too_long")
    assert refused.body["field"] == "filter"
    assert "Choose a shorter time span (`since`, `until`)" in refused.body["detail"]
    assert await rest.pool.fetchval("SELECT count(*) FROM hocket.bulk_operation") == 0
    monkeypatch.undo()
    timeout = "SELECT current_setting('statement_timeout')"
    assert {await rest.pool.fetchval(timeout) for _ in range(8)} == {"0"}


async def test_what_is_accepted_while_runs_are_counted_is_not_cancelled_in_their_place(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    meant = {await add(rest, number) for number in (1, 2, 3)}
    counted = targets.count

    async def count(*given: Any) -> Any:
        found = await counted(*given)
        for number in (4, 5, 6):
            await add(rest, number, accepted_at=datetime.now(UTC))
        return found

    monkeypatch.setattr(targets, "count", count)
    begun = (await rest.post("/v1/bulk/operations", {"action": "cancel"})).body
    done = await worked_off(rest, begun["operation_id"])
    assert (done["matching"], done["changed"]) == (3, 3)
    assert await cancelled(rest) == meant


async def test_what_was_accepted_before_the_count_and_stored_after_it_takes_no_counted_ones_place(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(operations.PAGES, "cancel", 3)
    meant = {await add(rest, number) for number in range(4, 9)}
    begun = (await rest.post("/v1/bulk/operations", {"action": "cancel"})).body
    meant |= {await add(rest, number) for number in (1, 2)}
    done = await worked_off(rest, begun["operation_id"])
    assert (begun["matching"], done["matching"], done["changed"]) == (5, 7, 7)
    assert await cancelled(rest) == meant


async def test_what_misses_its_deadline_later_is_not_cancelled_in_place_of_what_was_counted(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(operations.PAGES, "cancel", 2)
    late = {await add(rest, number, deadline_at=NOW - HOUR) for number in (7, 8)}
    soon = [await add(rest, number) for number in (1, 2)]
    change = {"action": "cancel", "filter": {"deadline_missed": True}}
    begun = (await rest.post("/v1/bulk/operations", change)).body
    missed = "UPDATE hocket.run SET deadline_at = clock_timestamp() WHERE run_id = ANY ($1)"
    await rest.pool.execute(missed, soon)
    done = await worked_off(rest, begun["operation_id"])
    assert (done["matching"], done["changed"]) == (2, 2)
    assert await cancelled(rest) == late


async def test_a_run_whose_deadline_is_paused_has_not_missed_it(rest: Rest) -> None:
    paused_at = NOW - 2 * HOUR
    late = await add(rest, 1, deadline_at=NOW - HOUR)
    ended = await add(rest, 2, deadline_at=NOW - HOUR, status="failed")
    paused = await add(rest, 3, deadline_at=NOW - HOUR, paused_at_ms=paused_at.timestamp() * 1_000)
    listed = (await rest.get("/v1/runs?deadline_missed=true")).body["runs"]
    assert {run["run_id"] for run in listed} == {late, ended}
    every = {run["run_id"]: run for run in (await rest.get("/v1/runs")).body["runs"]}
    assert [every[run]["deadline_paused_at"] for run in (late, ended)] == [None, None]
    for told in (every[paused], (await rest.get(f"/v1/runs/{paused}")).body):
        assert datetime.fromisoformat(told["deadline_paused_at"]) == paused_at

    change = {"action": "cancel", "filter": {"deadline_missed": True, "pipeline": "greet"}}
    begun = (await rest.post("/v1/bulk/operations", change)).body
    done = await worked_off(rest, begun["operation_id"])
    assert (done["matching"], done["changed"]) == (1, 1)
    assert await cancelled(rest) == {late}


async def test_late_runs_are_not_taken_for_rare(rest: Rest) -> None:
    """Otherwise Postgres would read and sort all open runs for the first page of them."""
    await rest.pool.execute(
        """INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority,
                                   input, accepted_at, deadline_at, spent_usd)
           SELECT 'r' || lpad(n::text, 24, '0'), 0, 'default', 'greet', 1, 'running', 'standard', '{}',
                  now() - interval '2 h', now() - interval '1 h', 0
           FROM generate_series(1, 1000) n"""
    )
    await rest.pool.execute("ANALYZE hocket.run")
    overdue = targets.MISSED["cancel"].replace("$2", "now()")
    plan = await rest.pool.fetchval(f"EXPLAIN (FORMAT JSON) SELECT FROM hocket.run WHERE {overdue}")
    assert json.loads(plan)[0]["Plan"]["Plan Rows"] > 100


async def test_a_page_compares_only_so_many_runs_and_the_next_goes_on_behind_them(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets, "TRIED_RUNS", 3)
    for number in range(1, 11):
        await add(rest, number)
    late = {await add(rest, number, deadline_at=NOW - HOUR) for number in (11, 12, 13, 14)}
    change = {"action": "cancel", "filter": {"deadline_missed": True}}
    begun = (await rest.post("/v1/bulk/operations", change)).body
    row = await rest.pool.fetchrow(store.CLAIM, "one", store.LEASE_S)
    first = await operations.change_page(rest.app.state.context, "one", row)
    await rest.pool.execute(store.RELEASE, begun["operation_id"], "one")
    assert first is not None
    assert (first["changed"], first["place"].split(":")[1]) == (0, run_id(3))
    done = await worked_off(rest, begun["operation_id"])
    assert (done["changed"], done["pages"]) == (4, 4)
    assert await cancelled(rest) == late


async def test_a_cost_that_is_asked_for_has_what_calls_of_the_http_door_cost(rest: Rest) -> None:
    early = NOW - timedelta(days=2)  # a run that was deleted had the same id
    await add(rest, 1, accepted_at=early)
    await rest.pool.execute(CALL, "http:0", run_id(1), Decimal(9), early)
    await rest.pool.execute("DELETE FROM hocket.run")
    await add(rest, 1, spent_usd=3)
    await add(rest, 2, spent_usd=1)
    await add(rest, 3, parent=run_id(2))
    await add(rest, 4, parent=run_id(3))
    await add(rest, 5, accepted_at=NOW + 2 * HOUR)  # not yet accepted when they are counted
    await add(rest, 6, spent_usd=5, status="failed")
    for name, run, usd, started_at in (
        ("http:1", 4, "1.5", NOW),
        ("http:2", 2, "0.5", NOW),
        (f"{run_id(4)}:s:1:1:0", 4, "7", NOW),  # spent_usd has it
        ("http:3", 5, "9", NOW + 2 * HOUR),
        ("http:4", 99, "9", NOW),
    ):
        await rest.pool.execute(CALL, name, run_id(run), Decimal(usd), started_at)

    async def matching(usd: str, **others: str) -> int:
        change = {"action": "cancel", "filter": {"min_cost_usd": usd, **others}}
        return int((await rest.post("/v1/bulk/preview", change)).body["matching"])

    costs = ("0.5", "1.5", "1.51", "2", "3", "3.01")
    # of 1 to 4: 3, 1 + 0.5 + 1.5 = 3, 1.5, 1.5
    assert [await matching(usd, pipeline="greet") for usd in costs] == [4, 4, 2, 2, 2, 0]
    assert [await matching(usd) for usd in costs] == [2, 2, 2, 2, 2, 0]
    change = {"action": "cancel", "filter": {"min_cost_usd": "2"}}
    begun = (await rest.post("/v1/bulk/operations", change)).body
    done = await worked_off(rest, begun["operation_id"])
    assert (done["matching"], done["changed"]) == (2, 2)
    assert await cancelled(rest) == {run_id(1), run_id(2)}


@pytest.mark.parametrize("others", [{}, {"min_cost_usd": "0.01"}], ids=["all", "costly ones"])
async def test_neither_sub_runs_nor_retried_runs_are_retried(
    rest: Rest, others: dict[str, str]
) -> None:
    """A retry does the work of its sub-runs, and a retry that failed is retried itself."""
    failed = {"status": "failed", "spent_usd": 1}

    async def repeat(number: int, of: int, status: str, operation: str = "retry") -> str:
        origin = {"run_id": run_id(of), "operation": operation}
        return await add(rest, number, **failed | {"status": status}, origin=origin)

    for number in range(11, 18):
        await add(rest, number, **failed)
    await add(rest, 9, **failed, parent=run_id(17))  # the run that waited for it is retried
    await add(rest, 8, **failed | {"status": "cancelled"}, parent=run_id(99))
    await repeat(1, of=11, status="running")
    await repeat(2, of=12, status="succeeded")
    open_ones = {await repeat(3, of=13, status="failed"), await repeat(4, of=14, status="degraded")}
    await repeat(5, of=15, status="rejected")
    await repeat(6, of=16, status="succeeded", operation="rerun")
    meant = open_ones | {run_id(number) for number in (15, 16, 17)}

    change = {"action": "retry", "filter": {"pipeline": "greet", **others}}
    preview = (await rest.post("/v1/bulk/preview", change)).body
    context, at = rest.app.state.context, datetime.now(UTC)
    wanted = BulkFilter.model_validate(change["filter"])
    page = await targets.next_page(
        context.pool, targets.Targets("default", "retry", wanted, at), "", 100
    )

    assert {row["run_id"] for row in page.runs} == meant
    assert preview["matching"] == len(meant)


async def test_sub_runs_are_cancelled_alone_only_if_their_pipeline_is_named(rest: Rest) -> None:
    """Otherwise they end with the run that started them, whose step does not fail before."""
    above = await add(rest, 2)
    below = await add(rest, 1, parent=above)
    for wanted, meant in (({}, {above}), ({"pipeline": "greet"}, {above, below})):
        change = {"action": "cancel", "filter": wanted}
        begun = (await rest.post("/v1/bulk/operations", change)).body
        await worked_off(rest, begun["operation_id"])
        assert (begun["matching"], await cancelled(rest)) == (len(meant), meant)
