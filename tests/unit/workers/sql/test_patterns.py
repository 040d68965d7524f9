"""LIKE and GLOB of ours give what SQLite gives, and a query stops within them."""

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from hocket.workers.sql import sqlite, sqlite_patterns, sqlite_text, targets
from hocket.workers.sql.errors import SqlInvalid, SqlTimeout
from hocket.workers.sql.runner import failure_of, run_query
from hocket.workers.sql.sqlite import Calls, QueryStopped
from hocket.workers.sql.targets import Target, TargetSettings

ALPHABETS = (
    "ab",
    "aB%_*?",
    "éa%_*[]^-",
    "aAbBkK%_*?[]^-\\éÉß€\U0001f600\ufffe\ufffd\uffff.\n1İ\u0131\u017f\u212a\0x",
)
ODD_VALUES = (None, 5, -1, 1.0, 1e20, 0.1, b"a", b"", b"a\0b", True, 2**62)
ESCAPES = ("\\", "%", "_", "a", "A", "[", "é", "\ufffe", "", "ab", "\0", None, 5)
CASES = 3_000
MATCHED_AT_ONCE = 32 * 1024
"""Bytes of a value that SQLite's own functions are used for in some tests."""


@pytest.fixture
def ours() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    functions = sqlite_text.pattern_functions(lambda: None)
    for name, (counts, function) in functions.items():
        for count in counts:
            connection.create_function(name, count, function)
    yield connection
    connection.close()


@pytest.fixture
def theirs() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    limit = sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH
    connection.setlimit(limit, sqlite_patterns.MAX_PATTERN_BYTES)
    yield connection
    connection.close()


@pytest.fixture
def own_queries(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Gets an item for each query that is run with our functions."""
    queries: list[int] = []
    functions = sqlite_text.pattern_functions

    def counted(check: Any) -> Any:
        queries.append(1)
        return functions(check)

    monkeypatch.setattr(sqlite.linear, "pattern_functions", counted)
    return queries


@pytest.mark.parametrize("steps", [1, 7, sqlite_patterns.STEPS_AT_ONCE])
@pytest.mark.parametrize("operation", ["? LIKE ?", "? GLOB ?", "? LIKE ? ESCAPE ?"])
def test_generated_values_match_as_in_sqlite(
    operation: str,
    steps: int,
    ours: sqlite3.Connection,
    theirs: sqlite3.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sqlite_patterns, "STEPS_AT_ONCE", steps)
    random = Random(f"{operation} {steps}")
    answers: set[Any] = set()
    for _ in range(CASES):
        values = [_generated(random), _generated(random)]
        if "ESCAPE" in operation:
            values.append(random.choice(ESCAPES))
        expected = _asked(theirs, operation, values)
        answers.add(expected)
        assert _asked(ours, operation, values) == expected, values
    assert {(0,), (1,), (None,)} <= answers, "all of them occur"


@pytest.mark.parametrize(
    ("operation", "values"),
    [
        ("? LIKE ?", ["a" * 60_000 + "b", "%" + "a" * 200 + "b"]),
        ("? LIKE ?", ["xA" * 30_000 + "yé", "%a_a%A_%Y_"]),
        ("? LIKE ?", ["xA" * 30_000, "%a__a%b_x%"]),
        ("? LIKE ?", ["a", "%" + "a" * 249]),
        ("? LIKE ?", ["a", "%" + "a" * 250]),
        ("? LIKE ?", [None, "é" * 126]),
        ("? LIKE ? ESCAPE ?", [None, "a", "ab"]),
        ("? GLOB ?", ["xa" * 30_000 + "-]", "*[a-b]?[^a-]*[]-]"]),
        ("? GLOB ?", ["xa" * 30_000, "*[z-a]*"]),
        ("? GLOB ?", ["abc", "ab[c"]),
        ("? GLOB ?", ["a^&~|[c", "a[&^][^&-a][~][|][[]c"]),
    ],
)
def test_long_and_odd_values_match_as_in_sqlite(
    operation: str, values: list[Any], ours: sqlite3.Connection, theirs: sqlite3.Connection
) -> None:
    assert _asked(ours, operation, values) == _asked(theirs, operation, values)


def test_a_search_for_a_part_with_gaps_is_checked_now_and_then() -> None:
    checks = 0

    def check() -> None:
        nonlocal checks
        checks += 1
        if checks == 3:
            raise QueryStopped

    parts = sqlite_patterns.like("%a" + "_" * 200 + "b%", "")
    with pytest.raises(QueryStopped):
        sqlite_patterns.matches(parts, "a" * 100_000, check, folds=True)


@pytest.mark.parametrize(
    "value",
    [
        "printf('%.*c', 40000, 'a')",
        "FORMAT('%040000d', 1)",
        "a || replace(a, 'x', 'yy')",
        "quote(a)",
        "hex(a)",
        "upper(a)",
        "json_quote(a)",
        "json_array(a, a)",
        "group_concat(a)",
        "json_group_array(a)",
        "max(a)",
        "(SELECT group_concat(value) FROM json_each(json_array(a, 1)))",
        "(SELECT printf('%s', b.a) FROM lengthy AS b)",
    ],
)
async def test_a_long_value_beside_a_pattern_is_what_it_is_without_one(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "MATCHING_STEPS", MATCHED_AT_ONCE * sqlite.SHORT_PATTERN_BYTES)
    target = _target(tmp_path)
    sql = f"SELECT {value} AS v FROM lengthy"
    plain = await run_query(target, sql, {}, timeout_ms=60_000, max_rows=9)
    beside = await run_query(
        target, f"{sql} WHERE 'red' LIKE 'r%'", {}, timeout_ms=60_000, max_rows=9
    )
    assert len(plain.rows[0][0]) > MATCHED_AT_ONCE
    assert beside.rows == plain.rows
    await target.close()


@pytest.mark.parametrize(
    ("query", "params", "found"),
    [
        ("SELECT count(*) FROM t WHERE a LIKE '%RED%'", {}, 2),
        ("SELECT count(*) FROM lengthy WHERE a LIKE '%long_end'", {}, 1),
        ("SELECT count(*) FROM lengthy WHERE a LIKE '%' || :p || '%'", {"p": "long"}, 1),
        ("SELECT count(*) FROM t WHERE a LIKE :p", {"p": "%" + "ö" * 120 + "%"}, 0),
        ("SELECT count(*) FROM t WHERE a LIKE '%' || :p || '%'", {"p": "r" * 100}, 0),
        ("SELECT count(a) FROM (SELECT l.a FROM lengthy l, t WHERE t.a GLOB 'R*')", {}, 1),
        ("SELECT printf('%s', a) = a FROM lengthy WHERE a LIKE 'x%'", {}, 1),
        ("SELECT count(*) FROM t WHERE a <> :p AND a LIKE 'r%'", {"p": "x" * 100_000}, 1),
        ("SELECT count(*) FROM broken WHERE a LIKE '%r%' AND b LIKE '%long%'", {}, 1),
    ],
)
async def test_ordinary_values_and_patterns_are_left_to_sqlite(
    query: str,
    params: dict[str, Any],
    found: int,
    tmp_path: Path,
    own_queries: list[int],
) -> None:
    target = _target(tmp_path)
    result = await run_query(target, query, params, timeout_ms=60_000, max_rows=1)
    assert (result.rows[0][0], own_queries) == (found, [])
    await target.close()


@pytest.mark.parametrize(
    ("query", "params", "found"),
    [
        ("SELECT count(*) FROM lengthy WHERE a LIKE '%long_end'", {}, 1),
        ("SELECT count(*) FROM ending WHERE ends", {}, 1),
        ("SELECT count(*) FROM t WHERE a LIKE (SELECT substr(a, 1, 40) FROM lengthy)", {}, 0),
        ("SELECT printf('%s', a) = a FROM lengthy WHERE a LIKE :p", {"p": "x%" + "_" * 32}, 1),
    ],
)
async def test_too_long_values_and_patterns_are_not(
    query: str,
    params: dict[str, Any],
    found: int,
    tmp_path: Path,
    own_queries: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if "printf" not in query:
        steps = MATCHED_AT_ONCE * sqlite.SHORT_PATTERN_BYTES
        monkeypatch.setattr(sqlite, "MATCHING_STEPS", steps)
    target = _target(tmp_path)
    result = await run_query(target, query, params, timeout_ms=60_000, max_rows=1)
    assert (result.rows[0][0], own_queries) == (found, [1])
    await target.close()


@pytest.mark.parametrize(
    ("condition", "matches"),
    [
        ("a LIKE '%x%'", 1),
        ("a LIKE '%x%' OR b NOT LIKE '%y%' ESCAPE '!' AND a GLOB '*z*'", 3),
        ("'like(2)' = a", 0),
        ("EXISTS (SELECT 1 FROM endings WHERE ends)", 1),
        ("EXISTS (SELECT 1 FROM endings WHERE ends AND id > 3 OR length(ends) = 1)", 2),
    ],
)
def test_a_row_takes_a_limited_number_of_steps(condition: str, matches: int) -> None:
    connection = sqlite3.connect(":memory:")
    connection.executescript(
        "CREATE TABLE t (id, a, b); CREATE VIEW endings AS SELECT id, a LIKE '%end' AS ends FROM t;"
    )
    connection.text_factory = bytes
    program = connection.execute(f"EXPLAIN SELECT a FROM t WHERE {condition}").fetchall()
    connection.close()
    for params in ((), ("x" * 100,), ("é" * 100, 5, None), ("x" * 250,), ("x" * 251,)):
        lengths = sqlite.Lengths.within_steps(program, params)
        if matches:
            assert lengths.value * lengths.pattern * matches <= sqlite.MATCHING_STEPS
            texts = [text for text in params if isinstance(text, str)]
            sizes = [len(text.encode()) for text in texts]
            assert all(size <= lengths.pattern or size > 250 for size in sizes)
        else:
            assert lengths == sqlite.Lengths()


async def test_what_runs_is_interrupted_once_its_caller_is_gone() -> None:
    """Neither the clock nor its number of steps stops it."""
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    begun = threading.Event()
    connection.create_function("begun", 0, begun.set)
    interrupter = sqlite.Interrupter()
    interrupter.interrupt()

    def run() -> None:
        numbers = "WITH RECURSIVE n(i) AS (SELECT begun() UNION ALL SELECT 1 FROM n)"
        with interrupter.on(connection):  # type: ignore[arg-type]
            connection.execute(f"{numbers} SELECT count(*) FROM n")

    running = asyncio.get_running_loop().run_in_executor(None, run)
    await asyncio.to_thread(begun.wait)
    await targets._ended(running, interrupter)
    with pytest.raises(sqlite3.OperationalError, match="interrupted"):
        running.result()
    connection.close()
    with interrupter.on(connection):  # type: ignore[arg-type]
        interrupter.interrupt()


@pytest.mark.parametrize(
    "call",
    [
        "trim(x, 'abcdefghij')",
        "ltrim(x, 'abcdefghij')",
        "trim(x)",
        "instr(x, 'b')",
        "replace(x, 'b', 'c')",
        "x LIKE '%a_b'",
        "x LIKE '%b%'",
        "x GLOB '*[a]b*'",
    ],
)
async def test_a_query_stops_within_a_row(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look at the clock takes 10 ms of a second: it is over long before the row is."""
    looks = 0

    def clock() -> float:
        nonlocal looks
        looks += 1
        return looks / 100

    monkeypatch.setattr(targets, "monotonic", clock)
    target = _target(tmp_path)
    calls = ", ".join(f"length({call}) + {n}" for n in range(300))
    sql = f"SELECT {calls} FROM (SELECT printf('%.*c', 120000, 'a') AS x FROM t LIMIT 1)"
    with pytest.raises(DBAPIError) as caught:
        await target.fetch(text(sql), {}, timeout_ms=1_000, max_rows=1)
    assert isinstance(failure_of(target, caught.value, 1_000, 1_000), SqlTimeout)
    assert looks < 300, "the rest of the row was not computed"
    await target.close()


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        ("instr(CAST(x'ff41' AS text), 'A')", "not UTF-8"),
        ("a LIKE 'a' ESCAPE 'bc'", "single character"),
        ("a LIKE printf('%300s', 'a')", "more than 250 bytes"),
    ],
)
async def test_a_function_that_fails_says_why(column: str, reason: str, tmp_path: Path) -> None:
    target = _target(tmp_path)
    with pytest.raises(SqlInvalid, match=reason):
        await run_query(target, f"SELECT {column} AS v FROM t", {}, timeout_ms=60_000, max_rows=1)
    await target.close()


async def test_bytes_that_are_not_utf_8_are_searched_as_a_blob(tmp_path: Path) -> None:
    target = _target(tmp_path)
    sql = "SELECT instr(CAST(CAST(x'ff41' AS text) AS blob), 'A') AS at FROM t"
    result = await run_query(target, sql, {}, timeout_ms=60_000, max_rows=1)
    assert result.rows == ((2,),)
    await target.close()


def test_a_failure_is_that_of_the_query_that_runs() -> None:
    calls = Calls()

    def fails() -> None:
        raise ValueError("no such thing")

    with pytest.raises(ValueError, match="no such thing"):
        calls.guarded(fails)()
    assert "no such thing" in str(calls.failure())
    calls.begin(lambda: False)
    assert "not UTF-8" in str(calls.failure())


def _generated(random: Random) -> Any:
    if random.random() < 0.05:
        return random.choice(ODD_VALUES)
    alphabet = random.choice(ALPHABETS)
    return "".join(random.choice(alphabet) for _ in range(random.randrange(8)))


def _asked(connection: sqlite3.Connection, operation: str, values: list[Any]) -> Any:
    try:
        return connection.execute(f"SELECT {operation}", values).fetchone()
    except sqlite3.OperationalError:
        return "an error"


def _target(folder: Path) -> Target:
    file = folder / "shop.db"
    connection = sqlite3.connect(file)
    connection.executescript(
        "CREATE TABLE t (a); CREATE TABLE lengthy (a); CREATE TABLE broken (a, b);"
        "CREATE VIEW ending AS SELECT a LIKE '%long_end' AS ends FROM lengthy;"
    )
    long = "x" * (2 * MATCHED_AT_ONCE) + "LONG end"
    connection.execute("INSERT INTO lengthy VALUES (?)", (long,))
    connection.execute("INSERT INTO broken VALUES (CAST(x'72e9' AS TEXT), ?)", (long,))
    connection.executemany("INSERT INTO t VALUES (?)", [("Red",), ("a red one",)])
    connection.commit()
    connection.close()
    return Target("shop", TargetSettings(url=f"sqlite:///{file}", tables=("main.*",)))
