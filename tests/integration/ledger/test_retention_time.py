"""What has expired is decided by Postgres's clock, and what could come to life again stays."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest
import structlog
from prometheus_client import CollectorRegistry
from pydantic import SecretStr

from hocket.admin.__main__ import _make_first_key
from hocket.kit.access import key_store
from hocket.kit.access.audit_log import Actor
from hocket.kit.access.people_store import PersonRevoked, sign_in
from hocket.kit.postgres.database import connect_pool
from hocket.ledger.upkeep import usage_partitions
from hocket.ledger.upkeep.janitor import Janitor, JanitorMetrics
from hocket.ledger.upkeep.retention import Periods

PERIODS = Periods(runs=30, rejected=7, usage=1, durations=180, blobs=220)
FIRST_KEY = f"hk_{'ab' * 6}_{'cd' * 32}"
ACTOR = Actor("test", "local")


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[asyncpg.Pool]:
    pool = await connect_pool(database_url, size=4, name="retention")
    await pool.execute("INSERT INTO hocket.partition (partition) VALUES (0)")
    yield pool
    await pool.close()


def janitor_of(pool: asyncpg.Pool, *, ahead: timedelta = timedelta()) -> Janitor:
    """Return a janitor on a machine whose clock is ahead."""
    metrics = JanitorMetrics(CollectorRegistry())
    return Janitor(pool, PERIODS, metrics, own_time=lambda: datetime.now(UTC) + ahead)


async def add_ended_run(pool: asyncpg.Pool, run_id: str, days_ago: int) -> None:
    await pool.execute(
        """
        INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority, input,
            accepted_at, deadline_at, finished_at)
        SELECT $1, 0, 'acme', 'p', 1, 'succeeded', 'standard', '{}', at, at, at
        FROM (SELECT now() - make_interval(days => $2) AS at) ended
        """,
        run_id,
        days_ago,
    )


@pytest.mark.parametrize(("days", "way"), [(40.5, "ahead of"), (-40.5, "behind")])
async def test_a_ledger_whose_clock_is_wrong_deletes_nothing_and_says_so(
    pool: asyncpg.Pool, days: float, way: str
) -> None:
    for run_id, days_ago in (("old", 31), ("young", 3)):
        await add_ended_run(pool, run_id, days_ago)
    with structlog.testing.capture_logs() as logged:
        assert await janitor_of(pool, ahead=timedelta(days=days)).make_pass() is None
    assert await pool.fetchval("SELECT count(*) FROM hocket.run") == 2
    (line,) = [line for line in logged if line["event"] == "retention_waits"]
    assert "this machine's clock is 40 days" in line["reason"]
    assert f" {way} that of Postgres" in line["reason"]
    tomorrow = "SELECT to_regclass('hocket.content_' || to_char(now() + '1 day', 'YYYYMMDD'))"
    assert await pool.fetchval(tomorrow) is not None, "partitions are made in any case"

    passed = await janitor_of(pool, ahead=timedelta(minutes=days / 20)).make_pass()
    assert passed is not None
    assert passed["runs"] == 1


async def test_calls_that_a_monthly_budget_counts_stay_whatever_the_period(
    pool: asyncpg.Pool,
) -> None:
    month = "date_trunc('month', now(), 'UTC')"
    async with pool.acquire() as connection:
        await usage_partitions.make_ahead(connection, PERIODS.usage)
    await pool.execute(
        f"""
        INSERT INTO hocket.usage (call_id, tenant, pipeline, model, backend, status, cost_usd,
            started_at, latency_ms, recorded_at)
        SELECT name, 'acme', 'p', 'm', 'b', 'ok', 0.5, at, 1, at
        FROM (VALUES ('counts', {month}), ('expired', {month} - interval '40 days')) AS call (name, at)
        """
    )
    await pool.execute(
        f"""
        INSERT INTO hocket.kept_charge (run_id, key, tenant, pipeline, version, node, cost_usd,
            finished_at)
        SELECT name, 's', 'acme', 'p', 1, 's', 1, at
        FROM (VALUES ('counts', {month}), ('expired', {month} - interval '40 days')) AS run (name, at)
        """
    )
    metrics = JanitorMetrics(CollectorRegistry())
    await Janitor(pool, PERIODS, metrics, {"acme": {"usage": 1}}).make_pass()
    assert await pool.fetch("SELECT call_id FROM hocket.usage") == [("counts",)]
    assert await pool.fetch("SELECT run_id FROM hocket.kept_charge") == [("counts",)]


async def test_keys_and_operations_that_ended_long_ago_go(pool: asyncpg.Pool) -> None:
    async with pool.acquire() as connection:
        for name in ("revoked", "expired", "recent", "in-force"):
            await key_store.create(connection, key_store.NewKey(name, "viewer", "acme"), ACTOR)
    ended = "UPDATE hocket.api_key SET {} = now() - make_interval(days => $2) WHERE name = $1"
    await pool.execute(ended.format("revoked_at"), "revoked", 401)
    await pool.execute(ended.format("expires_at"), "expired", 401)
    await pool.execute(ended.format("revoked_at"), "recent", 399)
    await pool.execute(
        """
        INSERT INTO hocket.bulk_operation (operation_id, tenant, action, state, filter, matching,
            created_by, created_at, finished_at)
        SELECT name, 'acme', 'cancel', state, '{}', 1, 'me', now() - interval '200 days', at
        FROM (VALUES ('old', 'done', now() - interval '91 days'),
            ('recent', 'stopped', now() - interval '89 days'), ('goes-on', 'running', NULL))
            AS operation (name, state, at)
        """
    )

    passed = await janitor_of(pool).make_pass()

    assert passed is not None
    assert (passed["keys"], passed["operations"]) == (2, 1)
    keys = await pool.fetch("SELECT name FROM hocket.api_key ORDER BY 1")
    assert [row[0] for row in keys] == ["in-force", "recent"]
    left = await pool.fetch("SELECT operation_id FROM hocket.bulk_operation ORDER BY 1")
    assert [row[0] for row in left] == ["goes-on", "recent"]


async def test_what_was_revoked_does_not_come_to_life_again(pool: asyncpg.Pool) -> None:
    """The key of the settings would be made again at the next start, a person at the next sign-in."""
    person = ("login|ada", "Ada", ["team"], datetime(2040, 1, 1, tzinfo=UTC).timestamp(), "local")
    await _make_first_key(pool, SecretStr(FIRST_KEY))
    async with pool.acquire() as connection:
        await sign_in(connection, *person)
    await pool.execute("UPDATE hocket.api_key SET revoked_at = now() - interval '500 days'")

    await janitor_of(pool).make_pass()

    await _make_first_key(pool, SecretStr(FIRST_KEY))
    async with pool.acquire() as connection:
        assert not await key_store.counts(connection, FIRST_KEY)
        with pytest.raises(PersonRevoked):
            await sign_in(connection, *person)
