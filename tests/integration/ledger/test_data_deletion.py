"""All that there is of a tenant or of a customer goes, nothing of others, and the audit tells."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from hocket.admin.schedules import store
from hocket.kit.access import audit_log
from hocket.kit.access.audit_log import Actor
from hocket.kit.postgres import data_deletion
from hocket.kit.postgres.data_deletion import DataInUse, Selection
from hocket.kit.postgres.rollup_tables import REPORTS

FILL = """
INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority, input,
    accepted_at, deadline_at, finished_at, labels)
SELECT 'TENANT-' || customer || n, 0, 'TENANT', 'p', 1, 'succeeded', 'standard', '{"told": "secret"}',
    now(), now(), now(),
    CASE WHEN customer <> '-' THEN jsonb_build_object('customer', customer, 'team', 't') END
FROM unnest(ARRAY['one', 'two', '-']) customer, generate_series(1, 3) n;
INSERT INTO hocket.step (run_id, key, path, type, role, state, attempt, ready_at)
SELECT run_id, 's', 's', 'llm', 'leaf', 'succeeded', 1, now() FROM hocket.run WHERE tenant = 'TENANT';
INSERT INTO hocket.attempt (run_id, key, attempt, outcome, finished_at)
SELECT run_id, 's', 1, 'failed', now() FROM hocket.run WHERE tenant = 'TENANT';
INSERT INTO hocket.usage (call_id, tenant, run_id, model, backend, status, started_at, latency_ms,
    labels)
SELECT run_id, tenant, run_id, 'm', 'b', 'ok', now(), 1, labels FROM hocket.run WHERE tenant = 'TENANT'
UNION ALL
SELECT 'http:TENANT' || request, 'TENANT', 'elsewhere', 'm', 'b', 'ok', now(), 1, '{"customer": "one"}'
FROM unnest('{"", 2:t1, 3:t1:r2:h#0123456789abcdef}'::text[]) request
UNION ALL
SELECT 'alone:TENANT', 'TENANT', NULL, 'm', 'b', 'ok', now(), 1, NULL;
INSERT INTO hocket.kept_charge (run_id, key, tenant, pipeline, version, node, labels, cost_usd,
    finished_at)
SELECT 'TENANT-' || customer, 's', 'TENANT', 'p', 1, 's', jsonb_build_object('customer', customer), 1,
       now() FROM unnest('{one, two}'::text[]) customer;
INSERT INTO hocket.content (call_id, tenant, run_id, model, kept, prompt, answer, started_at)
SELECT split_part(call_id, ':t1', 1), tenant, run_id, model, 'full', '[]', '[]', now() FROM hocket.usage
WHERE tenant = 'TENANT';
INSERT INTO hocket.open_call (call_id, tenant, run_id, model, backend, started_at, deadline_at)
SELECT 'open:' || run_id, tenant, run_id, 'm', 'b', now(), now() FROM hocket.run WHERE tenant = 'TENANT';
INSERT INTO hocket.refused_call (call_id, tenant, run_id, model, error_code, reason, refused_at)
SELECT run_id, tenant, run_id, 'm', 'c', 'r', now() FROM hocket.run WHERE tenant = 'TENANT';
INSERT INTO hocket.price (tenant, model, backend, input_usd_per_mtok, output_usd_per_mtok, request_usd,
    effective_from) VALUES ('TENANT', 'm', 'b', 1, 1, 0, now());
INSERT INTO hocket.step_cache (key, tenant, output, filled_at, fresh_until, filled_run, filled_step,
    expires_at)
SELECT run_id, tenant, '"secret"', now(), now(), run_id, 's', now() FROM hocket.run
WHERE tenant = 'TENANT';
INSERT INTO hocket.tenant_blob (tenant, hash, data) VALUES ('TENANT', repeat('a', 64), 'secret');
INSERT INTO hocket.pipeline (tenant, name, version, spec, spec_hash) VALUES ('TENANT', 'p', 1, '{}', '');
INSERT INTO hocket.duration (tenant, pipeline, path, weight, mean_ms, variance)
VALUES ('TENANT', 'p', 's', 1, 1, 1);
INSERT INTO hocket.outlook (partition, tenant, pipeline, path, weight, mean_ms, variance)
VALUES (0, 'TENANT', 'p', 's', 1, 1, 1);
INSERT INTO retrieval.collection (tenant, name) VALUES ('TENANT', 'papers');
INSERT INTO hocket.bulk_operation (operation_id, tenant, action, filter, matching, created_by)
VALUES ('bTENANT', 'TENANT', 'cancel', '{}', 1, 'test');
INSERT INTO hocket.schedule (schedule_id, tenant, name, description, cron, time_zone, jitter_s, catch_up,
    catch_up_window_s, overlap, task, created_by, changed_by)
VALUES ('sTENANT', 'TENANT', 's', '', '0 0 * * *', 'UTC', 0, 'one', 1, 'skip', '{}', 'test', 'test');
INSERT INTO hocket.schedule_firing (firing_id, schedule_id, tenant, cause, state, planned_at, decided_at)
VALUES ('sTENANT:1', 'sTENANT', 'TENANT', 'on_time', 'pending', now(), now());
INSERT INTO hocket.log_line (tenant, run_id, step, attempt, delivery, number, at, level, text)
SELECT tenant, run_id, 'a', 1, 1, 0, now(), 'info', 'looked up' FROM hocket.run WHERE tenant = 'TENANT';
INSERT INTO hocket.webhook (webhook_id, tenant, name, url, description, events, labels, content, secret,
    created_by, changed_by)
VALUES ('wTENANT', 'TENANT', 'w', 'https://x', '', '{run.failed}', '{}', false, '', 'test', 'test');
INSERT INTO hocket.webhook_delivery (webhook_id, message_id, tenant, event, run_id, body, next_at,
    created_at)
SELECT 'wTENANT', run_id, tenant, 'run.failed', run_id, '{}', now(), now() FROM hocket.run
WHERE tenant = 'TENANT';
INSERT INTO hocket.flow_pipeline (tenant, pipeline) VALUES ('TENANT', 'p');
INSERT INTO hocket.pipeline_release (tenant, name, changed_by) VALUES ('TENANT', 'p', 'somebody');
INSERT INTO hocket.flow_place (run_id, gate, tenant, pipeline, kind, key, rule, accepted_at, since,
    is_last, state)
SELECT run_id, 0, tenant, 'p', 'concurrency', 'secret', '{"limit": 1}', now(), now(), true, 'waiting'
FROM hocket.run WHERE tenant = 'TENANT';
INSERT INTO hocket.flow_start (tenant, pipeline, kind, key, run_id, at, until)
SELECT tenant, 'p', 'throttle', 'secret', run_id, now(), now() FROM hocket.run WHERE tenant = 'TENANT';
"""
OWNED = r"""
SELECT table_schema || '.' || table_name AS name
FROM information_schema.columns
JOIN information_schema.tables USING (table_schema, table_name)
WHERE column_name = 'tenant' AND table_schema IN ('hocket', 'retrieval') AND table_type = 'BASE TABLE'
  AND table_name !~ '^((content|log_line|usage|rollup)_|(step|attempt)(_[0-9]|$))'
  AND table_name NOT IN ('dirty_day', 'stale_day')
ORDER BY 1
"""
"""Partitions are seen through their table, steps and attempts by their runs; rollups and the days that
changed follow from the others."""
STAY = {
    "hocket.api_key",
    "hocket.audit",
    "hocket.last_revision",
    "hocket.pipeline_release",
    "hocket.report_login",
    "hocket.tenant_grants",
}
"""Who may do what, and what was done; and which numbers of versions and revisions there have been."""
ACTOR = Actor("os:test", "database")


@pytest.fixture
async def owner(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database_url)
    for table in ("content", "log_line"):
        await connection.execute(
            f"CREATE TABLE hocket.{table}_all PARTITION OF hocket.{table} DEFAULT"
        )
    for tenant in ("acme", "rival"):
        await connection.execute(FILL.replace("TENANT", tenant))
    yield connection
    await connection.close()


async def rows(owner: asyncpg.Connection, tenant: str) -> dict[str, int]:
    """Count the rows of a tenant in every table that has a column for it, and in those of its runs."""
    found = {
        row["name"]: await owner.fetchval(
            f"SELECT count(*) FROM {row['name']} WHERE tenant = $1", tenant
        )
        for row in await owner.fetch(OWNED)
        if row["name"] not in STAY
    }
    for table in ("step", "attempt"):
        found[table] = await owner.fetchval(
            f"SELECT count(*) FROM hocket.{table} WHERE starts_with(run_id, $1 || '-')", tenant
        )
    return found


async def rolled(owner: asyncpg.Connection, tenant: str) -> int:
    """Count the rows of a tenant in the rollups."""
    found = 0
    for report in REPORTS:
        found += await owner.fetchval(
            f"SELECT count(*) FROM hocket.rollup_{report} WHERE tenant = $1", tenant
        )
    return found


async def test_a_tenants_data_goes_from_every_table_and_no_one_elses(
    owner: asyncpg.Connection,
) -> None:
    others = await rows(owner, "rival")
    before = await rows(owner, "acme")
    assert all(before.values()), "every table has something of the tenant"
    selection = Selection("acme")
    for report in REPORTS:
        await owner.execute(
            f"INSERT INTO hocket.rollup_{report} SELECT * FROM hocket.live_{report}"
        )
    rolled_up = await rolled(owner, "acme")
    assert rolled_up == await rolled(owner, "rival") > 10
    found = await data_deletion.counted(owner, selection)
    assert await rows(owner, "acme") == before
    gone = await data_deletion.deleted(owner, selection, ACTOR)
    assert gone == {name: number for name, number in found.items() if name != "in_flight"}
    assert sum(gone.values()) == sum(before.values())
    assert not any((await rows(owner, "acme")).values())
    had = "SELECT last_version, changed_by FROM hocket.pipeline_release WHERE tenant = 'acme'"
    assert [tuple(row) for row in await owner.fetch(had)] == [(1, "")]
    assert await rows(owner, "rival") == others
    assert await rolled(owner, "acme") == 0
    assert await rolled(owner, "rival") == rolled_up
    told = [row async for row in audit_log.rows(owner)]
    assert [(row.action, row.target, row.tenant, row.actor) for row in told] == [
        ("data.delete", "tenant:acme", "acme", "os:test"),
        ("data.deleted", "tenant:acme", "acme", "os:test"),
    ]
    assert json.loads(told[0].after or "")["found"] == found
    assert json.loads(told[1].after or "")["deleted"] == gone


async def test_a_customers_data_goes_and_the_tenants_other_customers_stay(
    owner: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_deletion, "MAX_ROWS", 2)  # in pieces
    before, others = await rows(owner, "acme"), await rows(owner, "rival")
    gone = await data_deletion.deleted(owner, Selection("acme", ("customer", "one")), ACTOR)
    assert gone == {
        "runs": 3,
        "steps": 3,
        "attempts": 3,
        "content": 6,
        "log_lines": 3,
        "calls": 6,
        "charges": 1,
        "open_calls": 3,
        "refused_calls": 3,
        "webhook_deliveries": 3,
        "cached_outputs": 3,
        "flow_places": 3,
        "flow_starts": 3,
    }
    after = await rows(owner, "acme")
    assert sum(before.values()) - sum(after.values()) == sum(gone.values())
    left = await owner.fetch("SELECT labels FROM hocket.usage WHERE tenant = 'acme'")
    assert len(left) == 7
    assert not any("one" in (row["labels"] or "") for row in left)
    assert await rows(owner, "rival") == others


async def test_what_is_left_of_a_customers_runs_that_retention_deleted_goes_too(
    owner: asyncpg.Connection,
) -> None:
    gone_before = ["acme-one1", "acme-two1"]
    await owner.execute("SET hocket.deletes = 'on'")
    for table in ("step", "attempt", "run"):
        await owner.execute(f"DELETE FROM hocket.{table} WHERE run_id = ANY ($1)", gone_before)
    await owner.execute(
        "INSERT INTO hocket.usage (call_id, tenant, run_id, model, backend, status, started_at,"
        " latency_ms, labels) VALUES"
        " ('http:other', 'acme', 'acme-two1', 'm', 'b', 'ok', now(), 1, '{\"customer\": \"one\"}')"
    )
    selection = Selection("acme", ("customer", "one"))
    found = await data_deletion.counted(owner, selection)
    gone = await data_deletion.deleted(owner, selection, ACTOR)
    assert gone == {name: number for name, number in found.items() if name != "in_flight"}
    left = dict.fromkeys(gone_before, 0)
    for table, column in (
        ("log_line", "run_id"),
        ("step_cache", "filled_run"),
        ("webhook_delivery", "run_id"),
        ("refused_call", "run_id"),
        ("open_call", "run_id"),
    ):
        for run_id in gone_before:
            asked = f"SELECT count(*) FROM hocket.{table} WHERE {column} = $1"
            left[run_id] += await owner.fetchval(asked, run_id)
    assert left == {"acme-one1": 0, "acme-two1": 5}


async def test_runs_in_flight_and_what_they_repeat_are_not_deleted_under_them(
    owner: asyncpg.Connection,
) -> None:
    before = await rows(owner, "acme")
    for facts, customer in (({}, "one"), ({"origin": {"run_id": "acme-one1"}}, "two")):
        await owner.execute(
            "UPDATE hocket.run SET finished_at = NULL, status = 'running', facts = $2"
            " WHERE run_id = 'acme-' || $1 || '2'",
            customer,
            json.dumps(facts),
        )
        with pytest.raises(DataInUse) as refused:
            await data_deletion.deleted(owner, Selection("acme", ("customer", "one")), ACTOR)
        assert "1 runs" in str(refused.value)
        await owner.execute(
            "UPDATE hocket.run SET finished_at = now(), status = 'succeeded' WHERE finished_at IS NULL"
        )
    assert await rows(owner, "acme") == before


async def test_a_run_that_begins_during_a_deletion_keeps_what_it_needs(
    owner: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    emptied = data_deletion._emptied

    async def begun_meanwhile(connection: asyncpg.Connection, table: str, *values: Any) -> int:
        if table == "hocket.run":
            await owner.execute(
                """
                INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority,
                                        input, accepted_at, deadline_at)
                VALUES ('acme-new', 0, 'acme', 'p', 1, 'running', 'standard', '{}', now(), now())
                """
            )
        return await emptied(connection, table, *values)

    monkeypatch.setattr(data_deletion, "_emptied", begun_meanwhile)
    with pytest.raises(DataInUse, match="Only runs that had ended were deleted"):
        await data_deletion.deleted(owner, Selection("acme"), ACTOR)
    left = await rows(owner, "acme")
    assert (left["hocket.run"], left["hocket.pipeline"], left["hocket.tenant_blob"]) == (1, 1, 1)


async def test_a_rejected_run_that_begins_anew_during_a_deletion_keeps_its_steps(
    owner: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its task came again, with the same key."""
    before = await rows(owner, "acme")
    emptied, begun = data_deletion._emptied, "acme-one1"

    async def beginning(connection: asyncpg.Connection, table: str, *given: Any) -> int:
        if table == "hocket.step":
            await owner.execute(
                "UPDATE hocket.run SET status = 'running', finished_at = NULL WHERE run_id = $1",
                begun,
            )
        return await emptied(connection, table, *given)

    monkeypatch.setattr(data_deletion, "_emptied", beginning)
    with pytest.raises(DataInUse, match="1 runs of it are in flight"):
        await data_deletion.deleted(owner, Selection("acme"), ACTOR)
    after = await rows(owner, "acme")
    for table in ("step", "attempt", "hocket.run", "hocket.flow_place", "hocket.open_call"):
        assert (before[table], after[table]) == (9, 1), table


FORMER = """
INSERT INTO hocket.usage (call_id, tenant, run_id, model, backend, status, started_at, latency_ms,
    labels)
VALUES ('acme-two1', 'acme', 'acme-two1', 'm', 'b', 'ok', $1, 1, '{"customer": "one"}')
-
INSERT INTO hocket.kept_charge (run_id, key, tenant, pipeline, version, node, labels, cost_usd,
    finished_at)
VALUES ('acme-two1', 's', 'acme', 'p', 1, 's', '{"customer": "one"}', 1, $1)
-
INSERT INTO hocket.content (call_id, tenant, run_id, model, kept, prompt, answer, started_at, kept_at)
VALUES ('acme-two1', 'acme', 'acme-two1', 'm', 'full', '[]', '[]', $1, $1)
-
INSERT INTO hocket.log_line (tenant, run_id, step, attempt, delivery, number, at, level, text, kept_at)
VALUES ('acme', 'acme-two1', 'a', 1, 1, 0, $1, 'info', 'looked up', $1)
-
INSERT INTO hocket.step_cache (key, tenant, output, filled_at, fresh_until, filled_run, filled_step,
    expires_at)
VALUES ('former', 'acme', '"secret"', $1, $1, 'acme-two1', 's', now())
-
INSERT INTO hocket.refused_call (call_id, tenant, run_id, model, error_code, reason, refused_at)
VALUES ('former', 'acme', 'acme-two1', 'm', 'c', 'r', $1)
"""
"""What is left of a deleted run of customer one, with the id of a run of customer two."""


@pytest.mark.parametrize("customer", ["one", "two"])
async def test_what_is_left_of_a_run_whose_id_another_customers_run_has_goes_with_its_own_customer(
    owner: asyncpg.Connection, customer: str
) -> None:
    by_run = {
        "usage": ("run_id", "started_at"),
        "kept_charge": ("run_id", "finished_at"),
        "content": ("run_id", "kept_at"),
        "log_line": ("run_id", "kept_at"),
        "step_cache": ("filled_run", "filled_at"),
        "refused_call": ("run_id", "refused_at"),
    }
    at = datetime.now(UTC) - timedelta(days=40)
    for statement in FORMER.split("-\n"):
        await owner.execute(statement, at)
    selection = Selection("acme", ("customer", customer))
    found = await data_deletion.counted(owner, selection)
    gone = await data_deletion.deleted(owner, selection, ACTOR)
    assert gone == {name: number for name, number in found.items() if name != "in_flight"}
    left = {}
    for table, (column, time) in by_run.items():
        asked = f"SELECT {time} < now() - interval '1 day' FROM hocket.{table} WHERE {column} = $1"
        left[table] = [row[0] for row in await owner.fetch(asked, "acme-two1")]
    if customer == "one":  # what the present run has stays; it has no charge
        assert left == {table: [False] for table in by_run} | {"kept_charge": []}
    else:  # nothing says of the others whose they are
        former = {"usage": [True], "kept_charge": [True]}
        assert left == {table: [] for table in by_run} | former


async def test_a_schedule_does_not_wait_for_a_run_that_was_deleted(
    owner: asyncpg.Connection,
) -> None:
    await owner.execute(
        "UPDATE hocket.schedule_firing SET state = 'fired', fired_at = now(), run_id = 'acme-one1'"
        " WHERE tenant = 'acme'"
    )
    open_runs = await owner.fetch(store.OPEN, "sacme")
    assert [row["run_id"] for row in open_runs] == ["acme-one1"]
    await data_deletion.deleted(owner, Selection("acme", ("customer", "one")), ACTOR)
    assert await owner.fetch(store.OPEN, "sacme") == []


@pytest.mark.parametrize("end", ["done", "failed", "cancelled"])
async def test_a_session_that_deleted_may_delete_nothing_more(
    owner: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """It goes back to a pool, which does not reset it."""
    emptied, came = data_deletion._emptied, asyncio.Event()

    async def ending(connection: asyncpg.Connection, table: str, *given: Any) -> int:
        if table == "hocket.run" and end == "failed":
            raise asyncpg.QueryCanceledError
        if table == "hocket.run" and end == "cancelled":
            came.set()
            await connection.execute("SELECT pg_sleep(60)")
        return await emptied(connection, table, *given)

    monkeypatch.setattr(data_deletion, "_emptied", ending)
    monkeypatch.setattr(data_deletion, "RESET_TIMEOUT_S", 60.0)  # then the connection is closed
    deleting = asyncio.create_task(data_deletion.deleted(owner, Selection("acme"), ACTOR))
    if end == "cancelled":
        await came.wait()
        deleting.cancel()
    await asyncio.wait({deleting})
    assert await owner.fetchval("SELECT current_setting('hocket.deletes')") == ""
    with pytest.raises(asyncpg.PostgresError, match="hocket data delete"):
        await owner.execute("DELETE FROM hocket.step")
