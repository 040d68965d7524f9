"""Queries of WITH that a database would copy into one another without end."""

import pytest

from hocket.workers.sql.errors import SqlConstructRefused
from hocket.workers.sql.guard.guard import check_query


def chain(levels: int, how: str = "", between: str = "") -> str:
    parts = [f"t0 AS {how} (SELECT 1 AS x)"]
    for level in range(1, levels):
        before = f"t{level - 1}"
        if between:
            parts += [f"{side}{level} AS (SELECT x FROM {before})" for side in "pq"]
            parts.append(f"t{level} AS {how} (SELECT p.x FROM p{level} p, q{level} q)")
        else:
            parts.append(f"t{level} AS {how} (SELECT a.x FROM {before} a, {before} b)")
    return f"WITH {', '.join(parts)} SELECT count(*) AS n FROM t{levels - 1}"


def nested(levels: int, recursive: str = "") -> str:
    query = "SELECT 1 AS x"
    for _ in range(levels):
        query = f"WITH {recursive} t AS NOT MATERIALIZED ({query}) SELECT a.x FROM t a, t b"
    return query


def check(sql: str, dialect: str = "postgres") -> None:
    check_query(sql, dialect=dialect, tables=("main.*", "public.*"), max_rows=9)


@pytest.mark.parametrize(
    "sql",
    [
        chain(21, "NOT MATERIALIZED"),
        chain(21, "NOT MATERIALIZED", between="plain ones"),
        nested(21),
        nested(21, "RECURSIVE"),
        "WITH t AS NOT MATERIALIZED (SELECT 1 AS x) SELECT 1 AS n FROM "
        + ", ".join(f"t a{n}" for n in range(1_100)),
        # each one inside the next, of the same name
        "WITH t AS (SELECT 1 AS x) SELECT x FROM "
        + "(WITH t AS NOT MATERIALIZED (SELECT a.x FROM t a, t b) SELECT x FROM " * 12
        + "t"
        + ") s" * 12,
    ],
)
def test_copies_that_double_are_refused(sql: str) -> None:
    with pytest.raises(SqlConstructRefused, match="copies"):
        check(sql)


def test_sqlite_copies_them_always() -> None:
    with pytest.raises(SqlConstructRefused, match="copies"):
        check(chain(18), "sqlite")


@pytest.mark.parametrize("how", ["", "MATERIALIZED"])
def test_what_postgres_works_out_once_may_be_named_often(how: str) -> None:
    check(chain(40, how))


def test_what_postgres_works_out_once_counts_once_beside_what_it_copies() -> None:
    once = chain(40, "MATERIALIZED").removeprefix("WITH ").rpartition(" SELECT")[0]
    check(f"WITH {once}, m AS NOT MATERIALIZED (SELECT x FROM t39) SELECT a.x FROM m a, m b")


@pytest.mark.parametrize(
    "sql",
    [
        chain(6, "NOT MATERIALIZED"),
        chain(3, "NOT MATERIALIZED", between="plain ones"),
        "WITH orders AS NOT MATERIALIZED (SELECT id FROM orders) SELECT id FROM orders",
        """WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 9),
        m AS NOT MATERIALIZED (SELECT i FROM n) SELECT a.i FROM m a, m b""",
    ],
)
def test_a_few_copies_are_let_through(sql: str) -> None:
    check(sql)


def test_sqlite_may_copy_a_few() -> None:
    check(chain(5), "sqlite")
