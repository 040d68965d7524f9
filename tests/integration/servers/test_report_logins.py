"""Logins for reports on a real Postgres: they read their tenant's rows, and nothing else."""

import asyncio
import base64
import itertools
import json
import os
import sys
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from hocket.admin.pipelines import versions
from hocket.kit.access.audit_log import Actor
from hocket.kit.postgres import migrations, report_logins
from hocket.kit.postgres.report_logins import (
    ReportLoginExists,
    ReportLoginInvalid,
    ReportLoginUnknown,
    Revoked,
)
from hocket.kit.postgres.rollup_tables import REPORTS
from hocket.schemas.pipeline.plan import compile_pipeline

ADA = Actor("ada", "127.0.0.1")

BOUND_S = 60.0
VIEWS = (
    "usage",
    "cost_by_pipeline_day",
    "cost_by_run",
    "cost_by_node",
    "cost_by_kind",
    "cost_by_label",
    "cache_savings",
    "critical_path",
    "run_critical_path",
    "experiments",
    "lost_calls",
    "slo_attainment",
    "runs_by_hour",
    "prices",
    "unpriced_calls",
    "ledger",
    "cost_by_model",
    "cost_by_tenant",
    "cost_by_outcome",
    "unit_cost",
    "waste",
    "prompt_cache_savings",
    "month_forecast",
    "run_budgets",
    "latency_by_node",
    "bottleneck",
    "experiment_results",
    "model_swap",
)
OF_THE_HOUSE = ("shared_cost", "warm_time", "warm_by_model_day", "retention")
"""Views without tenants."""

FILL = """
INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority, input, output,
                        accepted_at, deadline_at, finished_at, critical_path)
VALUES ('run-TENANT', 0, 'TENANT', 'pipeline-TENANT', 1, 'succeeded', 'standard',
        '{"prompt": "secret-TENANT"}', '"secret-TENANT"', now() - interval '1 h', now(), now(),
        '[["draft", "draft", 1, "execution", 1000, 1]]');
INSERT INTO hocket.step (run_id, key, path, type, role, state, attempt, input, ready_at, finished_at,
                         facts)
VALUES ('run-TENANT', 'draft', 'draft', 'llm', 'step', 'succeeded', 1, '"secret-TENANT"', now(), now(),
        '{"source": {"kind": "cache", "saved_usd": "1"}}');
INSERT INTO hocket.usage (call_id, tenant, pipeline, version, run_id, node, step, attempt, model,
                          backend, status, cost_usd, started_at, latency_ms, experiment, arm, labels)
VALUES ('call-TENANT', 'TENANT', 'pipeline-TENANT', 1, 'run-TENANT', 'draft', 'draft', 1, 'm', 'b', 'ok',
        0.5, now(), 1, 'trial', 'a', '{"customer": "of-TENANT"}');
INSERT INTO hocket.usage (call_id, tenant, pipeline, model, backend, status, input_tokens, started_at,
                          latency_ms, unpriced)
VALUES ('free-TENANT', 'TENANT', 'pipeline-TENANT', 'm', 'b', 'ok', 9, now(), 1, true);
INSERT INTO hocket.price (tenant, model, backend, input_usd_per_mtok, output_usd_per_mtok, request_usd,
                          effective_from)
VALUES ('TENANT', 'm', 'b', 1, 1, 0, now()), ('TENANT', 'other', 'o', 2, 3, 0.5, now()),
       ('TENANT', 'renamed', 'b', 2, 3, 0, now()), ('TENANT', 'vectors', 'v', 1, 0, 0, now());
INSERT INTO hocket.usage (call_id, kind, tenant, pipeline, version, run_id, node, step, attempt, model,
                          backend, status, input_tokens, output_tokens, cached_tokens,
                          input_usd_per_mtok, cached_usd_per_mtok, cost_usd, started_at, latency_ms)
VALUES ('lost-TENANT', 'cascade', 'TENANT', 'pipeline-TENANT', 1, 'run-TENANT', 'draft', 'draft', 1, 'm',
        'b', 'ok', 3000000, 1000000, 1000000, 1, 0.25, 1, now(), 1);
UPDATE hocket.run SET budget_usd = 2, spent_usd = 1.5 WHERE run_id = 'run-TENANT';
INSERT INTO hocket.step (run_id, key, path, type, role, state, attempt, ready_at, dispatched_at,
                         started_at, finished_at, took_ms, facts)
VALUES ('run-TENANT', 'look', 'look', 'http', 'leaf', 'succeeded', 1, now() - interval '3 s',
        now() - interval '3 s', now() - interval '2 s', now(), 1900, '{"charged_usd": "0.02"}');
INSERT INTO hocket.open_call (call_id, tenant, pipeline, model, backend, started_at, deadline_at)
VALUES ('open-TENANT', 'TENANT', 'pipeline-TENANT', 'm', 'b', now() - interval '1 h',
        now() - interval '1 h');
"""
SHARED = """
INSERT INTO hocket.warm_time (record_id, backend, model, from_at, to_at)
VALUES ('w', 'spare', 'm', now(), now());
INSERT INTO hocket.retention (kind, days, last_pass_at) VALUES ('runs', 30, now());
"""


@pytest.fixture
async def owner(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database_url, timeout=BOUND_S)
    for tenant in ("acme", "rival"):
        await connection.execute(FILL.replace("TENANT", tenant))
    await connection.execute(SHARED)
    yield connection
    for one in await report_logins.logins(connection):
        await report_logins.revoke(connection, one.name)
    await connection.close()


def url_of(database_url: str, login: str, password: str = "right-secret") -> str:
    parts = urlsplit(database_url)
    place = parts.netloc.rpartition("@")[2]
    return f"postgresql://{login}:{password}@{place}{parts.path}" + (
        f"?{parts.query}" if parts.query else ""
    )


@pytest.fixture
async def reader(owner: asyncpg.Connection, database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection of a login that reads the tenant `acme`."""
    await report_logins.create(owner, "acme_bi", "acme", "right-secret")
    url = url_of(database_url, "acme_bi")
    connection = await asyncpg.connect(url, timeout=BOUND_S, statement_cache_size=0)
    yield connection
    await connection.close()


async def test_every_view_shows_a_login_its_tenants_rows_and_no_others(
    owner: asyncpg.Connection, reader: asyncpg.Connection
) -> None:
    there_are = await owner.fetch("SELECT viewname FROM pg_views WHERE schemaname = 'report'")
    assert {row["viewname"] for row in there_are} == {*VIEWS, *OF_THE_HOUSE}
    for view in VIEWS:
        theirs = await reader.fetch(f"SELECT t::text AS row FROM report.{view} t")
        assert theirs, view
        all_of_it = await owner.fetch(
            f"SELECT t::text AS row FROM report.{view} t WHERE tenant IS NOT NULL"
        )
        assert len(all_of_it) == 2 * len(theirs), view
        assert not any("rival" in row["row"] for row in theirs), view


async def test_rollups_show_a_login_its_tenants_rows_and_no_others(
    owner: asyncpg.Connection, reader: asyncpg.Connection, database_url: str
) -> None:
    await report_logins.create(owner, "finance", None, "right-secret")
    for report in REPORTS:
        await owner.execute(
            f"INSERT INTO hocket.rollup_{report} SELECT * FROM hocket.live_{report}"
        )
    await owner.execute(
        "UPDATE hocket.rollup_state SET open_day = open_day + 2,"
        " open_from = open_from + interval '2 days'"
    )
    finance = await asyncpg.connect(url_of(database_url, "finance"), timeout=BOUND_S)
    try:
        for view in VIEWS:
            asked = f"SELECT t::text AS row FROM report.{view} t"
            theirs, every = await reader.fetch(asked), await finance.fetch(asked)
            assert theirs, view
            assert not any("rival" in row["row"] for row in theirs), view
            of_tenants = f"SELECT count(*) FROM report.{view} WHERE tenant IS NOT NULL"
            assert await finance.fetchval(of_tenants) == 2 * len(theirs), view
            assert len(every) >= 2 * len(theirs), view
    finally:
        await finance.close()


async def test_a_login_of_all_tenants_reads_all_and_one_of_a_tenant_nothing_of_the_house(
    owner: asyncpg.Connection, reader: asyncpg.Connection, database_url: str
) -> None:
    await report_logins.create(owner, "finance", None, "right-secret")
    finance = await asyncpg.connect(url_of(database_url, "finance"), timeout=BOUND_S)
    try:
        for view in (*VIEWS, *OF_THE_HOUSE):
            row = "t.spent_usd" if view == "month_forecast" else "t"  # it goes by the clock
            asked = f"SELECT {row}::text AS row FROM report.{view} t ORDER BY 1"
            assert await finance.fetch(asked) == await owner.fetch(asked), view
    finally:
        await finance.close()
    for view in OF_THE_HOUSE:
        assert not await reader.fetch(f"SELECT * FROM report.{view}")


UNSAID = """
SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
WHERE c.relnamespace = 'report'::regnamespace AND c.relkind = 'v' AND a.attnum >= 0
  AND col_description(c.oid, a.attnum) IS NULL
UNION ALL
SELECT c.relname, '' FROM pg_class c
WHERE c.relnamespace = 'report'::regnamespace AND c.relkind = 'v'
  AND (obj_description(c.oid, 'pg_class') IS NULL
       OR NOT coalesce(c.reloptions, '{}') @> '{security_invoker=true}')
"""


async def test_every_view_and_column_says_what_it_is_and_runs_with_its_readers_rights(
    owner: asyncpg.Connection,
) -> None:
    assert not await owner.fetch(UNSAID)


async def test_another_models_price_is_that_of_the_same_tokens(
    reader: asyncpg.Connection,
) -> None:
    (swapped,) = await reader.fetch(
        "SELECT calls, cost_usd, other_model, other_cost_usd FROM report.model_swap"
        " WHERE node = 'draft'"
    )
    # neither the same backend under another name nor a model for vectors could take its place:
    # 3,000,000 in at 2, 1,000,000 out at 3, each a million; 0.5 for the one call that used tokens
    assert tuple(swapped) == (1, 1, "other", 6 + 3 + Decimal("0.5"))
    assert await reader.fetchval("SELECT saved_usd FROM report.prompt_cache_savings") == Decimal(
        "0.75"
    )
    assert tuple(await reader.fetchrow("SELECT kind, cost_usd FROM report.waste")) == ("cascade", 1)
    assert await reader.fetchval(
        "SELECT usd_per_success FROM report.unit_cost WHERE runs_succeeded > 0"
    ) == Decimal("1.52")  # 0.02 of it is a tool's


ATTEMPTS = """
SELECT * FROM hocket.usage
SELECT * FROM hocket.run
SELECT input FROM hocket.run
SELECT output FROM hocket.step
SELECT * FROM hocket.report_login
SELECT * FROM hocket.step_cache
SELECT * FROM hocket.blob
SELECT * FROM hocket.tenant_blob
SELECT * FROM hocket.pipeline
SELECT * FROM hocket.platform_key
SELECT * FROM hocket.span
SELECT * FROM hocket.content
SELECT * FROM hocket.refused_call
SELECT * FROM retrieval.collection
SELECT * FROM public.hocket_revision
SELECT hocket.report_tenant()
SELECT * FROM hocket.step_days
SELECT * FROM hocket.stale_day
SELECT hocket.cover_steps(now())
SELECT hocket.make_step_days(now(), now() + interval '1 day')
SET hocket.deletes = 'on'; DELETE FROM hocket.step
SET hocket.retention = 'on'; DELETE FROM hocket.run
SELECT * FROM pg_authid
SELECT * FROM pg_shadow
SELECT rolpassword FROM pg_authid
SELECT pg_read_file('/etc/passwd')
SELECT pg_ls_dir('.')
SELECT * FROM pg_hba_file_rules
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename <> session_user
SELECT lo_from_bytea(0, 'x')
SELECT lo_create(0)
SELECT pg_advisory_lock(7306411)
SELECT pg_advisory_lock_shared(7306411)
SELECT pg_advisory_xact_lock(1, 2)
SELECT pg_try_advisory_lock(7306411)
SELECT pg_try_advisory_xact_lock_shared(1, 2)
SELECT pg_logical_emit_message(false, 'x', repeat('y', 1000000))
SELECT pg_notify('x', 'y')
SELECT query_to_xml('SELECT * FROM hocket.run', true, true, '')
SELECT table_to_xml('hocket.usage', true, true, '')
SELECT schema_to_xml('hocket', true, true, '')
SET temp_file_limit = -1
ALTER ROLE acme_bi SET temp_file_limit = -1
ALTER ROLE acme_bi RESET temp_file_limit
SET ROLE hocket_report
SET ROLE postgres
SET SESSION AUTHORIZATION postgres
SET session_replication_role = replica
RESET SESSION AUTHORIZATION; SET SESSION AUTHORIZATION rival_bi
INSERT INTO hocket.report_login (login, tenant) VALUES ('acme_bi', 'rival')
UPDATE hocket.report_login SET tenant = 'rival'
INSERT INTO report.usage (call_id) VALUES ('x')
UPDATE report.usage SET cost_usd = 0
DELETE FROM report.retention
DELETE FROM hocket.usage
TRUNCATE hocket.usage
CREATE TABLE public.mine (a integer)
CREATE TABLE report.mine (a integer)
CREATE TEMP TABLE mine (a integer)
CREATE SCHEMA mine
CREATE VIEW report.mine AS SELECT 1
CREATE FUNCTION report.f() RETURNS integer LANGUAGE sql AS 'SELECT 1'
CREATE FUNCTION pg_temp.f() RETURNS integer LANGUAGE sql AS 'SELECT 1'
CREATE OR REPLACE FUNCTION hocket.report_tenant() RETURNS text LANGUAGE sql AS 'SELECT ''rival'''
ALTER FUNCTION hocket.report_tenant() SET search_path = report
CREATE OPERATOR report.=== (LEFTARG = text, RIGHTARG = text, FUNCTION = texteq)
CREATE EXTENSION dblink
CREATE ROLE mine
ALTER ROLE acme_bi SUPERUSER
ALTER ROLE acme_bi BYPASSRLS
GRANT hocket_report TO acme_bi WITH ADMIN OPTION
ALTER TABLE hocket.usage DISABLE ROW LEVEL SECURITY
DROP POLICY report_tenant ON hocket.usage
CREATE POLICY mine ON hocket.usage USING (true)
ALTER VIEW report.usage SET (security_invoker = false)
DROP VIEW report.usage CASCADE
GRANT SELECT ON hocket.usage TO PUBLIC
COPY hocket.usage TO STDOUT
COPY report.usage TO '/tmp/usage'
COPY (SELECT 1) TO PROGRAM 'id'
COMMENT ON VIEW report.usage IS 'mine'
LOCK TABLE hocket.usage
VACUUM hocket.usage
ANALYZE hocket.usage
CREATE DATABASE mine
CREATE PUBLICATION mine FOR ALL TABLES
CREATE SUBSCRIPTION mine CONNECTION 'host=x' PUBLICATION y
ALTER SYSTEM SET log_statement = 'all'
CHECKPOINT
SET default_transaction_read_only = off; UPDATE report.cost_by_run SET cost_usd = 0
""".strip().splitlines()


async def test_a_login_can_read_and_write_nothing_else(reader: asyncpg.Connection) -> None:
    succeeded = []
    async with asyncio.timeout(BOUND_S):
        for attempt in ATTEMPTS:
            await reader.execute("SET default_transaction_read_only = off")
            try:
                await reader.execute(attempt)
            except asyncpg.PostgresError:
                continue
            succeeded.append(attempt)
    assert len(ATTEMPTS) >= 60
    assert not succeeded


async def test_no_lock_of_a_login_keeps_the_schema_or_a_pipeline_waiting(
    owner: asyncpg.Connection, database_url: str
) -> None:
    """Where advisory locks are not ours to take from everybody, services do without them."""
    async with asyncpg.create_pool(database_url, min_size=1, max_size=2) as pool:
        await owner.execute("SELECT pg_advisory_lock(7306411)")
        await owner.execute("SELECT pg_advisory_lock(hashtextextended('acme/answer', 0))")
        try:
            async with asyncio.timeout(BOUND_S):
                await migrations.migrate(database_url)
                plans = [compile_pipeline(spec_of(number)) for number in range(4)]
                made = await asyncio.gather(
                    *(versions.apply(pool, "acme", plan, ADA) for plan in plans)
                )
        finally:
            await owner.execute("SELECT pg_advisory_unlock_all()")
    assert sorted(made) == [(1, True), (2, True), (3, True), (4, True)]


def spec_of(number: int) -> dict[str, Any]:
    node = {"type": "python", "handler": "hocket.workers.builtin:echo", "with": {"n": number}}
    return {"pipeline": "answer", "nodes": {"a": node}}


WAYS = """
SET app.tenant = 'rival'
SET hocket.tenant = 'rival'
SET search_path = hocket, report
SET row_security = off
SET ROLE none
SELECT set_config('request.tenant', 'rival', false)
SET session_authorization = default
RESET ALL
DISCARD ALL
""".strip().splitlines()
ASKS = (
    "SELECT * FROM report.usage WHERE tenant = 'rival'",
    "SELECT * FROM report.usage WHERE tenant <> 'acme' OR true OR call_id LIKE '%rival%'",
    "SELECT * FROM report.cost_by_run WHERE 1 / (CASE WHEN tenant = 'rival' THEN 0 ELSE 1 END) = 1",
    "SELECT * FROM report.critical_path UNION ALL SELECT * FROM report.critical_path",
)


async def test_nothing_that_a_login_can_set_shows_it_another_tenants_rows(
    reader: asyncpg.Connection,
) -> None:
    for way, asked in itertools.product(WAYS, ASKS):
        await reader.execute("RESET ALL")
        await reader.execute(way)
        try:
            found = await reader.fetch(asked)
        except asyncpg.InsufficientPrivilegeError:
            continue
        seen = [value for row in found for value in row.values()]
        assert not any("rival" in str(value) for value in seen), (way, asked)


async def test_what_was_granted_by_hand_to_a_role_without_a_tenant_shows_no_rows(
    owner: asyncpg.Connection,
) -> None:
    await owner.execute("SET ROLE hocket_report")
    assert not await owner.fetch("SELECT * FROM report.usage")
    await owner.execute("RESET ROLE")


GONE = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # its end comes while the statement is sent
    OSError,
)


async def test_a_revoked_login_is_gone_with_its_connections(
    owner: asyncpg.Connection, reader: asyncpg.Connection, database_url: str
) -> None:
    assert [
        (one.name, one.tenant, one.connections) for one in await report_logins.logins(owner)
    ] == [("acme_bi", "acme", 1)]
    assert await report_logins.revoke(owner, "acme_bi") == Revoked()
    with pytest.raises(GONE):
        await reader.fetch("SELECT * FROM report.usage")
    with pytest.raises(asyncpg.PostgresError):
        await asyncpg.connect(url_of(database_url, "acme_bi"), timeout=BOUND_S)
    assert not await report_logins.logins(owner)
    with pytest.raises(ReportLoginUnknown):
        await report_logins.revoke(owner, "acme_bi")


async def test_a_login_whose_role_was_not_restored_is_listed_and_can_be_revoked(
    owner: asyncpg.Connection,
) -> None:
    """A dump has the login's row, and no roles."""
    await report_logins.create(owner, "acme_bi", "acme", "right-secret")
    database = await owner.fetchval("SELECT quote_ident(current_database())")
    await owner.execute(f"REVOKE ALL ON DATABASE {database} FROM acme_bi; DROP ROLE acme_bi")
    (found,) = await report_logins.logins(owner)
    assert (found.name, found.tenant) == ("acme_bi", "acme")
    assert (found.has_role, found.has_namesake) == (False, False)
    assert await report_logins.revoke(owner, "acme_bi") == Revoked()
    assert not await report_logins.logins(owner)
    assert not await owner.fetchval("SELECT count(*) FROM hocket.report_login")
    await report_logins.create(owner, "acme_bi", "acme", "right-secret")
    assert [one.has_role for one in await report_logins.logins(owner)] == [True]


async def test_a_login_that_another_database_uses_is_revoked_and_cannot_log_in(
    owner: asyncpg.Connection, reader: asyncpg.Connection, database_url: str
) -> None:
    await owner.execute("GRANT CONNECT ON DATABASE template1 TO acme_bi")
    try:
        left = await report_logins.revoke(owner, "acme_bi")
        assert "privileges for database template1" in left.role_left
        assert not await report_logins.logins(owner)
        with pytest.raises(GONE):
            await reader.fetch("SELECT * FROM report.usage")
        with pytest.raises(asyncpg.InvalidAuthorizationSpecificationError):
            await asyncpg.connect(url_of(database_url, "acme_bi"), timeout=BOUND_S)
        with pytest.raises(ReportLoginExists, match="or drop the role"):
            await report_logins.create(owner, "acme_bi", "acme", "right-secret")
    finally:
        await owner.execute("REVOKE ALL ON DATABASE template1 FROM acme_bi; DROP ROLE acme_bi")


async def test_a_login_of_a_copy_has_the_state_of_its_role(owner: asyncpg.Connection) -> None:
    """Another database with policies for the role keeps it, like a copy on the same server."""
    await report_logins.create(owner, "finance", None, "right-secret")
    await owner.execute("ALTER ROLE finance NOLOGIN")
    (found,) = await report_logins.logins(owner)
    assert (found.has_role, found.can_log_in) == (True, False)
    await owner.execute(
        "CREATE TABLE public.other (); ALTER TABLE public.other ENABLE ROW LEVEL SECURITY;"
        " CREATE POLICY theirs ON public.other TO finance"
    )
    left = await report_logins.revoke(owner, "finance")
    assert "policy theirs on table other" in left.role_left
    assert not await report_logins.logins(owner)
    await owner.execute("DROP TABLE public.other; DROP ROLE finance")


@pytest.mark.parametrize(
    "made",
    [
        "CREATE ROLE grafana LOGIN",
        "CREATE ROLE grafana LOGIN CREATEROLE; GRANT hocket_report TO grafana WITH ADMIN OPTION",
        "CREATE ROLE grafana LOGIN; GRANT hocket_report TO grafana WITH ADMIN OPTION",
        "CREATE ROLE grafana LOGIN SUPERUSER; GRANT hocket_report TO grafana",
        "CREATE ROLE grafana LOGIN CREATEROLE; ALTER ROLE grafana SET search_path = 'report'",
    ],
    ids=["no-member", "database-url", "admin-option", "superuser", "setting"],
)
async def test_a_role_of_somebody_else_with_the_name_of_a_login_is_left_alone(
    owner: asyncpg.Connection, made: str
) -> None:
    await owner.execute(
        f"INSERT INTO hocket.report_login (login, tenant) VALUES ('grafana', 'acme'); {made}"
    )
    try:
        (found,) = await report_logins.logins(owner)
        assert (found.has_role, found.can_log_in, found.has_namesake) == (False, False, True)
        left = await report_logins.revoke(owner, "grafana")
        assert "may be somebody else's" in left.role_left
        assert left.can_log_in
        assert await owner.fetchval("SELECT rolcanlogin FROM pg_roles WHERE rolname = 'grafana'")
        assert not await report_logins.logins(owner)
    finally:
        await owner.execute("DROP ROLE grafana")


@pytest.fixture
async def services(
    owner: asyncpg.Connection, database_url: str
) -> AsyncIterator[asyncpg.Connection]:
    """A connection of services that own the tables and may make logins, but are no superuser."""
    former, database = await owner.fetchrow("SELECT current_user, current_database()")
    tables = ("report_login", *report_logins.TABLES)

    async def own(name: str) -> None:
        await owner.execute(f'ALTER DATABASE "{database}" OWNER TO {name}')
        for table in tables:
            await owner.execute(f"ALTER TABLE hocket.{table} OWNER TO {name}")

    await owner.execute(
        "CREATE ROLE services LOGIN CREATEROLE PASSWORD 'right-secret';"
        " GRANT hocket_report TO services WITH ADMIN OPTION;"
        " GRANT USAGE ON SCHEMA hocket TO services"
    )
    await own("services")
    connection = await asyncpg.connect(url_of(database_url, "services"), timeout=BOUND_S)
    yield connection
    await connection.close()
    await own(former)
    await owner.execute("DROP OWNED BY services; DROP ROLE services")


@pytest.mark.parametrize("tenant", ["acme", None], ids=["one-tenant", "all-tenants"])
async def test_a_login_whose_role_a_superuser_restored_is_revoked_but_for_its_role(
    owner: asyncpg.Connection,
    services: asyncpg.Connection,
    database_url: str,
    tenant: str | None,
) -> None:
    """The services may not change a role that they have not made (from Postgres 16 on)."""
    await report_logins.create(owner, "acme_bi", tenant, "right-secret")
    reads = "SELECT count(*) FROM report.cost_by_run"
    reader = await asyncpg.connect(url_of(database_url, "acme_bi"), timeout=BOUND_S)
    try:
        assert await reader.fetchval(reads)
        left = await report_logins.revoke(services, "acme_bi")
        assert (left.connections, left.can_log_in) == (1, True)
        assert 'A superuser has to run `DROP ROLE "acme_bi"`' in left.role_left
        assert await reader.fetchval(reads) == 0
        for view in VIEWS:
            assert not await reader.fetch(f"SELECT * FROM report.{view}"), view
    finally:
        await reader.close()
        await owner.execute("DROP ROLE acme_bi")


@pytest.mark.parametrize("tenant", ["acme", None], ids=["one-tenant", "all-tenants"])
@pytest.mark.parametrize(
    "cure",
    ["DROP ROLE acme_bi", "GRANT acme_bi TO services WITH ADMIN OPTION"],
    ids=["dropped", "granted"],
)
async def test_a_login_whose_role_is_left_stays_listed_until_it_is_revoked_with_that(
    owner: asyncpg.Connection, services: asyncpg.Connection, tenant: str | None, cure: str
) -> None:
    await report_logins.create(owner, "acme_bi", tenant, "right-secret")
    for _ in range(2):
        assert (await report_logins.revoke(services, "acme_bi")).role_left
        (found,) = await report_logins.logins(services)
        assert (found.tenant, found.is_revoked, found.has_role) == (None, True, True)
        with pytest.raises(ReportLoginExists):
            await report_logins.create(services, "acme_bi", tenant, "right-secret")
    await owner.execute(cure)
    assert await report_logins.revoke(services, "acme_bi") == Revoked()
    assert not await report_logins.logins(services)
    await report_logins.create(services, "acme_bi", tenant, "right-secret")
    (found,) = await report_logins.logins(services)
    assert (found.tenant, found.is_revoked, found.can_log_in) == (tenant, False, True)
    assert await report_logins.revoke(services, "acme_bi") == Revoked()


@pytest.mark.parametrize("has_setting", [True, False])
async def test_a_role_that_is_left_is_no_member_any_more_if_we_made_it_one(
    owner: asyncpg.Connection, services: asyncpg.Connection, has_setting: bool
) -> None:
    """Unless nothing else tells that it was a login's."""
    await report_logins.create(owner, "acme_bi", "acme", "right-secret")
    await owner.execute("REVOKE hocket_report FROM acme_bi")
    if not has_setting:
        await owner.execute("ALTER ROLE acme_bi RESET search_path")
    await services.execute("GRANT hocket_report TO acme_bi")
    try:
        assert (await report_logins.revoke(services, "acme_bi")).can_log_in
        is_member = "SELECT pg_has_role('acme_bi', 'hocket_report', 'MEMBER')"
        assert await owner.fetchval(is_member) is not has_setting
        assert [one.is_revoked for one in await report_logins.logins(services)] == [True]
    finally:
        await owner.execute("DROP ROLE acme_bi")


async def test_a_revoked_login_whose_role_was_left_is_made_anew_once_that_is_gone(
    owner: asyncpg.Connection, services: asyncpg.Connection
) -> None:
    await report_logins.create(owner, "acme_bi", None, "right-secret")
    await report_logins.revoke(services, "acme_bi")
    await owner.execute("DROP ROLE acme_bi")
    for tenant in ("acme", None):
        await report_logins.create(services, "acme_bi", tenant, "right-secret")
        (found,) = await report_logins.logins(services)
        assert (found.tenant, found.is_revoked) == (tenant, False)
        assert await report_logins.revoke(services, "acme_bi") == Revoked()


@pytest.mark.parametrize("statement", ["SET ROLE", "SET SESSION AUTHORIZATION"])
async def test_the_role_of_the_connection_is_no_login_for_reports(
    owner: asyncpg.Connection, statement: str
) -> None:
    await owner.execute(
        "INSERT INTO hocket.report_login (login, tenant) VALUES ('services', 'acme');"
        " CREATE ROLE services LOGIN BYPASSRLS; GRANT hocket_report TO services;"
        " GRANT USAGE ON SCHEMA hocket TO services; GRANT SELECT ON hocket.report_login TO services"
    )
    try:
        assert [one.has_role for one in await report_logins.logins(owner)] == [True]
        await owner.execute(f"{statement} services")
        assert [one.has_role for one in await report_logins.logins(owner)] == [False]
    finally:
        await owner.execute("RESET SESSION AUTHORIZATION; RESET ROLE")
        await owner.execute("DROP OWNED BY services; DROP ROLE services")


@pytest.mark.parametrize("tenant", ["acme", None], ids=["one-tenant", "all-tenants"])
async def test_a_login_that_is_no_member_any_more_is_revoked_with_its_password(
    owner: asyncpg.Connection, database_url: str, tenant: str | None
) -> None:
    await report_logins.create(owner, "acme_bi", tenant, "right-secret")
    await owner.execute("REVOKE hocket_report FROM acme_bi")
    (found,) = await report_logins.logins(owner)
    assert (found.has_role, found.can_log_in) == (True, True)
    assert await report_logins.revoke(owner, "acme_bi") == Revoked()
    assert not await owner.fetchval("SELECT true FROM pg_roles WHERE rolname = 'acme_bi'")
    with pytest.raises(asyncpg.PostgresError):
        await asyncpg.connect(url_of(database_url, "acme_bi"), timeout=BOUND_S)


@pytest.mark.parametrize(
    "name", ['x"; DROP ROLE postgres; --', "Acme", "pg_mine", "", "hocket_report"]
)
async def test_a_name_that_is_none_is_refused(owner: asyncpg.Connection, name: str) -> None:
    with pytest.raises(ReportLoginInvalid):
        await report_logins.create(owner, name, "acme", "right-secret")


async def test_a_login_is_made_once_and_no_other_role_is_taken(owner: asyncpg.Connection) -> None:
    await report_logins.create(owner, "acme_bi", "acme", "right-secret")
    for taken in ("acme_bi", await owner.fetchval("SELECT current_user")):
        with pytest.raises(ReportLoginExists):
            await report_logins.create(owner, taken, "rival", "right-secret")
    for none in ('x"; DROP ROLE postgres; --', "Acme", "pg_mine", "", "hocket_report"):
        with pytest.raises(ReportLoginInvalid):
            await report_logins.create(owner, none, "acme", "right-secret")
    assert [one.tenant for one in await report_logins.logins(owner)] == ["acme"]


async def test_the_server_keeps_a_verifier_of_the_password_and_takes_it(
    owner: asyncpg.Connection,
) -> None:
    """The same salt gives what the server itself makes of the password."""
    await owner.execute("CREATE ROLE acme_probe PASSWORD 'right-secret'")
    try:
        kept = await owner.fetchval(
            "SELECT rolpassword FROM pg_authid WHERE rolname = 'acme_probe'"
        )
    finally:
        await owner.execute("DROP ROLE acme_probe")
    salt = base64.b64decode(kept.split("$")[1].partition(":")[2])
    assert report_logins.scram_verifier("right-secret", salt) == kept


@pytest.mark.parametrize(
    "password",
    ["u\u0308mlaut", "\ufb01nance", "nb\u00a0space", "soft\u00adhyphen", "\u2168", "\u00ad"],
    ids=["decomposed", "ligature", "space", "hyphen", "numeral", "nothing-left"],
)
async def test_a_password_that_clients_normalize_lets_one_in(
    owner: asyncpg.Connection, database_url: str, password: str
) -> None:
    await report_logins.create(owner, "acme_bi", "acme", password)
    reader = await asyncpg.connect(
        url_of(database_url, "acme_bi"), password=password, timeout=BOUND_S
    )
    try:
        assert await reader.fetchval("SHOW temp_file_limit") == report_logins.TEMPORARY_FILES
        await reader.execute("SET default_transaction_read_only = off")
        await reader.execute("ALTER ROLE acme_bi RESET ALL")
    finally:
        await reader.close()
    kept = await owner.fetchval("SELECT rolconfig FROM pg_roles WHERE rolname = 'acme_bi'")
    assert kept == [f"temp_file_limit={report_logins.TEMPORARY_FILES}"]


async def hocket(database_url: str, folder: Path, *arguments: str) -> tuple[int, str]:
    environment = {**os.environ, "DATABASE_URL": database_url, "HOCKET_DATA_DIR": str(folder)}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "hocket.cli",
        "report-login",
        *arguments,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    told, _ = await asyncio.wait_for(process.communicate(), BOUND_S)
    assert process.returncode is not None
    return process.returncode, told.decode()


async def test_the_page_does_what_it_says(
    owner: asyncpg.Connection, database_url: str, tmp_path: Path
) -> None:
    page = (Path(__file__).parents[3] / "docs/how-to/report-logins.md").read_text()
    commands = [line for line in page.splitlines() if line.startswith("hocket report-login")]
    told: dict[str, Any] = {}
    for command in commands:
        code, text = await hocket(database_url, tmp_path, *command.split()[2:])
        assert code == 0, text
        told[command.split("#")[0].strip()] = text
    made = told["hocket report-login create acme_bi --tenant acme"]
    url = made.split()[-1]
    assert url.startswith("postgresql://acme_bi:")
    listed = json.loads(told["hocket report-login list --json"])
    assert [(one["login"], one["tenant"]) for one in listed] == [
        ("acme_bi", "acme"),
        ("finance", None),
    ]
    assert [one.name for one in await report_logins.logins(owner)] == ["finance"]
    reports = (Path(__file__).parents[3] / "docs/reference/reports.md").read_text()
    samples = reports.split("```sql\n")[1:]
    assert {view for view in VIEWS if any(f"report.{view}" in one for one in samples)} == {*VIEWS}
    statements = [*page.split("```sql\n")[1:], *samples]
    await report_logins.create(owner, "acme_again", "acme", "right-secret")
    reader = await asyncpg.connect(url_of(database_url, "acme_again"), timeout=BOUND_S)
    try:
        for block in statements:
            assert await reader.fetch(block.partition("```")[0]), block
    finally:
        await reader.close()
