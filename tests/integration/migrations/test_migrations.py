"""Migrations go down one by one to nothing and up again, and the schema is then what it was."""

import asyncio
import re
import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import asyncpg
import pytest

from hocket.kit.postgres import migrations, report_logins
from hocket.kit.postgres.database import connect_pool
from hocket.ledger.prices import KnownPrices
from hocket.ledger.records.record import Record, booked
from hocket.ledger.store import insert
from hocket.schemas.messages import Attribution, UsageRecord
from support.places import ROOT

COLUMNS = """
SELECT table_schema, table_name, column_name, data_type, column_default, is_nullable
FROM information_schema.columns
WHERE table_schema IN ('hocket', 'report') AND table_name !~ '^usage_[0-9]{8}$' ORDER BY 1, 2, 3
"""
"""Those of a day's partition are not among them: the day may have changed."""
VIEWS = "SELECT viewname, definition FROM pg_views WHERE schemaname = 'report' ORDER BY 1"
INDEXES = """
SELECT indexname, indexdef FROM pg_indexes
WHERE schemaname = 'hocket' AND tablename !~ '^usage_[0-9]{8}$' ORDER BY 1
"""


WAITS_FOR = "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = $1::regclass AND NOT granted)"


async def test_every_migration_can_be_taken_back_and_made_again(database_url: str) -> None:
    before = await _schema(database_url)
    assert len(before) > 100
    for _ in range(int(migrations.head())):
        await migrations.migrate(database_url, "-1")
    assert await migrations.current(database_url) is None
    await migrations.migrate(f"{database_url}?sslmode=prefer")  # a parameter of asyncpg's alone
    assert await _schema(database_url) == before


async def _schema(database_url: str) -> list[tuple[object, ...]]:
    connection = await asyncpg.connect(database_url)
    try:
        return [
            tuple(row)
            for query in (COLUMNS, VIEWS, INDEXES)
            for row in await connection.fetch(query)
        ]
    finally:
        await connection.close()


USAGE = (
    "SELECT call_id, tenant, started_at, cost_usd FROM hocket.usage ORDER BY started_at, cost_usd"
)
IS_PARTITIONED = "SELECT relkind = 'p' FROM pg_class WHERE oid = 'hocket.usage'::regclass"


TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'hocket'"


async def test_a_ledger_of_before_is_taken_into_partitions_with_its_readers(
    database_url: str,
) -> None:
    connection = await asyncpg.connect(database_url)
    try:
        while await connection.fetchval(IS_PARTITIONED):
            await migrations.migrate(database_url, "-1")
        tables = [row["tablename"] for row in await connection.fetch(TABLES)]
        with pytest.MonkeyPatch.context() as before:  # it knew no others
            known = [table for table in report_logins.TABLES if table in tables]
            before.setattr(report_logins, "TABLES", known)
            await report_logins.create(connection, "of_acme", "acme", "only-of-this-test")
            await report_logins.create(connection, "of_all", None, "only-of-this-test")
        calls = [
            _called("c", days) for days in (0, 40, 400, -5, -800)
        ]  # under one id: a worker asked again after its gateway was killed
        calls += [_called(f"d{number}", number, tenant="rival") for number in range(60)]
        await connection.executemany(_BOOK_AS_BEFORE, [_as_before(one) for one in calls])

        await migrations.migrate(database_url)

        assert await connection.fetchval(IS_PARTITIONED)
        rows = await connection.fetch(USAGE)
        assert [row["call_id"] for row in rows if row["tenant"] == "acme"] == ["c"] * 5
        assert len(rows) == len(calls)
        pool = await connect_pool(database_url, size=2, name="test")
        assert await insert(pool, calls, KnownPrices()) == 0, "each is known under its own time"
        await pool.close()
        assert await connection.fetch(USAGE) == rows
        place = database_url.rpartition("@")[2]
        for login, number in (("of_acme", 5), ("of_all", 65)):
            reader = await asyncpg.connect(f"postgresql://{login}:only-of-this-test@{place}")
            assert await reader.fetchval("SELECT count(*) FROM report.usage") == number
            for table in ("usage", "usage_before", "usage_partition"):
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await reader.execute(f"SELECT decision FROM hocket.{table}")
            await reader.close()
        for login in ("of_acme", "of_all"):
            await report_logins.revoke(connection, login)
    finally:
        await connection.close()


def _called(call_id: str, days_ago: float, *, tenant: str = "acme") -> Record:
    return booked(
        UsageRecord(
            call_id=call_id,
            attribution=Attribution(tenant=tenant, pipeline="p"),
            model="m",
            backend="b",
            status="ok",
            cost_usd=Decimal(1),
            started_at_ms=(time.time() - days_ago * 86_400) * 1000,
            latency_ms=1.0,
        )
    )


def _as_before(call: Record) -> tuple[object, ...]:
    """Return what the release before booked of a call whose id another one had already."""
    is_first = call.call_id != "c" or call.started_at > datetime.now(UTC) - timedelta(days=1)
    is_first = is_first and call.started_at < datetime.now(UTC) + timedelta(days=1)
    known = call if is_first else call.under_own_id()
    return known.call_id, *known.identity


_BOOK_AS_BEFORE = """
INSERT INTO hocket.usage (call_id, tenant, started_at, backend, replica, model, status, cost_usd,
                          latency_ms)
VALUES ($1, $2, $3, $4, $5, 'm', 'ok', 1, 1)
"""


FUNCTIONS = """
SELECT DISTINCT proname FROM pg_proc p JOIN pg_namespace n ON n.oid = pronamespace
WHERE nspname IN ('hocket', 'report')
  AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = p.oid AND deptype = 'e')  -- an extension's
"""
USES = """
SELECT prosrc FROM pg_proc JOIN pg_namespace n ON n.oid = pronamespace
WHERE nspname IN ('hocket', 'report') AND proname <> $1
UNION ALL SELECT definition FROM pg_views WHERE schemaname IN ('hocket', 'report')
UNION ALL SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
UNION ALL SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef
UNION ALL SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE contype = 'c'
UNION ALL SELECT concat(qual, with_check) FROM pg_policies
"""


async def test_every_function_of_the_schema_is_called_by_somebody(database_url: str) -> None:
    code = "".join(file.read_text() for file in (ROOT / "services").rglob("*.py"))
    connection = await asyncpg.connect(database_url)
    try:
        functions = await connection.fetch(FUNCTIONS)
        assert len(functions) > 10
        unused = []
        for (name,) in functions:
            texts = await connection.fetch(USES, name)
            called = re.compile(rf"\b{name}\b")
            if not any(called.search(text) for text in (code, *(row[0] or "" for row in texts))):
                unused.append(name)
    finally:
        await connection.close()
    assert unused == []


async def test_a_migration_that_meets_a_deadlock_begins_again(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other transaction holds what the migration wants next, and wants what the migration holds:
    Postgres ends the one that looks for deadlocks first."""
    monkeypatch.setattr(migrations, "PAUSE_S", 0.05)
    monkeypatch.setattr(migrations, "LOCK_TIMEOUT_MS", 5_000)  # it would give up before
    while await migrations.current(database_url) != "0050":
        await migrations.migrate(database_url, "-1")
    connection = await asyncpg.connect(database_url)
    try:
        await connection.execute("SET deadlock_timeout = '60s'")
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("LOCK TABLE hocket.step IN ROW EXCLUSIVE MODE")
        migrating = asyncio.create_task(migrations.migrate(database_url))
        while not await connection.fetchval(WAITS_FOR, "hocket.step"):
            assert not migrating.done(), "nobody waits for the table"
            await asyncio.sleep(0.02)
        await connection.execute("LOCK TABLE hocket.partition IN ROW EXCLUSIVE MODE")
        await transaction.commit()
        await migrating
    finally:
        await connection.close()
    assert await migrations.current(database_url) == migrations.head()


async def test_a_table_that_is_locked_for_ever_is_told(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "PAUSE_S", 0.01)
    monkeypatch.setattr(migrations, "LOCK_TIMEOUT_MS", 50)
    monkeypatch.setattr(migrations, "TRIES", 3)
    while await migrations.current(database_url) != "0064":  # the next one makes a trigger of runs
        await migrations.migrate(database_url, "-1")
    before = await migrations.current(database_url)
    connection = await asyncpg.connect(database_url)
    try:
        async with connection.transaction():
            await connection.execute("LOCK TABLE hocket.run IN ROW EXCLUSIVE MODE")
            with pytest.raises(migrations.MigrationBlocked, match="lock timeout"):
                await migrations.migrate(database_url)
    finally:
        await connection.close()
    assert await migrations.current(database_url) == before
