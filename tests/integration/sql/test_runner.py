"""Queries on real databases: read-only, bounded in time and rows, exact in numbers."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from hocket.workers.sql.errors import (
    SqlInvalid,
    SqlParametersWrong,
    SqlTableRefused,
    SqlTimeout,
    TargetUnknown,
)
from hocket.workers.sql.runner import run_query
from hocket.workers.sql.targets import Target, Targets, TargetSettings

SLOW = "SELECT count(*) FROM a.t x, a.t y, a.t z, a.t w"


@pytest.fixture
async def target(database_url: str):
    connection = await asyncpg.connect(database_url)
    await connection.execute(
        "CREATE SCHEMA a; CREATE TABLE a.t (n integer, price numeric, at timestamptz, name text);"
        "INSERT INTO a.t SELECT i, i + 0.10, '2020-01-01Z', 'n' || i FROM generate_series(1, 300) i"
    )
    await connection.close()
    target = Target("shop", TargetSettings(url=database_url, tables=("a.*",)))
    yield target
    await target.close()


async def test_numbers_stay_exact_and_more_rows_than_allowed_are_marked(target: Target) -> None:
    result = await run_query(
        target,
        "SELECT n, price, at, price::text AS shown FROM a.t WHERE n >= :least ORDER BY n",
        {"least": 2},
        timeout_ms=20_000,
        max_rows=2,
    )
    assert result.columns == ("n", "price", "at", "shown")
    assert result.rows[0] == (2, "2.10", "2020-01-01T00:00:00+00:00", "2.10")
    assert (result.row_count, result.truncated) == (2, True)


async def test_times_and_floats_are_the_same_whatever_style_the_database_has(
    target: Target, database_url: str
) -> None:
    connection = await asyncpg.connect(database_url)
    name = await connection.fetchval("SELECT current_database()")
    await connection.execute(f"ALTER DATABASE \"{name}\" SET datestyle TO 'German', 'DMY'")
    await connection.execute(f'ALTER DATABASE "{name}" SET extra_float_digits TO -10')
    await connection.close()
    result = await run_query(
        target,
        "SELECT at, at::date AS day, 0.1234567890123::float8 AS f, CAST(:day AS date) AS given"
        " FROM a.t WHERE n = 1",
        {"day": "02.03.2020"},
        timeout_ms=20_000,
        max_rows=2,
    )
    assert result.rows == (
        ("2020-01-01T00:00:00+00:00", "2020-01-01", 0.1234567890123, "2020-03-02"),
    )
    assert result.types == ("timestamp", "date", "number", "date")


async def test_a_query_is_stopped_at_its_time(target: Target) -> None:
    with pytest.raises(SqlTimeout):
        await run_query(target, SLOW, {}, timeout_ms=100, max_rows=1)


async def test_cancelling_the_caller_cancels_the_statement_in_the_server(
    target: Target, database_url: str
) -> None:
    watcher = await asyncpg.connect(database_url)
    running = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE query LIKE '%a.t AS x%' AND state = 'active' AND pid <> pg_backend_pid()"
    )

    async def until(wanted: int) -> None:
        async with asyncio.timeout(25):
            while await watcher.fetchval(running) != wanted:  # noqa: ASYNC110 (the server tells nobody)
                await asyncio.sleep(0.01)

    task = asyncio.create_task(run_query(target, SLOW, {}, timeout_ms=30_000, max_rows=1))
    await until(1)
    task.cancel()
    await asyncio.wait({task})
    await until(0)
    await watcher.close()


async def test_the_transaction_itself_is_read_only(target: Target) -> None:
    from sqlalchemy import text
    from sqlalchemy.exc import DBAPIError

    with pytest.raises(DBAPIError, match="read-only"):
        await target.fetch(text("DELETE FROM a.t"), {}, timeout_ms=20_000, max_rows=1)


async def test_a_wrong_parameter_is_the_callers_fault(target: Target) -> None:
    with pytest.raises(SqlInvalid):
        await run_query(
            target,
            "SELECT n FROM a.t WHERE n = CAST(:n AS integer)",
            {"n": "many"},
            timeout_ms=20_000,
            max_rows=1,
        )


async def test_text_that_is_cast_to_a_date_is_a_date(target: Target) -> None:
    result = await run_query(
        target,
        "SELECT count(*) AS days FROM a.t WHERE at >= CAST(:day AS date)",
        {"day": "2019-12-31"},
        timeout_ms=20_000,
        max_rows=1,
    )
    assert result.rows == ((300,),)


async def test_a_table_beyond_the_allowed_ones_is_refused(target: Target) -> None:
    with pytest.raises(SqlTableRefused, match=r"hocket\.run"):
        await run_query(target, "SELECT * FROM hocket.run", {}, timeout_ms=20_000, max_rows=1)


async def test_a_database_nobody_configured_is_named_with_those_that_are() -> None:
    with pytest.raises(TargetUnknown, match="shop"):
        Targets({"shop": "postgresql://localhost/x"}).get("stock", "acme")


async def test_a_database_of_other_tenants_is_as_if_it_were_not_there() -> None:
    url = "postgresql://localhost/x"
    targets = Targets(
        {"shop": {"url": url, "tenants": ["acme"]}, "stock": {"url": url}, "till": url}
    )
    assert targets.get("shop", "acme").name == "shop"
    assert targets.get("stock", "globex").name == "stock"
    with pytest.raises(TargetUnknown, match=r"`shop`; configured databases: stock, till\."):
        targets.get("shop", "globex")
    await targets.close()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (2**63 - 1, None),
        (-(2**63), None),
        (2**63, "`n` is beyond the integers of sqlite"),
        (-(2**64), "`n` is beyond the integers of sqlite"),
        ("caf\u00e9 \U0001f600", None),
        ("caf\ud83d", "the text of `n` has half of a surrogate pair"),
    ],
)
async def test_sqlite_names_a_parameter_that_it_cannot_bind(
    tmp_path: Path, value: Any, reason: str | None
) -> None:
    sqlite3.connect(tmp_path / "s.db").execute("CREATE TABLE t (n)").connection.close()
    url = f"sqlite:///{tmp_path / 's.db'}"
    target = Target("lite", TargetSettings(url=url, tables=("main.*",)))
    asking = run_query(
        target, "SELECT n FROM t WHERE n = :n", {"n": value}, timeout_ms=9_000, max_rows=5
    )
    if reason is None:
        assert (await asking).rows == ()
    else:
        with pytest.raises(SqlParametersWrong, match=reason):
            await asking
    await target.close()


async def test_sqlite_is_read_only_and_stopped_at_its_time(tmp_path: Path) -> None:
    file = tmp_path / "s.db"
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE t (n integer)")
    connection.executemany("INSERT INTO t VALUES (?)", [(i,) for i in range(300)])
    connection.commit()
    connection.close()
    target = Target("lite", TargetSettings(url=f"sqlite:///{file}", tables=("main.*",)))
    result = await run_query(
        target,
        "SELECT sum(n) AS total FROM t WHERE n < :n",
        {"n": 4},
        timeout_ms=20_000,
        max_rows=5,
    )
    assert result.rows == ((6,),)
    with pytest.raises(SqlTimeout):
        await run_query(
            target, "SELECT count(*) FROM t a, t b, t c, t d", {}, timeout_ms=100, max_rows=5
        )
    await target.close()
