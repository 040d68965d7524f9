"""No text of a query, and no single step of SQLite, takes long."""

import asyncio
import json
import sqlite3
import threading
import time
import tracemalloc
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hocket.workers.nodes import sql as sql_node
from hocket.workers.sql import runner
from hocket.workers.sql.answers import MAX_ROW_CHARS, Answer, JsonText, read_answer
from hocket.workers.sql.errors import SqlAnswerTooLarge, SqlRefused, SqlUnreadable
from hocket.workers.sql.guard.guard import check_query
from hocket.workers.sql.runner import QueryResult, grace_ms, run_query
from hocket.workers.sql.shaping import shaped
from hocket.workers.sql.sqlite import connect
from hocket.workers.sql.targets import Target, TargetSettings

DEEP = 60
NESTED = {
    "array": ("ARRAY[", "1", "]"),
    "date": ("date(", "'2020-01-01'", ")"),
    "any": ("1 = ANY(ARRAY[", "1", "])"),
    "struct": ("struct(", "1", ")"),
    "brace": ("{a: ", "1", "}"),
    "timestamp": ("timestamp(", "1", ")"),
    "char": ("char(", "1", ")"),
    "decimal": ("decimal(", "1", ")"),
    "enum": ("enum(", "1", ")"),
    "type": ("CAST(1 AS numeric(", "1", "))"),
}


@pytest.mark.parametrize("dialect", ["postgres", "sqlite", "mysql", "duckdb"])
@pytest.mark.parametrize("name", NESTED)
def test_a_parser_that_tries_each_level_twice_gives_up(name: str, dialect: str) -> None:
    opened, inner, closed = NESTED[name]
    begun_s = time.process_time()
    sql = f"SELECT {opened * DEEP}{inner}{closed * DEEP}"
    with suppress(SqlRefused):  # refused or not: it ends
        check_query(sql, dialect=dialect, tables=["public.*"], max_rows=1)
    assert time.process_time() - begun_s < 20  # 2**60 steps otherwise


def test_a_chain_is_as_deep_as_it_is_long() -> None:
    with pytest.raises(SqlRefused, match="levels"):
        check_query("SELECT 1" + " UNION SELECT 1" * 600, dialect="postgres", tables=[], max_rows=1)


def test_the_loop_goes_on_while_a_long_query_is_checked(tmp_path: Path) -> None:
    target = _target(tmp_path)

    async def play() -> int:
        turns = 0
        columns = ", ".join(f"a AS a{i}" for i in range(1500))
        asked = asyncio.create_task(
            run_query(target, f"SELECT {columns} FROM t", {}, timeout_ms=60_000, max_rows=1)
        )
        while not asked.done():
            turns += 1
            await asyncio.sleep(0.001)
        await asked
        return turns

    assert asyncio.run(play()) > 5


@pytest.mark.parametrize("sql", ["SELECT " + "(" * 150 + "1" + ")" * 150, "SELECT '" + "a" * 2_000])
async def test_what_may_take_long_to_check_is_checked_in_a_thread(
    sql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def checked(_sql: str, **_options: Any) -> None:
        threads.append(threading.current_thread())
        raise SqlUnreadable(dialect="sqlite", reason="this is a test")

    monkeypatch.setattr(runner, "check_query", checked)
    target = _target(tmp_path)
    for text in (sql, "SELECT a FROM t WHERE a IN (1, 2)"):
        with pytest.raises(SqlUnreadable):
            await run_query(target, text, {}, timeout_ms=60_000, max_rows=1)
    loop = threading.current_thread()
    assert [thread is loop for thread in threads] == [False, True]
    await target.close()


SLOW = {
    "instr": "SELECT instr(replace(printf('%2000000s','x'),' ','a'), "
    "replace(printf('%1000000s','b'),' ','a')) FROM t",
    "replace": "SELECT length(replace(replace(printf('%4000000s','x'),' ','a'), "
    "replace(printf('%2000000s','b'),' ','a'), 'z')) FROM t",
    "trim": "SELECT length(trim(printf('%4000000s','x'), replace(printf('%4000000s',' '),' ','y'))) "
    "FROM t",
    "trim of many": "WITH RECURSIVE c(n) AS ("
    "SELECT 66000 UNION ALL SELECT n + 1 FROM c WHERE n < 400000)"
    " SELECT length(trim(replace(printf('%500000s', ' '), ' ', char(66000)), group_concat(char(n), '')))"
    " FROM c",
    "like": "SELECT printf('%4000000s','x') LIKE printf('%%%20000s','y') FROM t",
    "glob": "SELECT printf('%4000000s','x') GLOB '*' || printf('%20000s','y') FROM t",
    "large values": "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT sum("
    + " + ".join(["length(upper(b))"] * 60)
    + ") FROM c, (SELECT printf('%4000000s','x') AS b FROM t LIMIT 1) AS v",
}


@pytest.mark.parametrize("name", SLOW)
def test_a_step_of_sqlite_ends_soon(name: str, tmp_path: Path) -> None:
    connection = connect(_file(tmp_path))
    begun_s, stop_s = time.thread_time(), time.thread_time() + 0.2
    connection.set_progress_handler(lambda: int(time.thread_time() > stop_s), 1_000)
    with suppress(sqlite3.DatabaseError):  # interrupted, or the pattern too complex
        connection.execute(SLOW[name]).fetchall()
    assert time.thread_time() - begun_s < 30  # hours otherwise


def test_a_text_that_would_be_too_long_is_not_made(tmp_path: Path) -> None:
    connection = connect(_file(tmp_path))
    letters = "replace(printf('%100000s', ' '), ' ', 'b')"
    grows = f"SELECT length(replace(printf('%100000s', ' '), ' ', {letters}))"
    tracemalloc.start()
    with pytest.raises(sqlite3.DataError, match="too big"):
        connection.execute(grows).fetchall()
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 2_000_000


def test_what_sqlite_sorts_stays_off_the_disk(tmp_path: Path) -> None:
    connection = connect(_file(tmp_path))
    assert connection.execute("PRAGMA temp_store").fetchone() == (2,)
    grows = (
        "WITH RECURSIVE c(n, x) AS (SELECT 1, printf('%1000000s', 'x') UNION SELECT n + 1, x FROM c)"
        " SELECT count(*) FROM c"
    )
    with pytest.raises(MemoryError):
        connection.execute(grows).fetchall()


@pytest.mark.parametrize(
    "call",
    [
        "instr('abc', 'c')",
        "instr('abc', '')",
        "instr(x'00ff00', x'ff')",
        "instr(12.5, '.')",
        "instr('é€a', 'a')",
        "instr(NULL, 'a')",
        "replace('aaa', 'aa', 'b')",
        "replace('abc', '', 'x')",
        "replace('abc', 'b', NULL)",
        "replace(1.0, '.', ',')",
        "replace(1e20, '+', 'p')",
        "replace(-1e300 * 1e300, '-', '')",
        "replace(0.1 + 0.2, 'x', 'y')",
        "replace(123, 2, 4)",
        "trim('  a ')",
        "trim('\ta ')",
        "trim('xxaxy', 'yx')",
        "trim('a', '')",
        "ltrim('xxaxx', 'x')",
        "rtrim('xxaxx', 'x')",
        "rtrim(1.50, '0')",
        "trim('xxx', 'x')",
        "ltrim('xxx', 'x')",
        "rtrim('', 'x')",
        "trim(NULL)",
        "trim('a', NULL)",
    ],
)
def test_linear_functions_give_what_sqlite_gives(call: str, tmp_path: Path) -> None:
    own = sqlite3.connect(":memory:").execute(f"SELECT {call}, typeof({call})").fetchone()
    assert connect(_file(tmp_path)).execute(f"SELECT {call}, typeof({call})").fetchone() == own


def test_json_counts_as_large_as_it_becomes() -> None:
    with pytest.raises(SqlAnswerTooLarge):
        read_answer(_rows(JsonText("[" + "[]," * 3_000_000 + "[]]")), 10, "shop")
    plain = JsonText(json.dumps("x" * (MAX_ROW_CHARS - 100)))
    assert read_answer(_rows(plain), 10, "shop").rows


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("0.5", 0.5),
        ("1e3", 1000.0),
        ("12345678901234567.89", "12345678901234567.89"),
        ("0.1234567890123456789", "0.1234567890123456789"),
        ("9007199254740993.0", "9007199254740993.0"),
        ("1e400", "1e400"),
    ],
)
def test_a_number_in_json_is_exact(written: str, read: Any) -> None:
    answer = Answer(("v",), [(JsonText(f'{{"total": {written}}}'),)], 1)
    assert shaped(answer) == (("json",), (({"total": read},),))


async def test_a_query_is_given_up_while_its_step_can_still_say_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given_ms: list[float] = []

    async def queried(*_args: Any, timeout_ms: float, **_options: Any) -> QueryResult:
        given_ms.append(timeout_ms)
        return QueryResult("SELECT 1", (), (), (), truncated=False, elapsed_ms=0.0)

    monkeypatch.setattr(sql_node, "run_query", queried)
    monkeypatch.setattr("hocket.workers.call_time.now_ms", lambda: 7_000.0)
    step = sql_node.SqlNode(cast(Any, SimpleNamespace(get=lambda *_named: None)))
    lefts_ms = (1.0, 70.0, 3_000.0, 60_000.0)
    for left_ms in lefts_ms:
        context = SimpleNamespace(
            config={"database": "shop", "query": "SELECT 1"},
            input={},
            tenant="acme",
            deadline_at_ms=7_000.0 + left_ms,
        )
        await step(cast(Any, context))
    for left_ms, timeout_ms in zip(lefts_ms, given_ms, strict=True):
        assert 0 < timeout_ms < timeout_ms + grace_ms(timeout_ms) < left_ms


def _rows(value: str) -> Any:
    """Return what a driver gives: one row of one column."""

    class Result(list[tuple[str]]):
        def keys(self) -> list[str]:
            return ["v"]

    return Result([(value,)])


def _file(folder: Path) -> Path:
    file = folder / "shop.db"
    if not file.exists():
        connection = sqlite3.connect(file)
        connection.executescript("CREATE TABLE t (a); INSERT INTO t VALUES (1);")
        connection.close()
    return file


def _target(folder: Path) -> Target:
    settings = TargetSettings(url=f"sqlite:///{_file(folder)}", tables=("main.t",))
    return Target("shop", settings)
