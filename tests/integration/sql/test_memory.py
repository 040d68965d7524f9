"""What a query may make the worker hold: answers are bounded while they come in, not after."""

import asyncio
import multiprocessing
import resource
import sqlite3
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from hocket.schemas.errors import HocketError
from hocket.workers.sql import answers, wire
from hocket.workers.sql import postgres as postgres_module
from hocket.workers.sql.answers import MAX_ANSWER_CHARS
from hocket.workers.sql.errors import SqlAnswerTooLarge
from hocket.workers.sql.runner import run_query
from hocket.workers.sql.targets import POOL_SIZE, Target, TargetSettings

TIMEOUT_MS = 10_000.0
GROWTH_BYTES = 400 * 1024 * 1024
BOUND_S = 240.0
STOPPED = {
    "cut",
    "SqlAnswerTooLarge",
    "SqlOutOfMemory",
    "SqlInvalid",
    "SqlTimeout",
    "whole, 1 rows",
}

POSTGRES_BOMBS = [
    "SELECT repeat(v, 90000) AS v FROM wide",
    "SELECT array_agg(v) AS v FROM wide, generate_series(1, 500)",
    "SELECT json_agg(v) AS v FROM wide, generate_series(1, 500)",
    "SELECT " + ", ".join(f"repeat(v, 2000) AS c{n}" for n in range(50)) + " FROM wide",
    "SELECT ('[' || repeat('[],', 50000) || '1]')::json AS v FROM wide",
    "SELECT array_fill(1, ARRAY[10000000]) AS v",
]
SQLITE_BOMBS = [
    "SELECT replace(v, 'x', printf('%90000d', 1)) AS v FROM wide",
    "SELECT group_concat(replace(v, 'x', 'yyyyyyyyyy'), '') AS v FROM wide",
    "SELECT "
    + ", ".join(f"replace(v, 'x', printf('%9000d', {n})) AS c{n}" for n in range(50))
    + " FROM wide",
]


@pytest.fixture
async def postgres(database_url: str) -> str:
    admin = await asyncpg.connect(database_url)
    await admin.execute(
        "CREATE TABLE public.wide AS SELECT repeat('x', 1000) AS v FROM generate_series(1, 1000)"
    )
    await admin.close()
    return database_url


@pytest.fixture
def lite(tmp_path: Path) -> str:
    connection = sqlite3.connect(tmp_path / "wide.db")
    connection.execute("CREATE TABLE wide (v text)")
    connection.executemany("INSERT INTO wide VALUES (?)", [("x" * 1000,)] * 1000)
    connection.commit()
    connection.close()
    return f"sqlite:///{tmp_path}/wide.db"


async def test_no_postgres_answer_fills_the_worker(postgres: str) -> None:
    await _check_growth(postgres, "public.*", POSTGRES_BOMBS)


async def test_no_sqlite_answer_fills_the_worker(lite: str) -> None:
    await _check_growth(lite, "main.*", SQLITE_BOMBS)


async def test_a_connection_is_replaced_after_an_answer_that_was_cut_off(postgres: str) -> None:
    target = Target("t", TargetSettings(url=postgres, tables=("public.*",)))
    for _ in range(POOL_SIZE + 1):
        with pytest.raises(SqlAnswerTooLarge, match="cut off") as caught:
            await run_query(target, POSTGRES_BOMBS[0], {}, timeout_ms=TIMEOUT_MS, max_rows=10_000)
        assert not caught.value.retryable
    result = await run_query(
        target, "SELECT count(*) AS n FROM wide", {}, timeout_ms=TIMEOUT_MS, max_rows=10
    )
    assert result.rows == ((1000,),)
    await target.close()


async def test_elements_of_arrays_are_counted_while_they_are_read(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "MAX_ANSWER_VALUES", 1_000)
    read: list[str] = []

    def counted_too(text: str) -> int:
        read.append(text)
        return int(text)

    monkeypatch.setitem(postgres_module._DECODERS, "int4", counted_too)  # type: ignore[index]
    target = Target("t", TargetSettings(url=postgres, tables=("public.*",)))
    for sql in (
        "SELECT array_fill(1, ARRAY[100000]) AS v",
        "SELECT array_fill(1, ARRAY[100, 1000]) AS v",
        "SELECT array_fill(1, ARRAY[100]) AS v FROM wide",
    ):
        read.clear()
        with pytest.raises(SqlAnswerTooLarge, match="elements"):
            await run_query(target, sql, {}, timeout_ms=TIMEOUT_MS, max_rows=10_000)
        assert 900 < len(read) <= 1_000, "the rest was not read"
    result = await run_query(
        target, "SELECT array_fill(1, ARRAY[900]) AS v", {}, timeout_ms=TIMEOUT_MS, max_rows=9
    )
    assert len(result.rows[0][0]) == 900
    await target.close()


async def test_only_a_row_has_too_many_values_at_once(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "MAX_PIECE_VALUES", 5_000)  # PIECE_BYTES has half as many rows
    target = Target("t", TargetSettings(url=postgres, tables=("public.*",), max_rows=100_000))
    with pytest.raises(SqlAnswerTooLarge, match="elements"):
        await run_query(
            target, "SELECT array_fill(1, ARRAY[6000]) AS v", {}, timeout_ms=TIMEOUT_MS, max_rows=9
        )
    result = await run_query(
        target, "SELECT g, ARRAY[g] AS v FROM generate_series(1, 20000) AS g", {},
        timeout_ms=TIMEOUT_MS, max_rows=100_000,
    )  # fmt: skip
    assert result.row_count == 20_000
    await target.close()


def test_an_array_of_nulls_is_too_large_before_its_elements_are_looked_at() -> None:
    class Elements(list[Any]):
        def __iter__(self) -> Any:
            raise AssertionError("they are looked at")

    assert answers._size(Elements([None] * 2_100_000)) > answers.MAX_ROW_CHARS


@pytest.mark.parametrize("schema", ["public", "main"])
async def test_an_answer_that_is_a_little_too_long_is_cut_and_says_so(
    postgres: str, lite: str, schema: str
) -> None:
    url = postgres if schema == "public" else lite
    target = Target("t", TargetSettings(url=url, tables=(f"{schema}.*",)))
    result = await run_query(
        target,
        "SELECT replace(v, 'x', '0123456789') AS v FROM wide",
        {},
        timeout_ms=TIMEOUT_MS,
        max_rows=10_000,
    )
    assert result.truncated
    assert result.row_count == MAX_ANSWER_CHARS // 10_000
    await target.close()


async def _check_growth(url: str, tables: str, bombs: list[str]) -> None:
    """Run them in a process of its own, whose memory is its own."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_play, args=(url, tables, bombs, sender))
    process.start()
    sender.close()
    try:
        assert await asyncio.to_thread(receiver.poll, BOUND_S)
        outcomes, grown_bytes = receiver.recv()
    finally:
        process.kill()
        await asyncio.to_thread(process.join)
    assert set(outcomes) <= STOPPED, list(zip(outcomes, bombs, strict=True))
    assert grown_bytes < GROWTH_BYTES, (grown_bytes, outcomes)


def _play(url: str, tables: str, bombs: list[str], sender: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (3 * 1024**3, 3 * 1024**3))
    asyncio.run(_measure(url, tables, bombs, sender))


async def _measure(url: str, tables: str, bombs: list[str], sender: Connection) -> None:
    target = Target("t", TargetSettings(url=url, tables=(tables,), max_rows=100_000))
    await run_query(target, "SELECT 1 AS n", {}, timeout_ms=TIMEOUT_MS, max_rows=1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcomes = [await _outcome(target, sql) for sql in bombs]
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    await target.close()
    sender.send((outcomes, grown * 1024))


async def _outcome(target: Target, sql: str) -> str:
    try:
        result = await run_query(target, sql, {}, timeout_ms=TIMEOUT_MS, max_rows=100_000)
    except HocketError as error:
        return type(error).__name__
    return "cut" if result.truncated else f"whole, {result.row_count} rows"


DEAR = {
    "'(1,2)'::point": [1.0, 2.0],
    "'((0,0),(1,1))'::box": [[1.0, 1.0], [0.0, 0.0]],
    "'[(0,0),(1,1)]'::lseg": [[0.0, 0.0], [1.0, 1.0]],
    "'{1,2,3}'::line": [1.0, 2.0, 3.0],
    "'<(0,0),1>'::circle": [[0.0, 0.0], 1.0],
    "'[(0,0),(1,1)]'::path": [[0.0, 0.0], [1.0, 1.0]],
    "'((0,0),(1,1),(2,2))'::polygon": [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]],
    "'10.0.0.1'::inet": "10.0.0.1",
    "'::1/64'::inet": "::1/64",
    "'10.0.0.0/8'::cidr": "10.0.0.0/8",
    "B'101'": "101",
    "'12:00+01'::timetz": "12:00:00+01:00",
    "interval '1 year 2 months 3 days 4:05:06.5'": 428 * 86_400 + 4 * 3_600 + 306.5,
    "interval '-14 months 3 days'": -422 * 86_400.0,
    "interval '170000000 years'": "P2040000000M0DT0.000000S",
}


@pytest.mark.parametrize("value", DEAR)
async def test_an_array_of_a_type_that_takes_long_to_read_is_given_up_soon(
    postgres: str, value: str
) -> None:
    target = Target("t", TargetSettings(url=postgres, tables=("public.*",)))
    try:
        some = await run_query(
            target, f"SELECT {value} AS v, ARRAY[{value}, {value}] AS vs", {},
            timeout_ms=TIMEOUT_MS, max_rows=10,
        )  # fmt: skip
        assert list(map(list, some.rows)) == [[DEAR[value], [DEAR[value], DEAR[value]]]]
        loop, longest_s = asyncio.get_running_loop(), 0.0

        async def listen() -> None:
            nonlocal longest_s
            while True:
                before_s = loop.time()
                await asyncio.sleep(0.001)
                longest_s = max(longest_s, loop.time() - before_s)

        listening = asyncio.create_task(listen())
        many = f"SELECT array_fill({value}, ARRAY[300000]) AS v"
        with pytest.raises(SqlAnswerTooLarge):
            await run_query(target, many, {}, timeout_ms=10 * TIMEOUT_MS, max_rows=10)
        listening.cancel()
        print(f"{value}: the loop stood still for {longest_s:.2f} s")
    finally:
        await target.close()


async def test_a_path_of_very_many_points_is_given_up(postgres: str) -> None:
    target = Target("t", TargetSettings(url=postgres, tables=("public.*",)))
    points = "(SELECT string_agg('(1,1)', ',') FROM generate_series(1, 300000))"
    try:
        with pytest.raises(SqlAnswerTooLarge):
            await run_query(
                target, f"SELECT ('[' || {points} || ']')::path AS v", {},
                timeout_ms=10 * TIMEOUT_MS, max_rows=10,
            )  # fmt: skip
    finally:
        await target.close()
