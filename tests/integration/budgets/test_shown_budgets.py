"""What is shown of budgets, where more names have spent than are read."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import asyncpg
import pytest

from hocket.admin.costs import budgets
from hocket.kit.postgres.database import connect_pool
from hocket.schemas.messages import BudgetRule


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[asyncpg.Pool]:
    pool = await connect_pool(database_url, size=2, name="test")
    yield pool
    await pool.close()


@pytest.mark.parametrize("per", ["hour", "day", "month"])
async def test_a_budget_of_a_name_that_spent_little_shows_what_it_spent(
    pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch, per: str
) -> None:
    monkeypatch.setattr(budgets, "MAX_NAMES", 2)
    now = datetime.now(UTC)
    await pool.execute("SELECT hocket.cover_usage($1, 1)", now)
    await pool.execute(
        "INSERT INTO hocket.usage (call_id, tenant, pipeline, model, backend, status, cost_usd,"
        " started_at, latency_ms, labels) SELECT 'c' || n, 'acme', 'p' || n, 'm', 'b', 'ok', n, $1, 1,"
        " jsonb_build_object('customer', 'c' || n) FROM generate_series(1, 9) n",
        now,
    )
    rules = [
        BudgetRule(level=level, name=name, usd=Decimal(10), per=per)
        for level, name in (
            ("label", "customer=c1"),
            ("label", "customer=*"),
            ("pipeline", "acme/p2"),
            ("pipeline", "*"),
        )
    ]
    found, _ = await budgets.budgets_of(pool, "acme", rules, now)
    shown = {(one.level, one.name): one.spent_usd for one in found.budgets}
    named = {("label", "customer=c1"): 1, ("pipeline", "p2"): 2}
    dearest = {("label", "customer=c9"): 9, ("pipeline", "p9"): 9}
    assert shown.items() >= (named | dearest).items()
    assert ("label", "customer=c3") not in shown


@pytest.mark.parametrize("per", ["hour", "day", "month"])
async def test_a_period_has_what_a_suspended_step_charged_and_no_call_twice(
    pool: asyncpg.Pool, per: str
) -> None:
    now = datetime.now(UTC)
    begins = now.replace(minute=0, second=0, microsecond=0)
    if per != "hour":
        begins = begins.replace(hour=0)
    if per == "month":
        begins = begins.replace(day=1)
    await pool.execute(
        "INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority,"
        " input, accepted_at, deadline_at, labels)"
        " VALUES ('r', 0, 'acme', 'p', 1, 'running', 'standard', '{}', $1, $1, '{\"who\": \"x\"}')",
        now,
    )
    await pool.execute(
        """INSERT INTO hocket.step (run_id, key, path, type, role, state, attempt, ready_at,
           dispatched_at, finished_at, facts)
           SELECT 'r', key, key, type, 'leaf', state, 1, $1::timestamptz, $1,
                  CASE state WHEN 'succeeded' THEN $1 END,
                  jsonb_build_object('charged_usd', usd)
           FROM (VALUES ('asks', 'own', 'waiting', '1'), ('long', 'own', 'waiting', '2'),
                        ('look', 'http', 'succeeded', '4'), ('write', 'llm', 'succeeded', '8')
           ) AS s(key, type, state, usd)""",
        now,
    )
    await pool.execute(
        "INSERT INTO hocket.attempt (run_id, key, attempt, outcome, finished_at) VALUES"
        " ('r', 'asks', 1, 'suspended', $1), ('r', 'long', 1, 'suspended', $2)",
        begins,
        begins - timedelta(seconds=1),
    )
    await pool.execute(  # of what this one charged, 32 belong to the period before
        """INSERT INTO hocket.step (run_id, key, path, type, role, state, attempt, ready_at,
           dispatched_at, facts) VALUES ('r', 'again', 'again', 'own', 'leaf', 'waiting', 3, $1, $1,
           '{"charged_usd": "48", "counted": [[1, 1, "32"], [2, 1, "16"]]}')""",
        now,
    )
    await pool.execute(
        "INSERT INTO hocket.attempt (run_id, key, attempt, outcome, finished_at) VALUES"
        " ('r', 'again', 1, 'suspended', $2), ('r', 'again', 2, 'suspended', $1)",
        begins,
        begins - timedelta(seconds=1),
    )
    rules = [
        BudgetRule(level=level, name=name, usd=Decimal(10), per=per)
        for level, name in (("tenant", "acme"), ("pipeline", "acme/p"), ("label", "who=x"))
    ]
    found, _ = await budgets.budgets_of(pool, "acme", rules, now)
    assert [one.spent_usd for one in found.budgets] == [Decimal(1 + 4 + 16)] * 3
