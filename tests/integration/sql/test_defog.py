"""Real questions on real Postgres: what the guard writes gives what the gold SQL gives."""

import json
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from hocket.kit.embedded import EmbeddedServers
from hocket.workers.sql.guard.guard import check_query
from hocket.workers.sql.runner import run_query
from hocket.workers.sql.targets import Target, TargetSettings
from support import defog

pytestmark = pytest.mark.skipif(not defog.is_here(), reason=defog.MISSING)

TIMEOUT_S = 30.0
MAX_ROWS = 10_000


@pytest.fixture(scope="module")
async def urls(servers: EmbeddedServers) -> AsyncIterator[dict[str, str]]:
    """The URLs of the four databases, loaded."""
    admin = await asyncpg.connect(servers.database_url, timeout=TIMEOUT_S)
    for name in defog.DATABASES:
        await admin.execute(f"CREATE DATABASE defog_{name}")
        loader = await asyncpg.connect(servers.postgres.url_of(f"defog_{name}"), timeout=TIMEOUT_S)
        await loader.execute(defog.dump(name))
        await loader.close()
    yield {name: servers.postgres.url_of(f"defog_{name}") for name in defog.DATABASES}
    for name in defog.DATABASES:
        await admin.execute(f"DROP DATABASE defog_{name} WITH (FORCE)")
    await admin.close()


@pytest.mark.parametrize("database", defog.DATABASES)
async def test_every_gold_query_is_accepted_and_gives_the_rows_of_its_original(
    urls: dict[str, str], database: str
) -> None:
    target = Target(database, TargetSettings(url=urls[database], tables=defog.TABLES))
    original = await asyncpg.connect(urls[database], timeout=TIMEOUT_S)
    try:
        for one in (one for one in defog.gold() if one.database == database):
            written = check_query(
                one.sql, dialect="postgres", tables=defog.TABLES, max_rows=MAX_ROWS
            )
            ours, theirs = await _rows(original, written.sql), await _rows(original, one.sql)
            assert ours == theirs, one
            result = await run_query(
                target, one.sql, {}, timeout_ms=TIMEOUT_S * 1000, max_rows=MAX_ROWS
            )
            assert result.row_count == theirs.total(), one
    finally:
        await original.close()
        await target.close()


@pytest.mark.parametrize("database", defog.DATABASES)
async def test_postgres_plans_no_table_that_the_guard_did_not_name(
    urls: dict[str, str], database: str
) -> None:
    connection = await asyncpg.connect(urls[database], timeout=TIMEOUT_S)
    try:
        for one in (one for one in defog.gold() if one.database == database):
            checked = check_query(
                one.sql, dialect="postgres", tables=defog.TABLES, max_rows=MAX_ROWS
            )
            plan = await connection.fetchval(f"EXPLAIN (VERBOSE, FORMAT JSON) {checked.sql}")
            assert set(_relations(json.loads(plan))) <= set(checked.tables), one
    finally:
        await connection.close()


async def _rows(connection: asyncpg.Connection, sql: str) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row) for row in await connection.fetch(sql, timeout=TIMEOUT_S))


def _relations(plan: Any) -> list[str]:
    if isinstance(plan, list):
        return [name for item in plan for name in _relations(item)]
    if not isinstance(plan, dict):
        return []
    own = [f"{plan['Schema']}.{plan['Relation Name']}"] if "Relation Name" in plan else []
    return own + [name for item in plan.values() for name in _relations(item)]
