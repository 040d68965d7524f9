"""The walls behind the guard, tried with statements that the guard would never let through."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import DBAPIError

from hocket.workers.sql.errors import (
    SqlFailedForNow,
    SqlInvalid,
    SqlMemoryTaken,
    SqlOutOfMemory,
    SqlTimeout,
    SqlUnavailable,
    TargetInvalid,
)
from hocket.workers.sql.runner import run_query
from hocket.workers.sql.targets import Target, TargetSettings

SLOW = "SELECT count(*) AS n FROM t a, t b, t c, t d"
TIMEOUT_MS = 10_000.0
BOUND_S = 10.0


@pytest.fixture
async def lite(tmp_path: Path) -> AsyncIterator[Target]:
    file = tmp_path / "a #1 100% b.db"
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE t (n integer)")
    connection.executemany("INSERT INTO t VALUES (?)", [(i,) for i in range(300)])
    connection.commit()
    connection.close()
    target = Target("lite", TargetSettings(url=f"sqlite:///{file}", tables=("main.*",)))
    yield target
    await target.close()


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO t VALUES (1)",
        "DROP TABLE t",
        "ATTACH DATABASE '/tmp/other.db' AS other",
        "PRAGMA query_only = OFF",
        "PRAGMA table_info(t)",
        "SELECT * FROM sqlite_master",
        "SELECT * FROM pragma_database_list",
        "SELECT load_extension('/tmp/evil.so')",
        "SELECT length(zeroblob(1000000000))",
        "SELECT length(replace(printf('%1000000d', 1), ' ', 'xxxxxxxxxxxxxxxxxxxxxxxx'))",
        "VACUUM INTO '/tmp/stolen.db'",
    ],
)
async def test_sqlite_itself_refuses(lite: Target, statement: str) -> None:
    with pytest.raises(DBAPIError, match=r"authoriz|prohibited|readonly|too big|no such table"):
        await lite.fetch(text(statement), {}, timeout_ms=TIMEOUT_MS, max_rows=1)


async def test_a_cancelled_sqlite_query_frees_its_thread(lite: Target) -> None:
    tasks = [
        asyncio.create_task(run_query(lite, SLOW, {}, timeout_ms=60_000, max_rows=1))
        for _ in range(20)  # more than there are threads
    ]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    async with asyncio.timeout(BOUND_S):
        result = await run_query(
            lite, "SELECT max(n) AS n FROM t", {}, timeout_ms=TIMEOUT_MS, max_rows=1
        )
    assert result.rows == ((299,),)


async def test_a_cancelled_caller_goes_on_when_its_thread_has_ended(lite: Target) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        may_end.wait(BOUND_S)

    def known(connection: sqlite3.Connection, _record: object) -> None:
        connection.create_function("hold", 0, hold)

    assert lite._sync is not None
    event.listen(lite._sync, "connect", known)
    reading = lite.fetch(text("SELECT hold() AS n"), {}, timeout_ms=TIMEOUT_MS, max_rows=1)
    task = asyncio.create_task(reading)
    assert await asyncio.to_thread(begun.wait, BOUND_S)
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done()
    may_end.set()
    await asyncio.wait({task})
    assert task.cancelled()


async def test_a_query_that_gets_no_memory_beside_others_may_be_tried_again(lite: Target) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        may_end.wait(BOUND_S)

    tries = 0

    def grow() -> int:
        nonlocal tries
        tries += 1
        if tries < succeeds_at:
            raise MemoryError
        return tries

    def known(connection: sqlite3.Connection, _record: object) -> None:
        connection.create_function("hold", 0, hold)
        connection.create_function("grow", 0, grow)

    assert lite._sync is not None
    event.listen(lite._sync, "connect", known)
    growing = text("SELECT grow() AS n")
    succeeds_at = BOUND_S
    with pytest.raises(SqlOutOfMemory) as alone:
        await lite.fetch(growing, {}, timeout_ms=TIMEOUT_MS, max_rows=1)
    assert tries == 1
    other = lite.fetch(text("SELECT hold() AS n"), {}, timeout_ms=TIMEOUT_MS, max_rows=1)
    task = asyncio.create_task(other)
    assert await asyncio.to_thread(begun.wait, BOUND_S)
    with pytest.raises(SqlMemoryTaken) as beside:
        await lite.fetch(growing, {}, timeout_ms=TIMEOUT_MS, max_rows=1)
    succeeds_at = tries + 3
    rows = await lite.fetch(growing, {}, timeout_ms=TIMEOUT_MS, max_rows=1)
    assert [list(row) for row in rows.rows] == [[succeeds_at]]
    may_end.set()
    await task
    assert (alone.value.retryable, beside.value.retryable) == (False, True)


async def test_a_list_cannot_be_bound_in_sqlite_and_the_error_says_what_to_do(
    lite: Target,
) -> None:
    with pytest.raises(Exception, match="separate parameters"):
        await run_query(
            lite,
            "SELECT n FROM t WHERE n IN (:ids)",
            {"ids": [1]},
            timeout_ms=TIMEOUT_MS,
            max_rows=1,
        )


async def test_a_missing_sqlite_file_is_not_created(tmp_path: Path) -> None:
    target = Target("none", TargetSettings(url=f"sqlite:///{tmp_path}/x.db", tables=("main.*",)))
    with pytest.raises(SqlUnavailable, match="unable to open"):
        await run_query(target, "SELECT 1 AS n", {}, timeout_ms=TIMEOUT_MS, max_rows=1)
    assert not (tmp_path / "x.db").exists()
    await target.close()


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://",
        "sqlite:///:memory:",
        "oracle://x/y",
        "no url",
        "mysql://x/y",  # its default driver is not installed here
        "postgresql+pg8000://x/y",
        "postgresql://me:an@in:parts/y@x/z",
        "postgresql://x/y?application_name=z",
        "postgresql://x/y?sslmode=on",
    ],
)
def test_a_target_that_cannot_work_is_refused_at_once(url: str) -> None:
    with pytest.raises(TargetInvalid, match="`bad`") as told:
        Target("bad", TargetSettings(url=url))
    assert "parts" not in str(told.value)


async def test_a_url_may_say_how_to_encrypt_as_libpq_does(database_url: str) -> None:
    target = Target("shop", TargetSettings(url=f"{database_url}?sslmode=disable"))
    result = await run_query(target, "SELECT 1 AS n", {}, timeout_ms=TIMEOUT_MS, max_rows=1)
    assert result.rows == ((1,),)
    await target.close()


async def test_a_query_runs_as_the_role_of_the_target(database_url: str) -> None:
    admin = await asyncpg.connect(database_url)
    await admin.execute("CREATE TABLE public.open_t (n int); CREATE TABLE public.closed_t (n int)")
    await admin.execute("DROP ROLE IF EXISTS sql_walls_reader; CREATE ROLE sql_walls_reader")
    await admin.execute("GRANT SELECT ON public.open_t TO sql_walls_reader")
    settings = TargetSettings(url=database_url, tables=("public.*",), role="sql_walls_reader")
    target = Target("t", settings)
    try:
        result = await run_query(
            target,
            "SELECT CURRENT_USER AS who FROM open_t RIGHT JOIN (VALUES (1)) v(a) ON true",
            {},
            timeout_ms=TIMEOUT_MS,
            max_rows=1,
        )
        assert result.rows == (("sql_walls_reader",),)
        with pytest.raises(SqlInvalid, match="permission denied"):
            await run_query(target, "SELECT n FROM closed_t", {}, timeout_ms=TIMEOUT_MS, max_rows=1)
    finally:
        await target.close()
        await admin.execute("DROP OWNED BY sql_walls_reader; DROP ROLE sql_walls_reader")
        await admin.close()


async def test_a_statement_that_an_administrator_cancels_is_not_a_timeout(
    database_url: str,
) -> None:
    admin = await asyncpg.connect(database_url)
    await admin.execute("CREATE TABLE public.t AS SELECT i AS n FROM generate_series(1, 300) i")
    target = Target("t", TargetSettings(url=database_url, tables=("public.t",)))
    running = asyncio.create_task(run_query(target, SLOW, {}, timeout_ms=60_000, max_rows=1))
    cancel = (
        "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity "
        "WHERE query LIKE '%public.t AS d%' AND state = 'active' AND pid <> pg_backend_pid()"
    )
    async with asyncio.timeout(BOUND_S):
        while not running.done():
            await admin.fetchval(cancel)
            await asyncio.wait({running}, timeout=0.02)
    with pytest.raises(SqlFailedForNow) as caught:
        await running
    assert caught.value.retryable
    assert caught.value.fields["sqlstate"] == "57014"
    await target.close()
    await admin.close()


async def test_a_database_that_is_not_there_is_unavailable_for_now() -> None:
    target = Target("gone", TargetSettings(url="postgresql://x@127.0.0.1:1/x", tables=("a.b",)))
    with pytest.raises(SqlUnavailable) as caught:
        await run_query(target, "SELECT 1 AS n", {}, timeout_ms=TIMEOUT_MS, max_rows=1)
    assert caught.value.retryable
    await target.close()


async def test_waiting_for_a_connection_is_part_of_the_time(database_url: str) -> None:
    admin = await asyncpg.connect(database_url)
    await admin.execute("CREATE TABLE public.t AS SELECT i AS n FROM generate_series(1, 300) i")
    target = Target("t", TargetSettings(url=database_url, tables=("public.t",)))
    answers = await asyncio.gather(
        *(run_query(target, SLOW, {}, timeout_ms=300, max_rows=1) for _ in range(16)),
        return_exceptions=True,
    )
    assert [type(answer) for answer in answers] == [SqlTimeout] * 16
    await target.close()
    await admin.close()
