"""Functions that a query never names: fields, operators, casts, domains. None is reached on Postgres."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from hocket.workers.sql.errors import SqlFailed, SqlRefused
from hocket.workers.sql.guard import functions
from hocket.workers.sql.guard.calls import Calls
from hocket.workers.sql.guard.casts import is_built_in
from hocket.workers.sql.guard.postgres_names import TAKE_ONE_ARGUMENT, TAKE_ROWS
from hocket.workers.sql.runner import run_query
from hocket.workers.sql.targets import Target, TargetSettings

TIMEOUT_MS = 20_000.0
SPIES = ("spy(integer)", "spy(text)", "lower(integer)", "plus(text, text)", "secret_of(public.t)")
TABLES = """
CREATE SCHEMA ext;
CREATE TYPE public.state AS ENUM ('open', 'paid');
CREATE TABLE public.t (n integer, name text, state public.state);
INSERT INTO public.t VALUES (1, 'a', 'open'), (2, 'b', 'paid');
"""
OBJECTS = """
CREATE OPERATOR public.+ (LEFTARG = text, RIGHTARG = text, FUNCTION = public.plus);
CREATE DOMAIN public.watched AS integer CHECK (public.spy(VALUE) > 0);
CREATE FUNCTION public.half(integer) RETURNS integer LANGUAGE sql AS $$ SELECT $1 / 2 $$;
CREATE FUNCTION ext.twice(integer) RETURNS integer LANGUAGE sql AS $$ SELECT $1 * 2 $$;
CREATE OPERATOR ext.<-> (LEFTARG = integer, RIGHTARG = integer, FUNCTION = pg_catalog.int4mi);
"""
LOCK = 4711
"""What a spy leaves behind, also in a transaction that only reads: a lock of its session."""
LOCKS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = $1"


@pytest.fixture
async def admin(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database_url)
    spies = (
        f"CREATE FUNCTION public.{spy} RETURNS integer LANGUAGE plpgsql VOLATILE "
        f"AS $$ BEGIN PERFORM pg_advisory_lock_shared({LOCK}); RETURN 1; END $$;"
        for spy in SPIES
    )
    await connection.execute("".join([TABLES, *spies, OBJECTS]))
    yield connection
    await connection.close()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT t.spy FROM generate_series(1, 2) AS t",
        "SELECT (n).spy FROM t",
        "SELECT t.secret_of FROM t",
        "SELECT (t).secret_of FROM t",
        "SELECT name + name FROM t",
        "SELECT n::public.watched FROM t",
        "SELECT n::watched FROM t",
        "SELECT * FROM json_to_record('{\"a\": 1}') AS x(a watched)",
        "SELECT lower(n) FROM t",
        "SELECT (n).lower FROM t",
    ],
)
async def test_a_function_of_somebody_else_is_not_reached(
    admin: asyncpg.Connection, database_url: str, sql: str
) -> None:
    await admin.fetch(sql)
    assert await admin.fetchval(LOCKS, LOCK), "it is reached where nothing stands in its way"
    await admin.execute("SELECT pg_advisory_unlock_all()")
    target = Target("t", TargetSettings(url=database_url, tables=("public.*",)))
    with pytest.raises((SqlRefused, SqlFailed)):
        await run_query(target, sql, {}, timeout_ms=TIMEOUT_MS, max_rows=10)
    assert await admin.fetchval(LOCKS, LOCK) == 0
    await target.close()


async def test_what_the_operator_names_is_reached(
    admin: asyncpg.Connection, database_url: str
) -> None:
    settings = TargetSettings(
        url=database_url,
        tables=("public.*",),
        functions=("half", "ext.twice"),
        types=("public.state",),
        search_path=("ext",),
    )
    target = Target("t", settings)
    result = await run_query(
        target,
        "SELECT ext.twice(n) AS twice, n <-> 1 AS away, half(n) AS half, state "
        "FROM t WHERE state = 'paid' AND state = 'paid'::public.state",
        {},
        timeout_ms=TIMEOUT_MS,
        max_rows=10,
    )
    assert result.rows == ((4, 1, 1, "paid"),)
    await target.close()


async def test_the_names_that_a_field_may_not_have_are_those_of_the_server(
    database_url: str,
) -> None:
    admin = await asyncpg.connect(database_url)
    callable_with_one = await admin.fetch(
        "SELECT DISTINCT proname FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace "
        "AND pronargs >= 1 AND pronargs - pronargdefaults <= 1"
    )
    types = await admin.fetch(
        "SELECT typname FROM pg_type WHERE typnamespace = 'pg_catalog'::regnamespace "
        "AND typtype <> 'c' AND typname NOT LIKE '\\_%'"
    )
    await admin.close()
    unaccounted = [
        name
        for (name,) in [*callable_with_one, *types]
        if name not in TAKE_ONE_ARGUMENT | TAKE_ROWS
        and not functions.is_denied("postgres", name)
        and not functions.outlasts_its_time("postgres", name)
        and not Calls("postgres", None, frozenset()).knows(name)
        and not is_built_in(name)
    ]
    assert unaccounted == []
