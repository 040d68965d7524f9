"""Names in nested scopes: what the guard says a query reads, against what Postgres plans to read."""

import json
import os
import random
from collections.abc import Iterator
from typing import Any

import asyncpg

from hocket.workers.sql.errors import SqlConstructRefused, SqlRefused, SqlTableRefused
from hocket.workers.sql.guard.guard import check_query

QUERIES = 1_500 if os.environ.get("HOCKET_TEST_LONG") else 400
ALLOWED = ("public.a", "public.b")
NAMES = ("a", "b", "A", "public.a") * 6 + ("secret", "pg_authid", '"A"', "public.secret")
_NO_PLAN = (
    asyncpg.FeatureNotSupportedError,
    asyncpg.InvalidRecursionError,
    asyncpg.UndefinedTableError,
)
CTE_NAMES = ("a", "b", "secret", "pg_authid", '"A"')
TIMEOUT_S = 30.0

TABLES = """
CREATE TABLE public.a (x int); CREATE TABLE public.b (x int); CREATE TABLE public.secret (x int);
CREATE TABLE public."A" (x int);
INSERT INTO public.a VALUES (1); INSERT INTO public.b VALUES (1);
SET search_path = public; SET constraint_exclusion = off;
"""


async def test_postgres_reads_no_table_that_the_guard_did_not_name_and_allow(
    database_url: str,
) -> None:
    connection = await asyncpg.connect(database_url, timeout=TIMEOUT_S)
    accepted = planned = refused = 0
    try:
        await connection.execute(TABLES)
        for seed in range(QUERIES):
            sql = _query(random.Random(seed), depth=3)
            try:
                checked = check_query(sql, dialect="postgres", tables=ALLOWED, max_rows=10)
            except (SqlTableRefused, SqlConstructRefused):
                refused += 1
                continue
            except SqlRefused as other:
                raise AssertionError((seed, sql)) from other
            accepted += 1
            relations = await _planned(connection, checked.sql)
            if relations is None:
                continue  # recursion without a start, ambiguous names: Postgres has no plan either
            planned += 1
            assert relations <= set(checked.tables) <= set(ALLOWED), (seed, sql)
            assert relations == await _planned(connection, sql), (seed, sql)
    finally:
        await connection.close()
    assert planned > QUERIES / 10, (accepted, planned, refused)
    assert refused > QUERIES / 10


async def _planned(connection: asyncpg.Connection, sql: str) -> set[str] | None:
    try:
        plan = await connection.fetchval(f"EXPLAIN (VERBOSE, FORMAT JSON) {sql}", timeout=TIMEOUT_S)
    except _NO_PLAN:
        return None
    return set(_relations(json.loads(plan)))


def _relations(plan: Any) -> Iterator[str]:
    if isinstance(plan, list):
        for item in plan:
            yield from _relations(item)
    elif isinstance(plan, dict):
        if "Relation Name" in plan:
            yield f"{plan['Schema']}.{plan['Relation Name']}"
        for item in plan.values():
            yield from _relations(item)


def _query(dice: random.Random, depth: int) -> str:
    name = dice.choice(NAMES)
    if depth == 0:
        return f"SELECT 1 AS x FROM {name} AS t"
    one, two = (lambda: _query(dice, depth - 1)), (lambda: _query(dice, dice.randrange(depth)))
    kind = dice.randrange(7)
    if kind < 2:
        word = "WITH RECURSIVE" if kind else "WITH"
        first, second = dice.sample(CTE_NAMES, 2)
        return (
            f"{word} {first} AS ({one()}), {second} AS ({two()}) SELECT 1 AS x FROM ({two()}) AS t"
        )
    if kind == 2:
        return f"({one()}) UNION ALL ({two()})"
    if kind == 3:
        return f"SELECT 1 AS x FROM ({one()}) AS t, {name} AS u"
    if kind == 4:
        return f"SELECT 1 AS x FROM {name} AS t WHERE 1 IN ({one()})"
    if kind == 5:
        return f"SELECT 1 AS x FROM {name} AS t CROSS JOIN LATERAL ({one()}) AS u"
    return f"SELECT ({one()} LIMIT 1) AS x FROM {name} AS t ORDER BY ({two()} LIMIT 1)"
